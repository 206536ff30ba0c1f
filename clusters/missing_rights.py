"""Which of the rights that a role needs are missing, asked of the brokers with the credentials of this process.

Brokers tell a client its own rights on topics, groups and the cluster (KIP-430), and check a creation or a quota
without creating or setting it (`validate_only`). Nothing is written. A prefix is checked on the topics that exist
below it. Kafka before 2.3 does not tell rights: there only what it refuses is missing.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kio.static.primitive import f64, i8, i16, i32, i32Timedelta

from watershed.clusters.errors import RequestRefused
from watershed.clusters.pending_commits import TELLS_UNSTABLE
from watershed.clusters.required_role_acls import OFFSETS_TOPIC, AccountRole, RequiredRight, derive_required_rights
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.metadata_requests import NO_AUTO_CREATION, build_metadata_values
from watershed.clusters.wire.versions import Api
from watershed.topology.plan import Plan

_TRANSACTION, _GROUP = i8(1), i8(0)  # FindCoordinator key types
_BROKER = i8(4)  # org.apache.kafka.common.config.ConfigResource.Type
_REFUSED = frozenset(
    {
        error_codes.TOPIC_AUTHORIZATION_FAILED,
        error_codes.GROUP_AUTHORIZATION_FAILED,
        error_codes.CLUSTER_AUTHORIZATION_FAILED,
        error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# org.apache.kafka.common.acl.AclOperation: its code is its bit in "authorized operations"
_BITS = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
}
_NOT_TOLD = -(1 << 31)  # what Kafka answers where it does not tell operations; Kafka before 2.3 never does
_WITH_RIGHTS = 8  # the first Metadata that tells them (KIP-430)
_COORDINATOR_WAIT_S = 10.0
_BELOW_PREFIX = 20  # existing topics that are asked for one prefix
_NEVER_CREATED = "watershed-preflight"


@dataclass(frozen=True, slots=True)
class _MissingRight:
    """A right that the brokers say we do not have. `on` is the resource that was asked (a topic below a prefix)."""

    right: RequiredRight
    on: str

    def __str__(self) -> str:
        right = self.right
        what = "the cluster" if right.resource == "CLUSTER" else f"{right.resource.lower().replace('_', ' ')} {self.on}"
        return f"cluster {right.cluster}: {right.operation} on {what} is missing; it is needed to {right.why}"


def find_missing_rights(settings: ConnectionSettings, needed: Sequence[RequiredRight]) -> list[_MissingRight]:
    """What is missing of `needed` on one cluster, in order, without what is optional there. Raises ClusterError when
    the cluster cannot be asked, RequestRefused when a group's coordinator does not tell rights.

    A transactional id's WRITE is checked as DESCRIBE: no request tells more without opening a transaction.
    """
    with open_connection(settings) as connection:
        operations, node = _cluster(connection)
        asking = _Asking(settings, connection, _topics(connection), operations, node)
        wanted = [right for right in needed if not right.optional or _is_needed_here(right, connection)]
        return [_MissingRight(right, on) for right in wanted if (on := asking.lacking(right)) is not None]


def _is_needed_here(right: RequiredRight, connection: Connection) -> bool:
    """Whether this cluster is so old that an optional right is needed: brokers before Kafka 2.5 tell what is part of an
    open transaction by the log ends of `__consumer_offsets` only (decision 0084)."""
    return right.name == OFFSETS_TOPIC and not connection.knows(Api.OFFSET_FETCH, TELLS_UNSTABLE)


def find_missing_role_rights(plan: Plan, role: AccountRole, connect_to: SettingsLookup) -> list[_MissingRight]:
    """What the role lacks on all clusters of a plan. Raises ClusterError."""
    return find_missing_among(role, derive_required_rights(plan, role), connect_to)


def find_missing_among(
    role: AccountRole, needed: Sequence[RequiredRight], connect_to: SettingsLookup
) -> list[_MissingRight]:
    """What is missing of rights of a role on several clusters, asked with its account. Raises ClusterError."""
    found: list[_MissingRight] = []
    for alias in sorted({right.cluster for right in needed}):
        settings = connect_to(alias).aligning() if role == "align" else connect_to(alias)
        found += find_missing_rights(settings, [right for right in needed if right.cluster == alias])
    return found


@dataclass(frozen=True, slots=True)
class _Asking:
    """topics: name → authorized operations, of all that we may describe; cluster: operations on the cluster;
    node: the broker that is asked."""

    settings: ConnectionSettings
    connection: Connection
    topics: dict[str, int]
    cluster: int
    node: int

    def lacking(self, right: RequiredRight) -> str | None:
        """The resource on which the right is missing, None when it is there (or cannot be asked)."""
        if right.resource == "CLUSTER":
            return None if self._on_cluster(right.operation) else right.name
        if right.resource == "GROUP":
            return self._group(right)
        if right.resource == "TRANSACTIONAL_ID":
            key = right.name + ("0" if right.pattern == "PREFIXED" else "")
            return None if self._coordinator(key, _TRANSACTION) is not None else right.name
        if right.operation == "CREATE":
            return None if _has(self.cluster, "CREATE") or self._may_create(right) else right.name
        return self._topic(right)

    def _on_cluster(self, operation: str) -> bool:
        if operation == "DESCRIBE_CONFIGS":
            return self._may_read_broker_configs()
        if operation == "ALTER_CONFIGS":
            return self._may_alter_configs()
        return _has(self.cluster, operation)

    def _may_alter_configs(self) -> bool:
        """Tried without doing it (`validate_only`), for the same reason as `_may_read_broker_configs`. Kafka before 2.6
        sets no quotas on request; what it tells of the cluster counts, and nothing does where it tells nothing."""
        if not self.connection.knows(Api.ALTER_CLIENT_QUOTAS, 0):
            return not self.cluster or _has(self.cluster, "ALTER_CONFIGS")
        entry = {
            "entity": ({"entity_type": "user", "entity_name": _NEVER_CREATED},),
            "ops": ({"key": "producer_byte_rate", "value": f64(1.0), "remove": False},),
        }
        [answer] = self.connection.ask(Api.ALTER_CLIENT_QUOTAS, entries=(entry,), validate_only=True).entries
        return int(answer.error_code) not in _REFUSED

    def _may_read_broker_configs(self) -> bool:
        """Tried, because brokers tell the rights on the cluster only to those who may DESCRIBE it."""
        broker = {
            "resource_type": _BROKER,
            "resource_name": str(self.node),
            "configuration_keys": ("message.max.bytes",),
        }
        [answer] = self.connection.ask(
            Api.DESCRIBE_CONFIGS,
            resources=(broker,),
            include_synonyms=False,
            include_documentation=False,
        ).results
        return int(answer.error_code) not in _REFUSED

    def _topic(self, right: RequiredRight) -> str | None:
        if right.pattern == "LITERAL" and right.name != "*":
            if right.name in self.topics:
                return None if _has(self.topics[right.name], right.operation) else right.name
            return right.name if self._is_hidden(right.name) else None
        below = [name for name in sorted(self.topics) if right.name == "*" or name.startswith(right.name)]
        for name in below[:_BELOW_PREFIX]:
            if not _has(self.topics[name], right.operation):
                return name
        return None

    def _is_hidden(self, name: str) -> bool:
        """Whether the topic may be there and is not shown to us. Kafka hides whether such a topic exists."""
        values = build_metadata_values((name,))
        [topic] = self.connection.ask(Api.METADATA, lowest=NO_AUTO_CREATION, **values).topics
        return int(topic.error_code) == error_codes.TOPIC_AUTHORIZATION_FAILED

    def _may_create(self, right: RequiredRight) -> bool:
        prefixed = right.pattern == "PREFIXED" or right.name == "*"
        name = (right.name if right.name != "*" else "") + _NEVER_CREATED if prefixed else right.name
        topic = {
            "name": name,
            "num_partitions": i32(1),  # brokers know no "default" below version 4 (KIP-464)
            "replication_factor": i16(1),
            "assignments": (),
            "configs": (),
        }
        [answer] = self.connection.ask(
            Api.CREATE_TOPICS,
            topics=(topic,),
            timeout=i32Timedelta.parse(datetime.timedelta(seconds=15)),
            validate_only=True,
        ).topics
        return int(answer.error_code) not in _REFUSED

    def _group(self, right: RequiredRight) -> str | None:
        until = time.monotonic() + _COORDINATOR_WAIT_S
        while True:
            where = self._coordinator(right.name, _GROUP)
            if where is None:
                return right.name
            with Connection(self.settings, where) as coordinator:
                # 6 answers GROUP_ID_NOT_FOUND, and no rights, where there is no such group yet (KIP-1043).
                [group] = coordinator.ask(
                    Api.DESCRIBE_GROUPS, highest=5, groups=(right.name,), include_authorized_operations=True
                ).groups
            code = int(group.error_code)
            if code in _REFUSED:
                return right.name
            if code not in error_codes.COORDINATOR_MOVING_CODES:
                return None if _has(getattr(group, "authorized_operations", _NOT_TOLD), right.operation) else right.name
            if time.monotonic() > until:  # no rights stand in such an answer (Kafka 2.4), which says nothing of ours
                answered = error_codes.describe_error_code(code)
                raise RequestRefused(
                    f"cluster {right.cluster}: whether this account has {right.operation} on group {right.name} is not "
                    f"known: for {_COORDINATOR_WAIT_S:g} s its coordinator answered {answered}. Ask again when it has "
                    "loaded its groups",
                    alias=right.cluster,
                    group=right.name,
                )
            time.sleep(0.2)

    def _coordinator(self, key: str, kind: i8) -> tuple[str, int] | None:
        """Address of the coordinator; None when we may not know it. While it loads, the broker that was asked."""
        if self.connection.knows(Api.FIND_COORDINATOR, 4):
            [found] = self.connection.ask(
                Api.FIND_COORDINATOR, lowest=4, key_type=kind, coordinator_keys=(key,)
            ).coordinators
        else:
            found = self.connection.ask(Api.FIND_COORDINATOR, lowest=1, highest=3, key_type=kind, key=key)
        if int(found.error_code) in _REFUSED:
            return None
        return (
            (str(found.host), int(found.port)) if int(found.error_code) == error_codes.NONE else self.connection.address
        )


def _topics(connection: Connection) -> dict[str, int]:
    tells = connection.knows(Api.METADATA, _WITH_RIGHTS)
    answer = connection.ask(
        Api.METADATA,
        lowest=_WITH_RIGHTS if tells else NO_AUTO_CREATION,
        **build_metadata_values(None) | {"include_topic_authorized_operations": True},
    )
    return {
        str(topic.name): int(topic.topic_authorized_operations) if tells else _NOT_TOLD
        for topic in answer.topics
        if int(topic.error_code) not in _REFUSED
    }


def _cluster(connection: Connection) -> tuple[int, int]:
    """(authorized operations, id of the broker that was asked). Metadata tells the operations in its versions 8 to 10,
    DescribeCluster since Kafka 2.8 (KIP-700)."""
    if connection.knows(Api.DESCRIBE_CLUSTER, 0):
        answer = connection.ask(Api.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
    else:
        values = build_metadata_values(()) | {"include_cluster_authorized_operations": True}
        answer = connection.ask(Api.METADATA, lowest=NO_AUTO_CREATION, highest=10, **values)
    brokers = {(str(each.host), int(each.port)): each for each in answer.brokers}
    found = brokers.get(connection.address) or next(iter(brokers.values()))
    node = found.broker_id if hasattr(found, "broker_id") else found.node_id
    return int(getattr(answer, "cluster_authorized_operations", _NOT_TOLD)), int(node)


def _has(operations: int, operation: str) -> bool:
    """Whether the bit field has the operation. Kafka answers the smallest int where it does not tell: then it may."""
    return operations == _NOT_TOLD or bool(operations >> _BITS[operation] & 1)
