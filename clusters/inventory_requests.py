"""What a scan asks about topics, groups and rights over librdkafka: many things in one request, nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from watershed.clusters import librdkafka
from watershed.clusters.admin_requests import AdminRequests, RequestBound, _result, _uuid, is_own_topic_config
from watershed.clusters.errors import RequestRefused, TopicMissing, Unauthorised
from watershed.clusters.group_listing import GroupListing
from watershed.clusters.librdkafka import UNKNOWN_TOPIC_CODES
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.topic_names import print_topic_id
from watershed.topology.inventory import InventoryAcl, InventoryBroker

_T = TypeVar("_T")

_SPECS: Any = OffsetSpec  # untyped; its one instance for this comes from here
_FILTER: Any = AclBindingFilter  # None means any, which its signature does not say
_NEWEST = _SPECS.max_timestamp()
_STATES = {"PREPARING_REBALANCING": "PreparingRebalance", "COMPLETING_REBALANCING": "CompletingRebalance"}
_TYPES = {"CONSUMER": "consumer"}  # brokers before 3.8 name no type: they know classic groups only
_TOPICS_A_REQUEST = 500
_PARTITIONS_A_REQUEST = 5_000
_GROUPS_AT_ONCE = 8
_LEFT_OUT = UNKNOWN_TOPIC_CODES | {KafkaError.TOPIC_AUTHORIZATION_FAILED}


@dataclass(frozen=True, slots=True)
class ScannedTopic:
    """A topic's shape. id as Kafka prints it; leaders[partition] is a broker id, None without one at the moment.
    replicas: the broker ids of a partition's replicas, sorted, each combination once."""

    id: str | None
    internal: bool
    replication_factor: int
    leaders: tuple[int | None, ...]
    replicas: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ScannedConfigs:
    """effective: key → value in force (sensitive values are not there); overridden: keys set on the topic itself."""

    effective: Mapping[str, str]
    overridden: tuple[str, ...]


