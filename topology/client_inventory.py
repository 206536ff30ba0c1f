"""Which clients use a cluster, as `topology clients` saw them: from the brokers' own view, and from their request logs.

A client is a principal with a client id. Brokers do not tell all of it in one place: group members have a client id
and no principal, producer states have a number only, request logs have everything. So what is not told is None, and is
never guessed here; `topology.planning.client_overview` puts together what belongs together.

Clients are kept over many scans: a client that one scan did not see stays, with the time at which it was seen last.
Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from watershed.topology.errors import UnreadableInventory

GROUP_MEMBERS: Final = "group members"
REQUEST_LOG: Final = "request log"
BROKERS: Final = "brokers"
MOST_NAMES: Final = 100  # of hosts, groups, ids that one client has: a list of that length may be longer in truth
_MOST_OBSERVATIONS: Final = 1_000  # the newest are kept; clients are never dropped

_T = TypeVar("_T")
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """When something was seen first and last."""

    first_ms: int
    last_ms: int

    def join(self, other: SeenSpan) -> SeenSpan:
        """The span of both."""
        return SeenSpan(min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms))


@dataclass(frozen=True, slots=True)
class SeenClient:
    """principal, client_id: None where no source told it. software: name and version that the client gave (KIP-511).
    Lists are sorted, with at most 100 names. producer_ids: that the cluster gave to this client, the newest 100.
    sources: who told of it. reads, writes: topic → when; `id:…` stands for a topic whose name was not known."""

    principal: str | None
    client_id: str | None
    seen: SeenSpan
    software: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    reads: Mapping[str, SeenSpan] = field(default_factory=lambda: MappingProxyType({}))
    writes: Mapping[str, SeenSpan] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def key(self) -> tuple[str, str]:
        """What tells clients apart, in the order in which they are listed."""
        return (self.principal or "", self.client_id or "")


@dataclass(frozen=True, slots=True)
class SeenProducer:
    """A producer as partition leaders know it: by its number. writes: topic → the times of its last record there, as
    scans saw them. transactional_id: None where it has none, or where it may not be seen."""

    producer_id: int
    seen: SeenSpan
    transactional_id: str | None = None
    writes: Mapping[str, SeenSpan] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PrincipalRights:
    """Topics that ALLOW bindings let a principal read and write, as `orders` or `orders.*` (a prefix); a DENY may take
    a part of it away."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenRights:
    """What a cluster allows at `taken_ms`. principals None: the cluster has no authorizer, or does not tell.
    quotas: the entities that have a quota (`user=app`)."""

    taken_ms: int
    principals: Mapping[str, PrincipalRights] | None = None
    quotas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientObservation:
    """One watch of one source. source: `brokers`, or `request log` with the file's folder and name in `origin`.

    used: scans that were answered, or lines that were understood. failed: scans without an answer, or lines about
    requests that could not be read. gaps: spans without a scan or a line. addresses: of brokers, as the log has them.
    not_seen: in words, what could not be read and why.
    """

    source: str
    origin: str
    seen: SeenSpan
    used: int
    failed: int = 0
    gaps: tuple[SeenSpan, ...] = ()
    addresses: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterClients:
    """All that was seen of one cluster. cluster_id: None where only logs were read."""

    alias: str
    cluster_id: str | None
    clients: tuple[SeenClient, ...] = ()
    producers: tuple[SeenProducer, ...] = ()
    rights: SeenRights | None = None
    observations: tuple[ClientObservation, ...] = ()

    @property
    def has_request_log(self) -> bool:
        """Whether a request log was read: only that names principals, and producers."""
        return any(each.source == REQUEST_LOG and each.used for each in self.observations)


@dataclass(frozen=True, slots=True)
class ClientInventory:
    """Clusters by alias."""

    clusters: Mapping[str, ClusterClients]


