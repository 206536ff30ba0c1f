"""Who uses a cluster, put together from what brokers and logs told apart; and who moves with which wave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from watershed.topology.application_controls import PlanApplication
from watershed.topology.client_inventory import (
    ClientInventory,
    ClusterClients,
    SeenClient,
    SeenProducer,
    join_seen_clients,
    limit_names,
)
from watershed.topology.migration_waves import PlanMigration, Wave

_EVERYBODY = "User:*"
_OWN_CLIENT = "watershed"


@dataclass(frozen=True, slots=True)
class ClusterClientOverview:
    """clients: each once. unknown: producers that no source gives a name to. never_seen: principals that may read or
    write topics, and were not seen; None where it cannot be said (no request log, or no ACLs)."""

    seen: ClusterClients
    clients: tuple[SeenClient, ...]
    unknown: tuple[SeenProducer, ...]
    never_seen: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class WaveClient:
    """A client, or a producer of which only the number is known, that uses topics of a wave.

    application: of the file, that it belongs to. moves_with: names of the waves in which its application or its group
    moves. own: it calls itself Watershed.
    """

    client: SeenClient | None
    producer: SeenProducer | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    last_ms: int
    application: str | None = None
    moves_with: tuple[str, ...] = ()
    own: bool = False

    @property
    def is_stranger(self) -> bool:
        """Whether the file has no place for it: no application, and no group that moves. Everybody can call himself
        Watershed, so that excuses a reader only."""
        return self.application is None and not self.moves_with and not (self.own and not self.writes)


@dataclass(frozen=True, slots=True)
class TopicUsers:
    """Who reads and writes a topic, by name: `billing-1 (User:billing)`, `unknown producer 4711`."""

    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientEstimate:
    """waves: by their names, strangers first."""

    clusters: tuple[ClusterClientOverview, ...]
    waves: Mapping[str, tuple[WaveClient, ...]]


def summarise_clients(
    inventory: ClientInventory, aliases: Iterable[str], migration: PlanMigration | None, source: str | None
) -> ClientEstimate:
    """aliases: the clusters that are told about. source: the cluster that the migration leaves."""
    clusters = {
        alias: summarise_cluster_clients(inventory.clusters[alias])
        for alias in sorted(aliases)
        if alias in inventory.clusters
    }
    moved = clusters.get(source) if source is not None else None
    waves: dict[str, tuple[WaveClient, ...]] = {}
    if migration is not None and moved is not None:
        waves = {wave.name: list_wave_clients(moved, wave, migration) for wave in migration.waves}
    return ClientEstimate(tuple(clusters.values()), waves)


def summarise_cluster_clients(seen: ClusterClients) -> ClusterClientOverview:
    """Puts together what is of one client.

    A client without a principal (group members have none) is the one client that has its client id and one of its
    hosts; if there are several, it stays apart. A producer is the one client that got its number from the cluster, or
    that has its transactional id; else it is unknown.
    """
    clients = _join_nameless(seen.clients)
    unknown = []
    for producer in seen.producers:
        owners = [key for key, each in clients.items() if producer.producer_id in each.producer_ids] or [
            key
            for key, each in clients.items()
            if producer.transactional_id is not None and producer.transactional_id in each.transactional_ids
        ]
        if len(owners) == 1:
            clients[owners[0]] = _add_writes(clients[owners[0]], producer)
        else:
            unknown.append(producer)
    return ClusterClientOverview(
        seen, tuple(clients[key] for key in sorted(clients)), tuple(unknown), _list_never_seen(seen)
    )


def list_wave_clients(seen: ClusterClientOverview, wave: Wave, migration: PlanMigration) -> tuple[WaveClient, ...]:
    """Who reads and writes the wave's topics at the source. Strangers first, then by name."""
    topics = set(wave.topics)
    found = []
    for client in seen.clients:
        reads, writes = sorted(topics & client.reads.keys()), sorted(topics & client.writes.keys())
        if reads or writes:
            last = max(
                [client.reads[each].last_ms for each in reads] + [client.writes[each].last_ms for each in writes]
            )
            application = find_application(migration.applications, client)
            waves = _list_waves(migration, application, client.groups)
            own = is_own_client(client)
            found.append(WaveClient(client, None, tuple(reads), tuple(writes), last, application, waves, own))
    for producer in seen.unknown:
        if writes := sorted(topics & producer.writes.keys()):
            last = max(producer.writes[each].last_ms for each in writes)
            found.append(WaveClient(None, producer, (), tuple(writes), last))
    return tuple(sorted(found, key=lambda each: not each.is_stranger))


