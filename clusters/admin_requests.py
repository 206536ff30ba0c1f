"""One request each to a real cluster, over librdkafka's admin client: bounded waits, our errors, plain answers."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from watershed.clusters import librdkafka
from watershed.clusters.cluster_protocol import ReadIsolation, TopicDescription, TopicShape
from watershed.clusters.librdkafka import UNKNOWN_TOPIC_CODES, LibrdkafkaErrors
from watershed.clusters.secret_rotation import SecretRotation
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.topic_names import build_stand_in_id

_T = TypeVar("_T")

# OffsetSpec is untyped and abstract on paper; its instances come from these two.
_SPECS: Any = OffsetSpec
_SET, _DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
_EARLIEST, _LATEST = _SPECS.earliest(), _SPECS.latest()

# Answers of a cluster whose leaders, coordinators or connections are on the move: ask again.
_TRANSIENT = {
    KafkaError._TRANSPORT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_LEADER_MOVED = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION}
LEADER_MOVING_CODES = _LEADER_MOVED | {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE}
_LEADER_S = 4.0  # for a leader to answer, before the leaders are looked up again
_PROPAGATION_S = 3.0  # within it, a broker that does not know a topic may not have heard of it yet

# DescribeGroups' words for what listings do not tell before Kafka 2.6 (KIP-518); AwaitingSync is an older word of 1.0
_DESCRIBED_STATES = {
    "Empty": "EMPTY",
    "Dead": "DEAD",
    "Stable": "STABLE",
    "PreparingRebalance": "PREPARING_REBALANCING",
    "CompletingRebalance": "COMPLETING_REBALANCING",
    "AwaitingSync": "COMPLETING_REBALANCING",
}

RequestBound = dict[str, Any]  # {"request_timeout": seconds left}


class AdminRequests:
    """Raises `ClusterError`s only. May be shared by threads; opens its connections at the first request.

    Every request may be repeated without harm, and is, for up to `timeout` seconds while the cluster moves.
    """

    def __init__(self, settings: ConnectionSettings, timeout: float) -> None:
        self.settings = settings
        self.timeout = timeout
        self._complaints = LibrdkafkaErrors()
        self._rotation = SecretRotation(settings)
        self._client = self._made()

    def _made(self) -> AdminClient:
        return AdminClient(self.settings.librdkafka({"error_cb": self._complaints}))

    def cluster(self) -> Any:
        """confluent-kafka's DescribeClusterResult: cluster_id, controller, nodes."""
        return self._ask(lambda bound: _result(self._client.describe_cluster(**bound), bound), "describing the cluster")

    def topic_names(self) -> list[str]:
        """Returns the names of all topics that this user may see, sorted."""
        listed = self._ask(lambda bound: self._client.list_topics(timeout=bound["request_timeout"]), "listing topics")
        return sorted(listed.topics)

    def shapes(self) -> dict[str, TopicShape]:
        """One Metadata request for all topics, which never creates one. A topic without partitions is left out."""
        listed = self._ask(lambda bound: self._client.list_topics(timeout=bound["request_timeout"]), "listing topics")
        return {
            name: TopicShape(len(topic.partitions), len(next(iter(topic.partitions.values())).replicas))
            for name, topic in sorted(listed.topics.items())
            if topic.partitions
        }

    def topics(self, names: list[str]) -> dict[str, TopicDescription]:
        """Those of `names` that exist; a topic deleted meanwhile is left out. One without an id gets a stand-in id."""

        def describe(bound: RequestBound) -> dict[str, TopicDescription]:
            found: dict[str, TopicDescription] = {}
            for name, future in self._client.describe_topics(TopicCollection(names), **bound).items():
                try:
                    answer = _result(future, bound)
                except KafkaException as error:
                    if librdkafka.extract_kafka_error(error).code() in UNKNOWN_TOPIC_CODES:
                        continue
                    raise KafkaException(librdkafka.extract_kafka_error(error), name) from None
                replicas = len(answer.partitions[0].replicas) if answer.partitions else 0
                found[name] = TopicDescription(name, _uuid(answer.topic_id), len(answer.partitions), replicas)
            return found

        found = self._ask(describe, "describing topics") if names else {}
        if all(topic.topic_id.int for topic in found.values()):
            return found
        cluster_id = str(self.cluster().cluster_id)
        return {
            name: topic if topic.topic_id.int else replace(topic, topic_id=build_stand_in_id(cluster_id, name))
            for name, topic in found.items()
        }

    def create_topic(
        self, name: str, partitions: int, replication_factor: int | None, configs: Mapping[str, str]
    ) -> bool:
        """Whether it was created; False when a topic of that name exists."""
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=dict(configs),
        )

        def create(bound: RequestBound) -> bool:
            try:
                futures = self._client.create_topics([new], operation_timeout=bound["request_timeout"], **bound)
                _result(futures[name], bound)
            except KafkaException as error:
                if librdkafka.extract_kafka_error(error).code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                raise
            return True

        return self._ask(create, f"creating topic {name}")

    def create_partitions(self, name: str, total: int) -> bool:
        """Whether partitions were added; False when the topic has as many or more."""

        def create(bound: RequestBound) -> bool:
            try:
                new = NewPartitions(name, new_total_count=total)
                futures = self._client.create_partitions([new], operation_timeout=bound["request_timeout"], **bound)
                _result(futures[name], bound)
            except KafkaException as error:
                if librdkafka.extract_kafka_error(error).code() == KafkaError.INVALID_PARTITIONS:
                    return False
                raise KafkaException(librdkafka.extract_kafka_error(error), name) from None
            return True

        return self._ask(create, f"giving topic {name} {total} partitions")

    def alter_topic_configs(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Sets (or with None removes) single settings by IncrementalAlterConfigs. Raises `TopicMissing`."""
        entries = [
            ConfigEntry(key, value, incremental_operation=_DELETE if value is None else _SET)
            for key, value in sorted(configs.items())
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)

        def alter(bound: RequestBound) -> None:
            try:
                _result(self._client.incremental_alter_configs([resource], **bound)[resource], bound)
            except KafkaException as error:
                raise KafkaException(librdkafka.extract_kafka_error(error), name) from None

        self._ask(alter, f"setting {', '.join(sorted(configs))} of topic {name}", spreading=True)

    def effective_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns all settings in force for each topic, inherited ones too, by DescribeConfigs."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in dict.fromkeys(names)]
        return self._configs(resources) if resources else {}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns only the settings that each topic has of its own, by DescribeConfigs."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in dict.fromkeys(names)]
        return self._configs(resources, only_own=True) if resources else {}

    def broker_configs(self, node: int) -> dict[str, str]:
        """Returns all settings in force on one broker."""
        return self._configs([ConfigResource(ConfigResource.Type.BROKER, str(node))])[str(node)]

    def offsets(
        self, asked: Iterable[TopicPartition], *, latest: bool, isolation: ReadIsolation
    ) -> dict[TopicPartition, int]:
        """Log starts, or log ends (last stable offsets with read_committed), from the partitions' leaders.

        librdkafka 2.16 keeps asking a leader that is dead, and then answers -1001 without an error, or asks with the
        epoch of a leader before; and it never hears of a partition that was added after its first question. It has to
        be told to learn the leaders anew.
        """
        request = {WirePartition(*key): _LATEST if latest else _EARLIEST for key in asked}
        committed = isolation == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def list_offsets(bound: RequestBound) -> dict[TopicPartition, int]:
            found = {}
            bound = {"request_timeout": min(bound["request_timeout"], _LEADER_S)}
            for key, future in self._client.list_offsets(request, isolation_level=level, **bound).items():
                try:
                    offset = _result(future, bound).offset
                except KafkaException as error:
                    if librdkafka.extract_kafka_error(error).code() in _LEADER_MOVED | UNKNOWN_TOPIC_CODES:
                        self._client.list_topics(key.topic, timeout=bound["request_timeout"])
                    raise self._leader_error(librdkafka.extract_kafka_error(error), key, request) from None
                if offset < 0:
                    self._client.list_topics(key.topic, timeout=bound["request_timeout"])
                    moving = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
                    raise KafkaException(moving, key.topic, key.partition)
                found[TopicPartition(key.topic, key.partition)] = offset
            return found

        return self._ask(list_offsets, "listing offsets") if request else {}

    def group(self, group_id: str) -> tuple[str, bool, int] | None:
        """(state as librdkafka names it, whether it never had members, members); None for an unknown group.

        Not by describe_consumer_groups: librdkafka 2.16 aborts the whole process (assertion `eonce->refcnt > 0` in
        rdkafka_queue.h) when the coordinator's connection is lost at the wrong moment; seen at broker restarts.
        """

        def find(bound: RequestBound) -> tuple[str, bool, int] | None:
            listed = _result(self._client.list_consumer_groups(**bound), bound)
            if listed.errors:
                raise KafkaException(listed.errors[0])
            found = next((group for group in listed.valid if group.group_id == group_id), None)
            if found is None:
                return None
            if found.state.name == "EMPTY":
                return "EMPTY", bool(found.is_simple_consumer_group), 0
            known = self._client.list_groups(group_id, timeout=bound["request_timeout"])
            members = sum(len(group.members) for group in known)
            if found.state.name != "UNKNOWN":
                return found.state.name, False, max(1, members)
            state = _DESCRIBED_STATES.get(str(known[0].state), "UNKNOWN") if known else "DEAD"
            return state, state == "EMPTY" and bool(found.is_simple_consumer_group), members

        return self._ask(find, f"looking for group {group_id}", group=group_id)

    def group_assignment(self, group_id: str) -> dict[str, list[TopicPartition]] | None:
        """Client ids of the members of a consumer group, and what each was given; None while it rebalances."""

        def find(bound: RequestBound) -> dict[str, list[TopicPartition]] | None:
            known: Any = self._client.list_groups(group_id, timeout=bound["request_timeout"])
            for group in known:
                if group.error is not None and group.error.code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise KafkaException(group.error)
            if any("Rebalance" in str(group.state) for group in known):  # Preparing…, Completing…
                return None
            return {
                member.client_id: _assigned(member.assignment)
                for group in known
                if group.state == "Stable"
                for member in group.members
            }

        return self._ask(find, f"looking at the members of group {group_id}", group=group_id)

    def group_offsets(self, group_id: str, *, stable: bool = True) -> dict[TopicPartition, int]:
        """Committed offsets; stable: wait out offsets that are part of a running transaction (KIP-447)."""
        request = [ConsumerGroupTopicPartitions(group_id)]

        def fetch(bound: RequestBound) -> Any:
            futures = self._client.list_consumer_group_offsets(request, require_stable=stable, **bound)
            return _result(futures[group_id], bound)

        return {
            TopicPartition(entry.topic, entry.partition): entry.offset
            for entry in self._ask(fetch, f"reading offsets of group {group_id}", group=group_id).topic_partitions
            if not entry.error and entry.offset >= 0
        }

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """No leader epoch goes along: one of another cluster makes the Java consumer read nothing."""
        wanted = [WirePartition(key.topic, key.partition, offset) for key, offset in sorted(offsets.items())]
        request = [ConsumerGroupTopicPartitions(group_id, wanted)]

        def alter(bound: RequestBound) -> None:
            futures = self._client.alter_consumer_group_offsets(request, **bound)
            for entry in _result(futures[group_id], bound).topic_partitions:
                if entry.error:
                    raise KafkaException(entry.error, entry.topic, entry.partition)

        self._ask(alter, f"committing offsets of group {group_id}", group=group_id, spreading=True)

    def close(self) -> None:
        """librdkafka closes its connections when the client is no longer referenced."""
        self._client.poll(0)

    def _configs(self, resources: list[ConfigResource], *, only_own: bool = False) -> dict[str, dict[str, str]]:
        def describe(bound: RequestBound) -> dict[str, dict[str, str]]:
            answers: dict[str, dict[str, str]] = {}
            for resource, future in self._client.describe_configs(resources, **bound).items():
                try:
                    entries = _result(future, bound)
                except KafkaException as error:
                    raise KafkaException(librdkafka.extract_kafka_error(error), resource.name) from None
                answers[resource.name] = {
                    key: str(entry.value)
                    for key, entry in sorted(entries.items())
                    if entry.value is not None and (not only_own or is_own_topic_config(entry))
                }
            return answers

        # Any broker may be asked, also one that has not heard of a topic that was created just now.
        doing = "reading configs of " + ", ".join(resource.name for resource in resources[:3])
        return self._ask(describe, doing, spreading=True)

    def _leader_error(self, error: KafkaError, key: WirePartition, asked: Iterable[WirePartition]) -> KafkaException:
        """librdkafka says "no leaders" of every partition when one has none: a missing topic, or a moving leader?"""
        if error.code() != KafkaError._NOENT:
            return KafkaException(error, key.topic, key.partition)
        for other in asked:
            if other.topic not in self.topics([other.topic]):
                return KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC), other.topic, other.partition)
        return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), key.topic, key.partition)

    def _ask(
        self, call: Callable[[RequestBound], _T], doing: str, *, group: str | None = None, spreading: bool = False
    ) -> _T:
        """Call until it succeeds, fails for good, or the time is up. Exceptions carry (error, topic, partition).

        spreading: an unknown topic may be one that was just created.
        """
        began = time.monotonic()
        while True:
            left = self.timeout - (time.monotonic() - began)
            if self._rotation.spent(self._client):
                renewed = self._rotation.replace_client(self._made)
                if renewed is not None:
                    self._rotation, self._client = renewed
            try:
                return call({"request_timeout": max(left, 0.5)})
            except (KafkaException, ValueError, TypeError) as error:
                code, waited = librdkafka.extract_kafka_error(error).code(), time.monotonic() - began
                again = waited < self.timeout if code in _TRANSIENT else False
                again = again or (spreading and code in UNKNOWN_TOPIC_CODES and waited < _PROPAGATION_S)
                if not again:
                    self._client.poll(0)  # delivers the error callback, which knows why
                    where = dict(zip(("topic", "partition"), error.args[1:], strict=False))
                    raise librdkafka.build_cluster_error(
                        self.settings,
                        librdkafka.extract_kafka_error(error),
                        self._complaints,
                        doing=doing,
                        group=group,
                        **where,
                    ) from None
            time.sleep(0.1)


def is_own_topic_config(entry: Any) -> bool:
    """Whether a topic's config, as librdkafka tells it, is set on the topic itself. Kafka before 1.1 does not tell
    where a value comes from, only whether it is the default (KIP-226)."""
    if entry.source == ConfigSource.UNKNOWN_CONFIG.value:
        return not entry.is_default
    return bool(entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def _result(future: Any, bound: RequestBound) -> Any:
    return librdkafka.wait_for_result(future, bound["request_timeout"] + 1.0)


def _assigned(assignment: bytes) -> list[TopicPartition]:
    """The consumer protocol's assignment (ConsumerProtocolAssignment.json): version, topics with their partitions."""
    found: list[TopicPartition] = []
    if len(assignment) < 6:
        return found
    (topics,), at = struct.unpack_from(">i", assignment, 2), 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", assignment, at)
        name = assignment[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = struct.unpack_from(">i", assignment, at)
        found += [TopicPartition(name, number) for number in struct.unpack_from(f">{count}i", assignment, at + 4)]
        at += 4 + 4 * count
    return found


def _uuid(value: Any) -> uuid.UUID:
    """From confluent-kafka's Uuid, whose halves are signed."""
    mask = (1 << 64) - 1
    high, low = value.get_most_significant_bits() & mask, value.get_least_significant_bits() & mask
    return uuid.UUID(int=high << 64 | low)
