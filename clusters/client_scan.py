"""One scan at the clients of a live cluster: what its brokers tell of them, read only.

Group members have a client id, a host and topics, but no principal. Producers are numbers at their partitions'
leaders (KIP-664); transaction coordinators know the transactional id of some. Who has rights or a quota is known by
name, whether it is there or not. Everything else is in request logs only (`clusters.request_log`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from watershed.clusters.errors import ProtocolError, RequestRefused, Unauthorised, Unreachable
from watershed.clusters.group_members import GroupDescription, describe_listed_groups
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import admin_reads, error_codes
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import ClusterMetadata
from watershed.clusters.wire.topic_names import print_topic_id
from watershed.clusters.wire.versions import Api
from watershed.topology.client_collector import ClientCollector, ClientSighting
from watershed.topology.client_inventory import (
    BROKERS,
    GROUP_MEMBERS,
    ClientObservation,
    ClusterClients,
    PrincipalRights,
    SeenRights,
    SeenSpan,
)
from watershed.topology.inventory import InventoryAcl
from watershed.topology.rounded_amounts import render_first_names

_T = TypeVar("_T")
_PARTITIONS_A_REQUEST: Final = 1_000
_NOT_TOLD = (Unauthorised, RequestRefused, ProtocolError)
_READS, _WRITES = frozenset({"READ", "ALL"}), frozenset({"WRITE", "ALL"})


@dataclass(frozen=True, slots=True)
class ClientScan:
    """What one scan saw, and the cluster's topics by their ids as Kafka prints them (request logs name topics so)."""

    clients: ClusterClients
    topic_ids: Mapping[str, str]


@dataclass(slots=True)
class _ScanState:
    ms: int
    collector: ClientCollector = field(default_factory=ClientCollector)
    not_seen: list[str] = field(default_factory=list)


def scan_clients(settings: ConnectionSettings, *, timeout_s: float = 15.0) -> ClientScan:
    """Ask every broker once. What this user may not see, or a broker is too old for, is said in `not_seen`.

    Raises Unreachable, Unauthorised, WrongCluster where the cluster itself cannot be asked.
    """
    scan = _ScanState(int(time.time() * 1000))
    with closing(open_connection(settings, timeout_s=timeout_s)) as first:
        metadata = first.metadata()
        rights = _read_rights(scan, first)
    refused: dict[int, int] = defaultdict(int)
    for node, address in sorted(metadata.brokers.items()):
        try:
            with closing(open_connection(settings, address, timeout_s=timeout_s)) as connection:
                _read_members(scan, connection, node)
                _read_producers(scan, connection, _list_led(metadata, address), refused)
                _read_transactions(scan, connection, node)
        except (Unreachable, Unauthorised) as error:
            scan.not_seen.append(f"members of groups, producers and transactions at broker {node}: {error}")
    for code, count in sorted(refused.items()):
        needs = " (they need READ on the topic)" if code == error_codes.TOPIC_AUTHORIZATION_FAILED else ""
        scan.not_seen.append(f"producers of {count} partitions: {error_codes.describe_error_code(code)}{needs}")
    if scan.collector.left_out:
        scan.not_seen.append(
            f"{scan.collector.left_out} sightings of more clients, or more topics of one, than are kept"
        )
    ids = {print_topic_id(topic.topic_id): topic.name for topic in metadata.topics if topic.topic_id.int}
    observation = ClientObservation(BROKERS, "", SeenSpan(scan.ms, scan.ms), 1, not_seen=tuple(sorted(scan.not_seen)))
    found = ClusterClients(
        settings.alias,
        metadata.cluster_id,
        scan.collector.list_clients(),
        scan.collector.list_producers(),
        rights,
        (observation,),
    )
    return ClientScan(found, ids)


def list_principal_rights(acls: Iterable[InventoryAcl]) -> dict[str, PrincipalRights]:
    """Each principal that an ALLOW binding names, with the topics that it may read and write."""
    reads: dict[str, set[str]] = {}
    writes: dict[str, set[str]] = {}
    for acl in acls:
        if acl.permission != "ALLOW":
            continue
        own = reads.setdefault(acl.principal, set()), writes.setdefault(acl.principal, set())
        if acl.resource == "TOPIC":
            name = f"{acl.name}*" if acl.pattern == "PREFIXED" else acl.name
            for names, operations in zip(own, (_READS, _WRITES), strict=True):
                if acl.operation in operations:
                    names.add(name)
    return {
        principal: PrincipalRights(tuple(sorted(reads[principal])), tuple(sorted(writes[principal])))
        for principal in sorted(reads)
    }


