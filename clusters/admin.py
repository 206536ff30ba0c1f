"""Administration of one real cluster, over librdkafka's admin client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    Uuid,
)
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, OffsetSpec

from clusters import librdkafka
from clusters.errors import ClusterError, RequestRefused, TopicExists, TopicMissing, WrongCluster
from clusters.librdkafka import UNKNOWN_TOPIC, Complaints
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from clusters.surface import Group, Isolation, LogRange, Topic

__all__ = ["Admin", "Group", "LogRange", "Topic"]

T = TypeVar("T")

# librdkafka names states as Python enums do; the rest of Watershed uses Kafka's own spelling.
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
_SETTLING = UNKNOWN_TOPIC | {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
}


class Admin:
    """See `clusters.surface.Administration` for what each method promises. `timeout` bounds every call, in seconds.

    May be shared by threads. Opens its connections at the first call.
    """

    def __init__(self, settings: ConnectionSettings, *, timeout: float = 15.0) -> None:
        self.settings = settings
        self.timeout = timeout
        self._complaints = Complaints()
        self._client = AdminClient(settings.librdkafka({"error_cb": self._complaints}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """librdkafka closes its connections when the client is no longer referenced."""
        self._client.poll(0)

    def cluster_id(self) -> str:
        return str(self._describe().cluster_id)

    def check_identity(self) -> None:
        pinned = self.settings.cluster_id
        if pinned is None:
            return
        actual = self.cluster_id()
        if actual != pinned:
            raise WrongCluster(
                f"the brokers at {', '.join(self.settings.bootstrap)} belong to cluster {actual}, "
                f"but clusters.{self.settings.alias}.cluster_id pins {pinned}. "
                "Correct the addresses, or the pinned id if the cluster was really replaced.",
                alias=self.settings.alias,
            )

    def brokers(self) -> int:
        return len(self._describe().nodes)

    def topics(self) -> dict[str, Topic]:
        listed = self._run(lambda: self._client.list_topics(timeout=self.timeout), "listing topics")
        return self._described(sorted(listed.topics))

    def topic(self, name: str) -> Topic | None:
        return self._described([name]).get(name)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in dict.fromkeys(names)]
        answers = self._configs(resources, "reading topic configs") if resources else {}
        return {
            name: {
                key: str(entry.value)
                for key, entry in sorted(entries.items())
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and entry.value is not None
            }
            for name, entries in answers.items()
        }

    def broker_config(self, key: str) -> str | None:
        node = str(self._describe().nodes[0].id)
        entries = self._configs(
            [ConfigResource(ConfigResource.Type.BROKER, node)], "reading a broker config"
        )[node]
        entry = entries.get(key)
        return None if entry is None or entry.value is None else str(entry.value)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        doing = f"creating topic {name}"
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=dict(configs or {}),
        )
        try:
            futures = self._client.create_topics(
                [new], request_timeout=self.timeout, operation_timeout=self.timeout
            )
            librdkafka.result(futures[name], self.timeout)
        except KafkaException as error:
            if librdkafka.reason(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._error(error, doing) from None
        topic = self._settled(name, doing)
        if topic.partitions != partitions:
            raise TopicExists(
                f"topic {name} exists on cluster {self.settings.alias} with {topic.partitions} partitions, "
                f"{partitions} were asked for. Nothing was changed: choose another name or the same partition count.",
                alias=self.settings.alias,
                topic=name,
            )
        return topic

    def offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_committed"
    ) -> dict[TopicPartition, LogRange]:
        asked = sorted(set(partitions))
        starts = self._list_offsets(asked, OffsetSpec.earliest(), "read_uncommitted")
        ends = self._list_offsets(asked, OffsetSpec.latest(), isolation)
        return {key: LogRange(starts[key], ends[key]) for key in asked}

    def group(self, group_id: str) -> Group:
        doing = f"describing group {group_id}"
        try:
            future = self._client.describe_consumer_groups([group_id], request_timeout=self.timeout)[group_id]
            found = librdkafka.result(future, self.timeout)
        except KafkaException as error:
            if librdkafka.reason(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return Group(group_id, "Dead", "", 0)
            raise self._error(error, doing, group=group_id) from None
        state = _STATES.get(found.state.name) or found.state.name.title().replace("_", "")
        if state == "Dead":
            return Group(group_id, "Dead", "", 0)
        protocol_type = "" if found.is_simple_consumer_group else "consumer"
        return Group(group_id, state, protocol_type, len(found.members), self._group_offsets(group_id))

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets:
            return
        doing = f"committing offsets of group {group_id}"
        before = self.group(group_id)
        if before.members:
            raise librdkafka.group_not_empty(self.settings.alias, group_id)
        # No leader epoch: one of another cluster makes the Java consumer read nothing, silently (design 02).
        wanted = [WirePartition(key.topic, key.partition, offset) for key, offset in sorted(offsets.items())]
        request = [ConsumerGroupTopicPartitions(group_id, wanted)]
        answer = self._run(
            lambda: librdkafka.result(
                self._client.alter_consumer_group_offsets(request, request_timeout=self.timeout)[group_id],
                self.timeout,
            ),
            doing,
            group=group_id,
        )
        for entry in answer.topic_partitions:
            if entry.error:
                raise self._error(
                    KafkaException(entry.error),
                    doing,
                    topic=entry.topic,
                    partition=entry.partition,
                    group=group_id,
                )
        stored = self._group_offsets(group_id)
        for key, offset in offsets.items():
            if stored.get(key) != offset:
                raise RequestRefused(
                    f"group {group_id} on cluster {self.settings.alias}: committed {offset} for {key}, but the "
                    f"cluster now says {stored.get(key)}. Something else commits for this group: find and stop it.",
                    alias=self.settings.alias,
                    topic=key.topic,
                    partition=key.partition,
                    group=group_id,
                )

    # -- below: one request each ------------------------------------------------------------------------------

    def _describe(self) -> Any:
        return self._run(
            lambda: librdkafka.result(
                self._client.describe_cluster(request_timeout=self.timeout), self.timeout
            ),
            "describing the cluster",
        )

    def _described(self, names: list[str]) -> dict[str, Topic]:
        """Those of `names` that exist; a topic deleted meanwhile is left out."""
        if not names:
            return {}
        futures = self._run(
            lambda: self._client.describe_topics(TopicCollection(names), request_timeout=self.timeout),
            "describing topics",
        )
        found: dict[str, Topic] = {}
        for name, future in futures.items():
            try:
                answer = librdkafka.result(future, self.timeout)
            except KafkaException as error:
                if librdkafka.reason(error).code() in _SETTLING:
                    continue
                raise self._error(error, f"describing topic {name}", topic=name) from None
            replicas = len(answer.partitions[0].replicas) if answer.partitions else 0
            found[name] = Topic(name, _uuid(answer.topic_id), len(answer.partitions), replicas)
        return found

    def _settled(self, name: str, doing: str) -> Topic:
        """Wait until the topic is described in full and every partition's leader answers for its log."""
        deadline = time.monotonic() + self.timeout
        while True:
            topic = self.topic(name)
            try:
                if topic is not None:
                    self.offsets(TopicPartition(name, number) for number in range(topic.partitions))
                    return topic
            except (TopicMissing, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.code not in _SETTLING:
                    raise
            if time.monotonic() > deadline:
                raise self.settings.unreachable(
                    f"{doing}: not every partition has a leader after {self.timeout:g} s"
                )
            time.sleep(0.05)

    def _configs(self, resources: list[ConfigResource], doing: str) -> dict[str, dict[str, Any]]:
        futures = self._run(
            lambda: self._client.describe_configs(resources, request_timeout=self.timeout), doing
        )
        answers = {}
        for resource, future in futures.items():
            try:
                answers[resource.name] = librdkafka.result(future, self.timeout)
            except KafkaException as error:
                raise self._error(error, doing, topic=resource.name) from None
        return answers

    def _list_offsets(
        self, asked: list[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        if not asked:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED
            if isolation == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        futures = self._run(
            lambda: self._client.list_offsets(
                {WirePartition(key.topic, key.partition): spec for key in asked},
                isolation_level=level,
                request_timeout=self.timeout,
            ),
            "listing offsets",
        )
        offsets = {}
        for key, future in futures.items():
            try:
                offsets[TopicPartition(key.topic, key.partition)] = librdkafka.result(
                    future, self.timeout
                ).offset
            except KafkaException as error:
                raise self._error(
                    error, "listing offsets", topic=key.topic, partition=key.partition
                ) from None
        return offsets

    def _group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        request = [ConsumerGroupTopicPartitions(group_id)]
        answer = self._run(
            lambda: librdkafka.result(
                self._client.list_consumer_group_offsets(
                    request, require_stable=True, request_timeout=self.timeout
                )[group_id],
                self.timeout,
            ),
            f"reading offsets of group {group_id}",
            group=group_id,
        )
        return {
            TopicPartition(entry.topic, entry.partition): entry.offset
            for entry in answer.topic_partitions
            if not entry.error and entry.offset >= 0
        }

    def _run(self, call: Callable[[], T], doing: str, *, group: str | None = None) -> T:
        try:
            return call()
        except (KafkaException, ValueError, TypeError) as error:
            raise self._error(error, doing, group=group) from None

    def _error(
        self,
        error: Exception,
        doing: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
    ) -> ClusterError:
        self._client.poll(0)  # delivers the error callback, which knows why
        return librdkafka.cluster_error(
            self.settings,
            librdkafka.reason(error),
            self._complaints,
            doing=doing,
            topic=topic,
            partition=partition,
            group=group,
        )


def _uuid(value: Uuid) -> uuid.UUID:
    bits = (value.get_most_significant_bits() << 64) | (value.get_least_significant_bits() & (1 << 64) - 1)
    return uuid.UUID(int=bits & (1 << 128) - 1)