def list_topic_users(seen: ClusterClientOverview) -> dict[str, TopicUsers]:
    """Topics that somebody was seen at, by name."""
    readers: dict[str, list[str]] = defaultdict(list)
    writers: dict[str, list[str]] = defaultdict(list)
    for client in seen.clients:
        name = f"{name_client(client, None)} ({client.principal})" if client.principal else name_client(client, None)
        for topic in client.reads:
            readers[topic].append(name)
        for topic in client.writes:
            writers[topic].append(name)
    for producer in seen.unknown:
        for topic in producer.writes:
            writers[topic].append(name_client(None, producer))
    topics = sorted({*readers, *writers})
    return {each: TopicUsers(tuple(readers.get(each, ())), tuple(writers.get(each, ()))) for each in topics}


def name_client(client: SeenClient | None, producer: SeenProducer | None) -> str:
    """A client by its client id, a producer by its number."""
    if client is not None:
        return client.client_id or "(no client id)"
    assert producer is not None  # one of the two is there
    name = f", transactional id {producer.transactional_id}" if producer.transactional_id is not None else ""
    return f"unknown producer {producer.producer_id}{name}"


def find_application(applications: Mapping[str, PlanApplication], client: SeenClient) -> str | None:
    """The application of the file that the client is: its principal and its client id are the declared ones, as far as
    they are declared and seen, and at least one of them is both."""
    for name, declared in sorted(applications.items()):
        pairs = ((declared.principal, client.principal), (declared.client_id, client.client_id))
        known = [(wanted, has) for wanted, has in pairs if wanted is not None and has is not None]
        if known and all(wanted == has for wanted, has in known):
            return name
    return None


def is_own_client(client: SeenClient) -> bool:
    """Whether it is a worker or a command of Watershed, by its client id."""
    name = client.client_id or ""
    return name == _OWN_CLIENT or name.startswith(f"{_OWN_CLIENT}-")


def _join_nameless(clients: Iterable[SeenClient]) -> dict[tuple[str, str], SeenClient]:
    found = {each.key: each for each in clients}
    by_id: dict[str | None, list[SeenClient]] = defaultdict(list)
    for each in found.values():
        if each.principal is not None:
            by_id[each.client_id].append(each)
    for each in [each for each in found.values() if each.principal is None]:
        same = [other for other in by_id[each.client_id] if not set(other.hosts).isdisjoint(each.hosts)]
        if len(same) == 1:
            del found[each.key]
            found[same[0].key] = join_seen_clients(found[same[0].key], each)
    return found


def _add_writes(client: SeenClient, producer: SeenProducer) -> SeenClient:
    spans = dict(client.writes)
    for topic, span in producer.writes.items():
        spans[topic] = spans[topic].join(span) if topic in spans else span
    own = () if producer.transactional_id is None else (producer.transactional_id,)
    transactional = limit_names((*client.transactional_ids, *own))
    return replace(client, writes=spans, transactional_ids=transactional, seen=client.seen.join(producer.seen))


def _list_never_seen(seen: ClusterClients) -> tuple[str, ...] | None:
    """Only a request log shows principals; without one, all of them would be strangers."""
    if seen.rights is None or seen.rights.principals is None or not seen.has_request_log:
        return None
    there = {client.principal for client in seen.clients}
    return tuple(
        principal
        for principal, rights in seen.rights.principals.items()
        if (rights.reads or rights.writes) and principal not in there and principal != _EVERYBODY
    )


def _list_waves(migration: PlanMigration, application: str | None, groups: Iterable[str]) -> tuple[str, ...]:
    own = set(groups)
    return tuple(
        wave.name
        for wave in migration.waves
        if (application is not None and application in wave.producers) or own.intersection(wave.consumers)
    )