def _read_rights(scan: _ScanState, connection: Connection) -> SeenRights:
    acls = _ask(scan, "ACLs", admin_reads.read_acls, connection)
    if acls is None and not scan.not_seen:
        scan.not_seen.append("ACLs: the cluster has no authorizer")
    quotas = _ask(scan, "client quotas", admin_reads.read_quota_texts, connection) or {}
    return SeenRights(scan.ms, None if acls is None else list_principal_rights(acls), tuple(sorted(quotas)))


def _read_members(scan: _ScanState, connection: Connection, node: int) -> None:
    listed = _ask(scan, f"groups of broker {node}", admin_reads.read_group_names, connection) or []
    described = _ask(scan, f"members of the groups of broker {node}", describe_listed_groups, connection, listed) or []
    if hidden := len(listed) - len(described):
        scan.not_seen.append(
            f"members of {hidden} groups of broker {node}: they need DESCRIBE on the group, or the broker has no "
            "request for their type"
        )
    odd = tuple(sorted(each.id for each in described if any(member.has_odd_subscription for member in each.members)))
    if odd:
        scan.not_seen.append(
            f"topics of some members of {render_first_names(odd, 3)} at broker {node}: what they subscribe to "
            "is not written as Kafka's consumers write it"
        )
    for group in described:
        for sighting in _list_sightings(group, scan.ms):
            scan.collector.add(sighting)


def _list_sightings(group: GroupDescription, ms: int) -> Iterator[ClientSighting]:
    """A static member that has left is not there."""
    for member in group.members:
        if not member.away:
            yield ClientSighting(
                None,
                member.client,
                ms,
                GROUP_MEMBERS,
                host=member.host.removeprefix("/"),
                group=group.id,
                reads=tuple(sorted(member.topics)),
            )


def _list_led(metadata: ClusterMetadata, address: tuple[str, int]) -> list[tuple[str, int]]:
    """The partitions that this broker leads. Kafka's own topics tell of its coordinators, not of clients."""
    return [
        (topic.name, number)
        for topic in metadata.topics
        if not topic.name.startswith("__")
        for number, partition in enumerate(topic.partitions)
        if metadata.brokers.get(partition.node) == address
    ]


def _read_producers(
    scan: _ScanState, connection: Connection, led: list[tuple[str, int]], refused: dict[int, int]
) -> None:
    """The time of a producer's last record is by its own clock: one that is ahead counts as now."""
    for start in range(0, len(led), _PARTITIONS_A_REQUEST):
        some = tuple(led[start : start + _PARTITIONS_A_REQUEST])
        answers = _ask(scan, "producers", connection.describe_producers_of, some)
        for (topic, _), (code, states) in (answers or {}).items():
            if code:
                refused[code] += 1
            for state in states:
                if state.last_timestamp >= 0:
                    scan.collector.add_write(state.producer_id, topic, min(state.last_timestamp, scan.ms))


def _read_transactions(scan: _ScanState, connection: Connection, node: int) -> None:
    def read() -> dict[int, str]:
        answer = connection.ask(Api.LIST_TRANSACTIONS, state_filters=(), producer_id_filters=())
        connection.check(int(answer.error_code), "listing transactions")
        return {int(each.producer_id): str(each.transactional_id) for each in answer.transaction_states}

    for producer_id, name in (_ask(scan, f"transactional ids of broker {node}", read) or {}).items():
        scan.collector.name_producer(producer_id, name, scan.ms)


def _ask(scan: _ScanState, what: str, ask: Callable[..., _T], *about: Any) -> _T | None:
    """The answer; None, and a line in `not_seen`, where the cluster refuses or is too old."""
    try:
        return ask(*about)
    except _NOT_TOLD as error:
        line = f"{what}: {error}"
        if line not in scan.not_seen:
            scan.not_seen.append(line)
        return None
