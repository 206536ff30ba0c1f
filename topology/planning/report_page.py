"""The planning report as a page: what it says and in which order, once for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from watershed.topology.inventory import InventoryTopic
from watershed.topology.planning import FlowEstimate, MigrationEstimate
from watershed.topology.planning.client_section import list_client_blocks
from watershed.topology.planning.cluster_overview import ClusterOverview
from watershed.topology.planning.copy_estimate import CopyEstimate
from watershed.topology.planning.page_blocks import BlockPage, Bullets, Cell, Heading, PageBlock, Sentence, Table
from watershed.topology.planning.wave_estimate import WaveEstimate
from watershed.topology.rounded_amounts import (
    render_cost,
    render_counted_noun,
    render_first_names,
    render_number,
    render_rounded_duration,
    render_rounded_rate,
    render_rounded_size,
    render_utc_minute,
)

_LISTED = 20  # idle and internal topics by name; the rest is counted


def build_report_page(planning: MigrationEstimate) -> BlockPage:
    """The planning report as blocks; `html` and `markdown` render them."""
    return tuple(_blocks(planning))


def _blocks(planning: MigrationEstimate) -> Iterator[PageBlock]:
    yield Heading(1, f"{planning.topology or 'Topology'}: before the migration")
    yield Sentence(f"From a read-only scan of {render_utc_minute(planning.taken_ms)}.", "note")
    for alias, why in planning.unscanned.items():
        yield Sentence(f"{alias} was not scanned: {why or 'what concerns it is missing here.'}", "warning")
    for list_blocks in _SECTIONS:
        yield from list_blocks(planning)


def _clusters(planning: MigrationEstimate) -> Iterator[PageBlock]:
    yield Heading(2, "Clusters")
    head = ("Cluster", "Kafka", "Brokers", "Racks", "Topics", "Partitions", "Stored", "Written", "Groups")
    rows = []
    largest = max((each.bytes or 0 for each in planning.clusters), default=0)
    for each in planning.clusters:
        cluster = each.cluster
        rows.append(
            (
                Cell(cluster.alias),
                Cell(cluster.kafka or "unknown"),
                _count(len(cluster.brokers)),
                _count(cluster.racks),
                _count(each.topics),
                _count(each.partitions),
                _bar(render_rounded_size(each.bytes), each.bytes, largest),
                Cell(render_rounded_rate(each.written), number=True),
                _count(len(cluster.groups)),
            )
        )
    yield Table(head, tuple(rows))


def _obstacles(planning: MigrationEstimate) -> Iterator[PageBlock]:
    yield Heading(2, "What stands in the way")
    if not planning.obstacles:
        yield Sentence("Nothing was found between the clusters that were scanned.")
        return
    yield Table(
        ("Flow", "What", "Topics", "What to do"),
        tuple(
            (Cell(each.flow or "all"), Cell(each.what), Cell(render_first_names(each.topics)), Cell(each.remedy))
            for each in planning.obstacles
        ),
    )


def _flows(planning: MigrationEstimate) -> Iterator[PageBlock]:
    yield Heading(2, "Flows")
    if not planning.flows:
        yield Sentence("The topology has no flows.")
        return
    head = ("Flow", "State", *_ESTIMATE_HEAD)
    largest = max((each.estimate.bytes for each in planning.flows if each.estimate), default=0)
    rows = [_flow_row(each, planning, largest) for each in planning.flows]
    yield Table(head, tuple(rows))
    for each in planning.flows:
        if each.estimate is not None:
            yield from _doubts(f"{each.flow.id}", each.estimate)


def _flow_row(each: FlowEstimate, planning: MigrationEstimate, largest: int) -> tuple[Cell, ...]:
    name, state = Cell(each.flow.id), Cell(each.flow.state)
    if each.estimate is None:
        blank = Cell("unknown", number=True)
        return (name, state, *[blank] * len(_ESTIMATE_HEAD))
    return (name, state, *_estimate_cells(each.estimate, largest, planning))


_ESTIMATE_HEAD = ("Topics", "Partitions", "To copy", "Written", "Copies at", "Copy", "Then catch-up", "A day after")


def _estimate_cells(estimate: CopyEstimate, largest: int, planning: MigrationEstimate) -> tuple[Cell, ...]:
    catch_up = estimate.catch_up_s
    return (
        _count(estimate.topics),
        _count(estimate.partitions),
        _bar(render_rounded_size(estimate.bytes), estimate.bytes, largest, _cost(estimate.gib, planning)),
        Cell(render_rounded_rate(estimate.written), number=True),
        Cell(render_rounded_rate(estimate.copy_rate), number=True, note=estimate.limited_by),
        Cell(render_rounded_duration(estimate.copy_s), number=True),
        Cell("never" if catch_up is None else render_rounded_duration(catch_up), number=True),
        Cell(f"{estimate.gib_a_day:,.1f} GiB", number=True, note=_cost(estimate.gib_a_day, planning)),
    )


def _cost(gib: float, planning: MigrationEstimate) -> str:
    price = planning.assumptions.price_per_gib
    return "" if price is None else f"costs {render_cost(gib * price)}"


def _doubts(what: str, estimate: CopyEstimate) -> Iterator[PageBlock]:
    if estimate.catch_up_s is None:
        yield Sentence(
            f"{what} never catches up: {render_rounded_rate(estimate.written)} are written, "
            f"{render_rounded_rate(estimate.copy_rate)} are copied. "
            "Raise the quota, or move fewer topics at a time.",
            "warning",
        )
    if estimate.unsized:
        yield Sentence(
            f"{what}: the size of {estimate.unsized:,} of {estimate.topics:,} topics is not known, so the copy takes "
            "longer than shown.",
            "warning",
        )
    elif estimate.unrated:
        yield Sentence(
            f"{what}: what is written to {estimate.unrated:,} of {estimate.topics:,} topics is not known, so the "
            "catch-up takes longer than shown.",
            "warning",
        )


def _waves(planning: MigrationEstimate) -> Iterator[PageBlock]:
    if planning.migration is None:
        return
    yield Heading(2, f"Migration waves of {planning.migration}")
    if not planning.waves:
        yield Sentence("Its source was not scanned, so the waves cannot be estimated.", "warning")
        return
    largest = max(each.estimate.bytes for each in planning.waves)
    head = ("Wave", "Strategy", *_ESTIMATE_HEAD)
    yield Table(
        head,
        tuple(
            (
                Cell(each.wave.name),
                Cell(each.wave.strategy.replace("_", " ")),
                *_estimate_cells(each.estimate, largest, planning),
            )
            for each in planning.waves
        ),
    )
    for each in planning.waves:
        yield from _wave(each)


def _wave(each: WaveEstimate) -> Iterator[PageBlock]:
    yield Heading(3, f"Wave {each.wave.name}")
    if each.missing:
        yield Sentence(
            f"Not at the source: {render_first_names(each.missing)}. Correct the names, or drop them.", "warning"
        )
    yield from _doubts(f"Wave {each.wave.name}", each.estimate)
    if each.groups:
        yield Table(
            ("Group", "Type", "State", "Members", "Behind by at most", "Reads outside the wave"),
            tuple(
                (
                    Cell(group.id),
                    Cell(group.seen.type if group.seen else "-"),
                    Cell(group.seen.state if group.seen else "not at the source"),
                    _count(group.seen.members if group.seen else None),
                    Cell(f"{group.lag:,} records" if group.seen else "unknown", number=True),
                    Cell(render_first_names(group.elsewhere) or "nothing"),
                )
                for group in each.groups
            ),
        )
    else:
        yield Sentence("No group moves with this wave.")
    for bystander in each.bystanders:
        where = f"moves with wave {bystander.wave}" if bystander.wave else "moves with no wave"
        yield Sentence(
            f"Group {bystander.id} ({render_counted_noun(bystander.members, 'member')}) reads "
            f"{render_first_names(bystander.topics)} and "
            f"{where}: add it to this wave, or keep the flow running until it has moved.",
            "warning",
        )


def _each_cluster(planning: MigrationEstimate) -> Iterator[PageBlock]:
    for each in planning.clusters:
        yield from _cluster(each, planning)


def _cluster(each: ClusterOverview, planning: MigrationEstimate) -> Iterator[PageBlock]:
    cluster = each.cluster
    yield Heading(2, f"Cluster {cluster.alias}")
    yield Sentence(f"Cluster id {cluster.cluster_id}, looked at {render_utc_minute(cluster.taken_ms)}.", "note")
    if cluster.not_seen:
        yield Sentence("What the scan could not see:")
        yield Bullets(cluster.not_seen)
    if each.largest:
        yield Heading(3, "Largest topics")
        yield _topics(each.largest, lambda topic: topic.size_bytes, render_rounded_size, "Stored")
    yield Heading(3, "Busiest topics")
    if each.busiest:
        yield _topics(each.busiest, lambda topic: topic.rate_bytes, render_rounded_rate, "Written")
    else:
        why = "Nothing was written during the sample." if each.written == 0 else "No write rates were seen."
        yield Sentence(why)
    yield Heading(3, "Idle topics")
    if each.idle:
        days = planning.assumptions.idle_days
        total = sum(topic.size_bytes or 0 for topic in each.idle)
        yield Sentence(
            f"{render_counted_noun(len(each.idle), 'topic')}, {render_rounded_size(total)}: not written to during "
            f"the sample, empty or with no "
            f"record newer than {days} days. Ask their owners before they are copied."
        )
        yield Table(
            ("Topic", "Stored", "Newest record"),
            tuple(
                (
                    Cell(topic.name),
                    Cell(render_rounded_size(topic.size_bytes), number=True),
                    Cell(
                        render_utc_minute(topic.last_append_ms) if topic.last_append_ms is not None else "none",
                        number=True,
                    ),
                )
                for topic in each.idle[:_LISTED]
            ),
        )
        yield from _more(len(each.idle))
    else:
        yield Sentence("None.")
    yield Heading(3, "Internal topics")
    if each.internal:
        total = sum(topic.size_bytes or 0 for topic in each.internal)
        yield Sentence(
            f"{render_counted_noun(len(each.internal), 'topic')}, {render_rounded_size(total)}: no flow takes "
            f"them unless it names them."
        )
        yield Bullets(tuple(topic.name for topic in each.internal[:_LISTED]))
        yield from _more(len(each.internal))
    else:
        yield Sentence("None.")


def _topics(
    topics: Iterable[InventoryTopic],
    amount: Callable[[InventoryTopic], int | None],
    text: Callable[[float | None], str],
    column: str,
) -> Table:
    topics = list(topics)
    largest = max(amount(topic) or 0 for topic in topics)
    return Table(
        ("Topic", "Partitions", "Cleanup", column),
        tuple(
            (
                Cell(topic.name),
                _count(topic.partitions),
                Cell(topic.config("cleanup.policy") or "unknown"),
                _bar(text(amount(topic)), amount(topic), largest),
            )
            for topic in topics
        ),
    )


def _method(planning: MigrationEstimate) -> Iterator[PageBlock]:
    price = planning.assumptions.price_per_gib
    yield Heading(2, "How these numbers are made")
    yield Bullets(
        (
            "Stored: the leaders' logs on the brokers' disks, as compressed as they are; copies are of the same size.",
            "Written: how much those logs grew during the sample; a log that retention cut meanwhile counts as silent.",
            "Copy: stored bytes / the copy rate, which is the flow's quota or --rate, whichever is less, and "
            "100 MiB/s where neither is said.",
            "Then catch-up: stored bytes / (copy rate - written) - copy; never, when as much is written as is copied.",
            "Behind by at most: end offset minus committed offset; offsets have gaps, so there may be fewer records.",
            "A day after: what producers write in a day at the rate of the sample, which crosses the network then."
            + ("" if price is None else f" Costs are at {price:g} a GiB."),
        )
    )


def _more(count: int) -> Iterator[PageBlock]:
    if count > _LISTED:
        yield Sentence(f"and {count - _LISTED:,} more.", "note")


def _count(value: int | None) -> Cell:
    return Cell(render_number(value), number=True)


def _bar(text: str, value: int | None, largest: int, note: str = "") -> Cell:
    return Cell(text, share=(value or 0) / largest if largest else 0.0, number=True, note=note)


# The page in its order; a section of its own module adds its line here.
_SECTIONS: tuple[Callable[[MigrationEstimate], Iterator[PageBlock]], ...] = (
    _clusters,
    _obstacles,
    _flows,
    _waves,
    list_client_blocks,
    _each_cluster,
    _method,
)