def merge_inventories(one: ClientInventory, other: ClientInventory) -> ClientInventory:
    """Both together; nothing of either is lost. Raises UnreadableInventory where an alias means two clusters."""
    return ClientInventory(_join(one.clusters, other.clusters, merge_clients))


def merge_clients(one: ClusterClients, other: ClusterClients) -> ClusterClients:
    """All clients of both, each once; of rights the later ones. The order of the two does not matter.

    Raises UnreadableInventory where they are of two clusters.
    """
    if one.cluster_id and other.cluster_id and one.cluster_id != other.cluster_id:
        raise UnreadableInventory(
            f"{one.alias} was cluster {one.cluster_id} and is cluster {other.cluster_id} now; keep the clients of each "
            "in a file of its own"
        )
    clients = _join(
        {each.key: each for each in one.clients}, {each.key: each for each in other.clients}, join_seen_clients
    )
    producers = _join(
        {each.producer_id: each for each in one.producers},
        {each.producer_id: each for each in other.producers},
        _join_producers,
    )
    return ClusterClients(
        one.alias,
        one.cluster_id or other.cluster_id,
        tuple(clients[key] for key in sorted(clients)),
        tuple(producers[key] for key in sorted(producers)),
        max((each for each in (one.rights, other.rights) if each), key=_order_rights, default=None),
        join_observations((*one.observations, *other.observations)),
    )


def join_observations(found: Iterable[ClientObservation]) -> tuple[ClientObservation, ...]:
    """Each once, the oldest first. Of a watch that went on, and of a log that grew and was read again, the longest."""
    longest: dict[tuple[str, str, int], ClientObservation] = {}
    for each in found:
        key = (each.source, each.origin, each.seen.first_ms)
        longest[key] = max(longest.get(key, each), each, key=_order_observation)
    return tuple(sorted(longest.values(), key=_order_observation)[-_MOST_OBSERVATIONS:])


def limit_names(names: Iterable[_T]) -> tuple[_T, ...]:
    """Sorted, each once, at most 100."""
    return tuple(sorted(set(names))[:MOST_NAMES])  # type: ignore[type-var]


def limit_producer_ids(ids: Iterable[int]) -> tuple[int, ...]:
    """Sorted, each once, the largest 100: a cluster gives ids out in ascending blocks, so these are the newest."""
    return tuple(sorted(set(ids))[-MOST_NAMES:])


def _order_rights(rights: SeenRights) -> tuple[int, str]:
    return rights.taken_ms, repr(rights)


def _order_observation(each: ClientObservation) -> tuple[int, int, str]:
    return each.seen.last_ms, each.used, repr(each)


def join_seen_clients(one: SeenClient, other: SeenClient) -> SeenClient:
    """What is known of both, as one client; a name that only one of them has counts."""
    lists: dict[str, Any] = {
        name: limit_names((*getattr(one, name), *getattr(other, name)))
        for name in ("software", "hosts", "groups", "transactional_ids", "sources")
    }
    return replace(
        one,
        principal=one.principal if one.principal is not None else other.principal,
        client_id=one.client_id if one.client_id is not None else other.client_id,
        seen=one.seen.join(other.seen),
        reads=_join(one.reads, other.reads, SeenSpan.join),
        writes=_join(one.writes, other.writes, SeenSpan.join),
        producer_ids=limit_producer_ids((*one.producer_ids, *other.producer_ids)),
        **lists,
    )


def _join_producers(one: SeenProducer, other: SeenProducer) -> SeenProducer:
    names = [each.transactional_id for each in (one, other) if each.transactional_id is not None]
    return SeenProducer(
        one.producer_id,
        one.seen.join(other.seen),
        min(names, default=None),
        _join(one.writes, other.writes, SeenSpan.join),
    )


def _join(one: Mapping[_K, _T], other: Mapping[_K, _T], join: Callable[[_T, _T], _T]) -> dict[_K, _T]:
    both = {key: join(value, other[key]) if key in other else value for key, value in one.items()}
    return both | {key: value for key, value in other.items() if key not in one}
