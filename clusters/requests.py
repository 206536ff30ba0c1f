"""One request each to a real cluster, over librdkafka's admin client: bounded waits, our errors, plain answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
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
from confluent_kafka.admin._config import ConfigResource, ConfigSource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from clusters import librdkafka
from clusters.errors import ClusterError
from clusters.librdkafka import UNKNOWN_TOPIC, Complaints
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from clusters.surface import Isolation, Topic

T = TypeVar("T")

# OffsetSpec is untyped and abstract on paper; its instances come from these two.
_SPECS: Any = OffsetSpec
_EARLIEST, _LATEST = _SPECS.earliest(), _SPECS.latest()

_LEADER_MOVES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
# A topic that was just created, or is being deleted, answers one of these for a moment.
SETTLING = UNKNOWN_TOPIC | _LEADER_MOVES | {KafkaError._NOENT}  # _NOENT: librdkafka's "No leaders found"
_COORDINATOR_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_PROPAGATION_S = 3.0  # within it, a broker that does not know a topic may simply not have heard of it yet


class AdminRequests:
    """Raises `ClusterError`s only. May be shared by threads; opens its connections at the first request."""

    def __init__(self, settings: ConnectionSettings, timeout: float) -> None:
        self.settings = settings
        self.timeout = timeout
        self._complaints = Complaints()
        self._client = AdminClient(settings.librdkafka({"error_cb": self._complaints}))
        self._bound: dict[str, Any] = {"request_timeout": timeout}

    def cluster(self) -> Any:
        """confluent-kafka's DescribeClusterResult: cluster_id, controller, nodes."""
        return self._run(
            lambda: librdkafka.result(self._client.describe_cluster(**self._bound), self.timeout),
            "describing the cluster",
        )

    def topic_names(self) -> list[str]:
        listed = self._run(lambda: self._client.list_topics(timeout=self.timeout), "listing topics")
        return sorted(listed.topics)

    def topics(self, names: list[str]) -> dict[str, Topic]:
        """Those of `names` that exist; a topic deleted meanwhile is left out."""
        if not names:
            return {}
        futures = self._run(
            lambda: self._client.describe_topics(TopicCollection(names), **self._bound), "describing topics"
        )
        found: dict[str, Topic] = {}
        for name, future in futures.items():
            try:
                answer = librdkafka.result(future, self.timeout)
            except KafkaException as error:
                if librdkafka.reason(error).code() in SETTLING:
                    continue
                raise self._error(error, f"describing topic {name}", topic=name) from None
            replicas = len(answer.partitions[0].replicas) if answer.partitions else 0
            found[name] = Topic(name, _uuid(answer.topic_id), len(answer.partitions), replicas)
        return found

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
        try:
            futures = self._client.create_topics([new], operation_timeout=self.timeout, **self._bound)
            librdkafka.result(futures[name], self.timeout)
        except KafkaException as error:
            if librdkafka.reason(error).code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._error(error, f"creating topic {name}") from None
        return True

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in dict.fromkeys(names)]
        return self._configs(resources, only_source=ConfigSource.DYNAMIC_TOPIC_CONFIG) if resources else {}

    def broker_configs(self, node: int) -> dict[str, str]:
        return self._configs([ConfigResource(ConfigResource.Type.BROKER, str(node))])[str(node)]

    def offsets(
        self, asked: Iterable[TopicPartition], *, latest: bool, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Log starts, or log ends (last stable offsets with read_committed), from the partitions' leaders.

        Repeats while leaders move, as they do when a broker restarts.
        """
        request = {WirePartition(*key): _LATEST if latest else _EARLIEST for key in asked}
        committed = isolation == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        deadline = time.monotonic() + self.timeout
        found: dict[TopicPartition, int] = {}
        while request:
            futures = self._run(
                lambda: self._client.list_offsets(request, isolation_level=level, **self._bound), "listing offsets"
            )
            for key, future in futures.items():
                try:
                    found[TopicPartition(key.topic, key.partition)] = librdkafka.result(future, self.timeout).offset
                    del request[key]
                except KafkaException as error:
                    self._check_leaders(error, key, request, time.monotonic() < deadline)
            if request:
                time.sleep(0.1)
        return found

    def group(self, group_id: str) -> Any:
        """confluent-kafka's ConsumerGroupDescription; None for a group the cluster does not know."""

        def describe() -> Any:
            try:
                future = self._client.describe_consumer_groups([group_id], **self._bound)[group_id]
                return librdkafka.result(future, self.timeout)
            except KafkaException as error:
                if librdkafka.reason(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                raise

        return self._coordinated(describe, "describing", group_id)

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Committed offsets; waits out offsets that are part of a running transaction (KIP-447)."""
        request = [ConsumerGroupTopicPartitions(group_id)]

        def fetch() -> Any:
            futures = self._client.list_consumer_group_offsets(request, require_stable=True, **self._bound)
            return librdkafka.result(futures[group_id], self.timeout)

        return {
            TopicPartition(entry.topic, entry.partition): entry.offset
            for entry in self._coordinated(fetch, "reading offsets of", group_id).topic_partitions
            if not entry.error and entry.offset >= 0
        }

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """No leader epoch goes along: one of another cluster makes the Java consumer read nothing (design 02)."""
        wanted = [WirePartition(key.topic, key.partition, offset) for key, offset in sorted(offsets.items())]
        request = [ConsumerGroupTopicPartitions(group_id, wanted)]

        def alter() -> None:
            futures = self._client.alter_consumer_group_offsets(request, **self._bound)
            for entry in librdkafka.result(futures[group_id], self.timeout).topic_partitions:
                if entry.error:
                    raise KafkaException(entry.error, entry.topic, entry.partition)

        self._coordinated(alter, "committing offsets of", group_id)

    def close(self) -> None:
        """librdkafka closes its connections when the client is no longer referenced."""
        self._client.poll(0)

    def _configs(
        self, resources: list[ConfigResource], only_source: ConfigSource | None = None
    ) -> dict[str, dict[str, str]]:
        doing = "reading configs of " + ", ".join(resource.name for resource in resources[:3])
        futures = self._run(lambda: self._client.describe_configs(resources, **self._bound), doing)
        answers: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            try:
                entries = librdkafka.result(future, self.timeout)
            except KafkaException as error:
                raise self._error(error, doing, topic=resource.name) from None
            answers[resource.name] = {
                key: str(entry.value)
                for key, entry in sorted(entries.items())
                if entry.value is not None and (only_source is None or entry.source == only_source.value)
            }
        return answers

    def _check_leaders(
        self, error: KafkaException, key: WirePartition, asked: Iterable[WirePartition], in_time: bool
    ) -> None:
        """Return when asking again may help; otherwise raise what stands in the way."""
        code, topic, partition = librdkafka.reason(error).code(), key.topic, key.partition
        if code == KafkaError._NOENT:  # of one partition, told of all: which topic is missing, if any?
            missing = [other for other in asked if other.topic not in self.topics([other.topic])]
            if missing:
                error = KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
                topic, partition = missing[0].topic, missing[0].partition
            elif in_time:
                return
        elif code in _LEADER_MOVES and in_time:
            return
        raise self._error(error, "listing offsets", topic=topic, partition=partition) from None

    def _coordinated(self, call: Callable[[], T], doing: str, group_id: str) -> T:
        """Ask a group's coordinator; repeats while it loads or moves, as it does after a broker's start."""
        began = time.monotonic()
        while True:
            try:
                return call()
            except (KafkaException, ValueError, TypeError) as error:
                code, waited = librdkafka.reason(error).code(), time.monotonic() - began
                moving = code in _COORDINATOR_MOVES and waited < self.timeout
                spreading = code in UNKNOWN_TOPIC and waited < _PROPAGATION_S
                if not moving and not spreading:
                    where = dict(zip(("topic", "partition"), error.args[1:], strict=False))
                    raise self._error(error, f"{doing} group {group_id}", group=group_id, **where) from None
            time.sleep(0.1)

    def _run(self, call: Callable[[], T], doing: str) -> T:
        try:
            return call()
        except (KafkaException, ValueError, TypeError) as error:
            raise self._error(error, doing) from None

    def _error(self, error: Exception, doing: str, **where: Any) -> ClusterError:
        self._client.poll(0)  # delivers the error callback, which knows why
        reason = librdkafka.reason(error)
        return librdkafka.cluster_error(self.settings, reason, self._complaints, doing=doing, **where)


def _uuid(value: Any) -> uuid.UUID:
    """From confluent-kafka's Uuid, whose halves are signed."""
    mask = (1 << 64) - 1
    high, low = value.get_most_significant_bits() & mask, value.get_least_significant_bits() & mask
    return uuid.UUID(int=high << 64 | low)
