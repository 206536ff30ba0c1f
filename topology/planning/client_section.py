"""The clients in the planning report: who uses each cluster, what is not known of it, and who moves with which wave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from watershed.topology.client_inventory import MOST_NAMES, ClientObservation, SeenClient, SeenProducer, SeenSpan
from watershed.topology.inventory import InventoryCluster
from watershed.topology.planning.client_overview import (
    ClusterClientOverview,
    WaveClient,
    is_own_client,
    list_topic_users,
    name_client,
)
from watershed.topology.planning.page_blocks import Bullets, Cell, Heading, PageBlock, Sentence, Table
from watershed.topology.rounded_amounts import (
    render_counted_noun,
    render_first_names,
    render_rounded_duration,
    render_utc_minute,
)
from watershed.topology.selectors import is_internal_topic

if TYPE_CHECKING:
    from watershed.topology.planning import MigrationEstimate

_LISTED = 500  # clients of a cluster; all of them are in the JSON
_WITHOUT_LOG = (
    "No request log was read. So principals, software and producers by name are not known: brokers tell of group "
    "members and of numbers only."
)


def list_client_blocks(planning: MigrationEstimate) -> Iterator[PageBlock]:
    """Nothing where the report has no list of clients."""
    if planning.clients is None:
        return
    yield Heading(2, "Clients")
    there = {each.seen.alias for each in planning.clients.clusters}
    for alias in sorted({*planning.unscanned, *(each.cluster.alias for each in planning.clusters)} - there):
        yield Sentence(f"The clients of {alias} were not scanned: what concerns them is missing here.", "warning")
    for wave, clients in planning.clients.waves.items():
        yield from _list_wave(wave, clients)
    scanned = {each.cluster.alias: each.cluster for each in planning.clusters}
    for each in planning.clients.clusters:
        yield from _list_cluster(each)
        yield from _list_topics(each, scanned.get(each.seen.alias))


def list_coverage(observations: Iterable[ClientObservation]) -> tuple[str, ...]:
    """For each source: from when to when it was watched, and what it missed."""
    return tuple(map(_describe_observation, observations))


def _list_wave(wave: str, clients: tuple[WaveClient, ...]) -> Iterator[PageBlock]:
    yield Heading(3, f"Clients of wave {wave}")
    if not clients:
        yield Sentence("No client was seen at its topics. That is no proof that there is none.")
        return
    writers = tuple(name_client(each.client, each.producer) for each in clients if each.is_stranger and each.writes)
    readers = tuple(name_client(each.client, each.producer) for each in clients if each.is_stranger and not each.writes)
    if writers:
        yield Sentence(
            f"Write to topics of the wave, and are in no application of the file: {render_first_names(writers, 10)}. "
            "Declare them under migration.applications, or find their owners: after the switch they would go on at "
            "the source, or be fenced without warning.",
            "warning",
        )
    if readers:
        yield Sentence(
            f"Read topics of the wave, and move with no wave: {render_first_names(readers, 10)}. Add their groups to a "
            "wave, or find their owners.",
            "warning",
        )
    yield Table(
        ("Client", "Principal", "Reads", "Writes", "Last seen", "Application", "Moves with"),
        tuple(map(_build_wave_row, clients[:_LISTED])),
    )
    yield from _note_rest(len(clients))


def _build_wave_row(each: WaveClient) -> tuple[Cell, ...]:
    return (
        Cell(name_client(each.client, each.producer), note=", ".join(each.client.software) if each.client else ""),
        Cell(_name_principal(each.client)),
        Cell(render_first_names(each.reads)),
        Cell(render_first_names(each.writes)),
        Cell(render_utc_minute(each.last_ms)),
        Cell("Watershed" if each.own else each.application or "none"),
        Cell(", ".join(each.moves_with) or ("stays" if each.own else "nobody said")),
    )


def _list_cluster(each: ClusterClientOverview) -> Iterator[PageBlock]:
    seen = each.seen
    yield Heading(3, f"Clients of {seen.alias}")
    if not seen.has_request_log:
        yield Sentence(_WITHOUT_LOG, "warning")
    yield Bullets(list_coverage(seen.observations))
    hidden = tuple(dict.fromkeys(line for found in seen.observations for line in found.not_seen))
    if hidden:
        yield Sentence("What could not be seen:")
        yield Bullets(hidden)
    if each.clients:
        yield Table(
            ("Client", "Principal", "Groups", "Reads", "Writes", "Hosts", "Last seen"),
            tuple(map(_build_client_row, each.clients[:_LISTED])),
        )
        yield from _note_rest(len(each.clients))
    else:
        yield Sentence("No client was seen.")
    yield from _list_unknown(each.unknown)
    yield from _list_never_seen(each)


def _list_topics(each: ClusterClientOverview, scanned: InventoryCluster | None) -> Iterator[PageBlock]:
    users = list_topic_users(each)
    yield Heading(3, f"Topics of {each.seen.alias} and their clients")
    if users:
        yield Table(
            ("Topic", "Writers", "Readers"),
            tuple(
                (
                    Cell(topic),
                    Cell(render_first_names(of.writers, 10) or "none was seen"),
                    Cell(render_first_names(of.readers, 10) or "none was seen"),
                )
                for topic, of in islice(users.items(), _LISTED)
            ),
        )
        yield from _note_rest(len(users))
    if scanned is None:
        return
    unused = tuple(name for name in sorted(scanned.topics) if name not in users and not is_internal_topic(name))
    if unused:
        yield Sentence(
            f"At {render_counted_noun(len(unused), 'topic')} no client was seen: {render_first_names(unused, 20)}."
        )


def _build_client_row(client: SeenClient) -> tuple[Cell, ...]:
    return (
        Cell(
            name_client(client, None) + (" (Watershed)" if is_own_client(client) else ""),
            note=", ".join((*client.software, *(f"transactional id {name}" for name in client.transactional_ids[:5]))),
        ),
        Cell(_name_principal(client)),
        Cell(_list_names(client.groups)),
        Cell(render_first_names(tuple(sorted(client.reads)))),
        Cell(render_first_names(tuple(sorted(client.writes)))),
        Cell(_list_names(client.hosts)),
        Cell(render_utc_minute(client.seen.last_ms)),
    )


def _list_unknown(unknown: tuple[SeenProducer, ...]) -> Iterator[PageBlock]:
    if not unknown:
        return
    yield Sentence(
        f"{render_counted_noun(len(unknown), 'producer')} of which only the number is known: partition leaders keep no "
        "names. A request log that has the answer to InitProducerId names them. A producer without idempotence has no "
        "number, and is in request logs only."
    )
    yield Table(
        ("Unknown producer", "Transactional id", "Writes", "Last record"),
        tuple(
            (
                Cell(str(each.producer_id)),
                Cell(each.transactional_id or "none is shown"),
                Cell(render_first_names(tuple(sorted(each.writes))) or "nothing that partitions remember"),
                Cell(render_utc_minute(each.seen.last_ms)),
            )
            for each in unknown[:_LISTED]
        ),
    )
    yield from _note_rest(len(unknown))


def _list_never_seen(each: ClusterClientOverview) -> Iterator[PageBlock]:
    rights = each.seen.rights
    if rights is not None and rights.quotas:
        yield Sentence(f"Quotas are set for {render_first_names(rights.quotas, 20)}.")
    if each.never_seen is None:
        yield Sentence(
            "Which principals have rights and are never there cannot be said: that needs a request log, and ACLs that "
            "this user may read.",
            "note",
        )
    elif each.never_seen and rights is not None and rights.principals is not None:
        yield Sentence("May read or write topics, and were never seen while the log was written:")
        yield Table(
            ("Principal", "May read", "May write"),
            tuple(
                (
                    Cell(principal),
                    Cell(render_first_names(rights.principals[principal].reads)),
                    Cell(render_first_names(rights.principals[principal].writes)),
                )
                for principal in each.never_seen[:_LISTED]
            ),
        )
        yield from _note_rest(len(each.never_seen))


def _describe_observation(each: ClientObservation) -> str:
    span = f"from {render_utc_minute(each.seen.first_ms)} to {render_utc_minute(each.seen.last_ms)}"
    what = "request" if each.origin else "scan"
    failed = f", {each.failed:,} that failed" if each.failed else ""
    gaps = f"; {_describe_gaps(each.gaps)}" if each.gaps else ""
    where = f"{each.source} {each.origin}".strip()
    brokers = f" by {', '.join(each.addresses[:5])}" if each.addresses else ""
    return f"{where}{brokers}: {span}, {render_counted_noun(each.used, what)}{failed}{gaps}"


def _describe_gaps(gaps: tuple[SeenSpan, ...]) -> str:
    silent = sum(each.last_ms - each.first_ms for each in gaps) / 1000
    return f"{render_counted_noun(len(gaps), 'gap')} of {render_rounded_duration(silent)} together"


def _name_principal(client: SeenClient | None) -> str:
    return (client.principal if client is not None else None) or "not known"


def _list_names(names: tuple[str, ...]) -> str:
    more = " or more" if len(names) >= MOST_NAMES else ""
    return render_first_names(names, 3) + more


def _note_rest(count: int) -> Iterator[PageBlock]:
    if count > _LISTED:
        yield Sentence(f"and {count - _LISTED:,} more, which the report as JSON has.", "note")