class ScanRequests(AdminRequests):
    """Reads only. Raises `ClusterError`s; what concerns a single topic or group that went away meanwhile, or is not
    shown to this user, is left out of the answer instead."""

    def __init__(self, settings: ConnectionSettings, timeout: float) -> None:
        super().__init__(settings, timeout)
        self._shared: dict[tuple[tuple[str, str, bool], ...], ScannedConfigs] = {}

    def brokers(self) -> tuple[str, dict[InventoryBroker, int]]:
        """The cluster's id, and its brokers, lowest id first, with their port."""
        found = self.cluster()
        nodes = sorted(found.nodes, key=lambda node: int(node.id))
        return str(found.cluster_id), {
            InventoryBroker(node.id, node.host, node.rack or None): node.port for node in nodes
        }

    def described(self, names: list[str]) -> dict[str, ScannedTopic]:
        """Returns the topics by name, asked in batches of 500; a topic deleted meanwhile is left out."""
        found: dict[str, ScannedTopic] = {}
        for some in split_items(names, _TOPICS_A_REQUEST):
            found |= self._each(
                partial(self._client.describe_topics, TopicCollection(some)),
                "describing topics",
            )
        return {name: _described(topic) for name, topic in sorted(found.items())}

    def read_topic_configs(self, names: list[str]) -> dict[str, ScannedConfigs]:
        """Topics with the same configs share one answer."""
        found: dict[str, ScannedConfigs] = {}
        for some in split_items(names, _TOPICS_A_REQUEST):
            resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in some]
            answers = self._each(
                partial(self._client.describe_configs, resources),
                "reading topic configs",
            )
            found |= {resource.name: self._configured(entries) for resource, entries in answers.items()}
        return found

    def ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks. A topic that is deleted meanwhile is left out."""
        found: dict[TopicPartition, int] = {}
        for some in split_items(partitions, _PARTITIONS_A_REQUEST):
            asked = list(some)
            while asked:
                try:
                    found |= self.offsets(asked, latest=True, isolation="read_uncommitted")
                    break
                except TopicMissing as error:
                    asked = [each for each in asked if each.topic != error.topic]
        return found

    def newest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The largest timestamp in each partition that has records, ms (KIP-734: Kafka 3.0)."""
        found: dict[TopicPartition, int] = {}
        for some in split_items(partitions, _PARTITIONS_A_REQUEST):
            request = {WirePartition(*key): _NEWEST for key in some}
            answers = self._each(
                partial(self._client.list_offsets, request),
                "asking for the newest records",
            )
            for key, answer in answers.items():
                if answer.timestamp >= 0:
                    found[TopicPartition(key.topic, key.partition)] = answer.timestamp
        return found

    def list_groups(self) -> list[GroupListing]:
        """Consumer groups without their members: see `AdminRequests.group` for why they are not described here."""

        def find(bound: RequestBound) -> list[GroupListing]:
            listed = _result(self._client.list_consumer_groups(**bound), bound)
            if listed.errors:
                raise KafkaException(listed.errors[0])
            return [
                GroupListing(
                    group.group_id,
                    _STATES.get(group.state.name) or group.state.name.title(),
                    _TYPES.get(group.type.name, "classic"),
                )
                for group in listed.valid
            ]

        return self._ask(find, "listing groups")

    def committed(self, group_ids: list[str]) -> tuple[dict[str, dict[TopicPartition, int]], list[str]]:
        """Committed offsets by group, and the groups that this user may not look into."""
        found: dict[str, dict[TopicPartition, int]] = {}
        refused: list[str] = []

        def read(group_id: str) -> tuple[str, dict[TopicPartition, int] | None]:
            try:
                return group_id, self.group_offsets(group_id, stable=False)
            except (Unauthorised, RequestRefused):
                return group_id, None

        with ThreadPoolExecutor(_GROUPS_AT_ONCE) as pool:
            for group_id, offsets in pool.map(read, group_ids):
                if offsets is None:
                    refused.append(group_id)
                else:
                    found[group_id] = offsets
        return found, refused

    def acls(self) -> tuple[InventoryAcl, ...]:
        """All bindings, sorted. None at all may also mean that the cluster has no authorizer, or refuses to tell."""
        everything = _FILTER(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        found = self._ask(lambda bound: _result(self._client.describe_acls(everything, **bound), bound), "reading ACLs")
        return tuple(sorted(map(_acl, found), key=astuple))

    def _each(self, call: Callable[..., Mapping[Any, Any]], doing: str) -> dict[Any, Any]:
        """The answers of a request about many things, without those that are gone or not shown to this user."""

        def ask(bound: RequestBound) -> dict[Any, Any]:
            found = {}
            for key, future in call(**bound).items():
                try:
                    found[key] = _result(future, bound)
                except KafkaException as error:
                    if librdkafka.extract_kafka_error(error).code() not in _LEFT_OUT:
                        raise
            return found

        return self._ask(ask, doing)

    def _configured(self, entries: Mapping[str, Any]) -> ScannedConfigs:
        known = tuple(
            (key, str(each.value), is_own_topic_config(each))
            for key, each in sorted(entries.items())
            if each.value is not None
        )
        if known not in self._shared:
            overridden = tuple(key for key, _, own in known if own)
            self._shared[known] = ScannedConfigs({key: value for key, value, _ in known}, overridden)
        return self._shared[known]


def split_items(items: list[_T], size: int) -> Iterator[list[_T]]:
    """Yields the items in lists of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _described(topic: Any) -> ScannedTopic:
    identity = _uuid(topic.topic_id)
    led = {
        part.id: part.leader.id if part.leader is not None and part.leader.id >= 0 else None
        for part in topic.partitions
    }
    return ScannedTopic(
        id=print_topic_id(identity) if identity.int else None,
        internal=bool(topic.is_internal),
        replication_factor=len(topic.partitions[0].replicas) if topic.partitions else 0,
        leaders=tuple(led[number] for number in sorted(led)),
        replicas=tuple(sorted({tuple(sorted(node.id for node in part.replicas)) for part in topic.partitions})),
    )


def _acl(binding: Any) -> InventoryAcl:
    """In the words of `kafka-acls`; librdkafka calls a cluster a broker."""
    return InventoryAcl(
        principal=binding.principal,
        operation=binding.operation.name,
        permission=binding.permission_type.name,
        resource="CLUSTER" if binding.restype.name == "BROKER" else binding.restype.name,
        name=binding.name,
        pattern=binding.resource_pattern_type.name,
        host=binding.host,
    )
