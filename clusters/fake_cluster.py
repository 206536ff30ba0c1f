"""A Kafka cluster in memory, with the broker's own rules: for tests, dry runs and properties, instead of mocks.

`FakeCluster` answers everything `clusters.cluster_protocol.ClusterProtocol` asks and hands out connections (`wire()`)
that carry raw batches. The rest of its methods play the part of applications and of fate: producers, transactions,
consumers, restarts, deletions, truncations. One broker (node 1), one replica. May be shared by threads.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from watershed.clusters.admin import build_partition_count_error
from watershed.clusters.cluster_protocol import GroupState, LogRange, ReadIsolation, TopicDescription, TopicShape
from watershed.clusters.errors import RequestRefused, TopicMissing, Unreachable
from watershed.clusters.fake_groups import FakeGroups
from watershed.clusters.fake_log import PartitionLog
from watershed.clusters.fake_transactions import FakeCoordinator
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.record_batch import (
    ABORT,
    COMMIT,
    BatchBuffer,
    BatchRecord,
    build_marker_batch,
    build_simple_batch,
)
from watershed.clusters.settings import ConnectionSettings, build_wrong_cluster_error
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.versions import ANY_VERSION

_BROKER_CONFIGS = {
    "auto.create.topics.enable": "false",
    "message.max.bytes": "1048588",
    "log.segment.bytes": "1073741824",
    "num.partitions": "1",
    "producer.id.expiration.ms": "86400000",
}
# Topic settings and the broker's that they inherit from (TopicConfigSynonyms).
_INHERITED = {
    "max.message.bytes": "message.max.bytes",
    "segment.bytes": "log.segment.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
}
_NODE = 1


class FakeCluster:
    """`clock` gives the broker's time in milliseconds; `configs` override `_BROKER_CONFIGS`."""

    def __init__(
        self,
        alias: str = "fake",
        *,
        cluster_id: str | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = ConnectionSettings(alias, (f"{alias}:9092",), cluster_id=cluster_id)
        self.clock = clock
        self.configs = _BROKER_CONFIGS | dict(configs or {})
        self.groups = FakeGroups(alias)
        self.up = True
        self.newest_fetch = ANY_VERSION  # a lower one: of an older release
        self.describes_producers = True  # False: older than Kafka 2.8
        self.may_alter = True  # ALTER on the cluster, which bare transaction markers need
        self.changed = threading.Condition(threading.RLock())
        self._id = cluster_id or f"fake-{alias}"
        self._topics: dict[str, TopicDescription] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._logs: dict[tuple[uuid.UUID, int], PartitionLog] = {}
        self._next_producer_id = 1000
        self.coordinator = FakeCoordinator(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to close; here so that it can stand in for `Admin`."""

    # -- what Administration asks ------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """Returns the id given at the start, or one made from the alias."""
        self.answer()
        return self._id

    def check_identity(self) -> None:
        """Raises `WrongCluster` when the settings pin another id."""
        if self.settings.cluster_id not in (None, self.cluster_id()):
            raise build_wrong_cluster_error(self.settings, self._id)

    def brokers(self) -> int:
        """Always one."""
        self.answer()
        return 1

    def topics(self) -> dict[str, TopicDescription]:
        """Returns every topic by name."""
        self.answer()
        return dict(self._topics)

    def topic(self, name: str) -> TopicDescription | None:
        """Returns the topic, or None."""
        self.answer()
        return self._topics.get(name)

    def shapes(self) -> dict[str, TopicShape]:
        """Returns partition count and replication factor of every topic."""
        return {name: TopicShape(each.partitions, each.replication_factor) for name, each in self.topics().items()}

    def effective_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the topics' own settings over those of the broker that topics inherit."""
        inherited = {key: self.configs[broker] for key, broker in _INHERITED.items() if broker in self.configs}
        return {name: inherited | configs for name, configs in self.topic_configs(names).items()}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the settings that each topic has of its own. Raises `TopicMissing`."""
        return {name: dict(self._configs[self._existing(name).name]) for name in names}

    def broker_config(self, key: str) -> str | None:
        """Returns the broker's setting, or None for an unknown key."""
        self.answer()
        return self.configs.get(key)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Creates empty logs. Raises `TopicExists` for another partition count, RequestRefused for two replicas."""
        self.answer()
        with self.changed:
            topic = self._topics.get(name)
            if topic is not None:
                if topic.partitions != partitions:
                    raise build_partition_count_error(self.settings.alias, topic, partitions)
                return topic
            if (replication_factor or 1) > 1:
                raise self._refused(f"{replication_factor} replicas, but there is one broker", 38, name)
            topic = TopicDescription(name, uuid.uuid4(), partitions, 1)
            self._topics[name] = topic
            self._configs[name] = dict(configs or {})
            for number in range(partitions):
                self._logs[topic.topic_id, number] = PartitionLog(self._configs[name])
            self.changed.notify_all()
            return topic

    def alter_topic_configs(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Sets (or with None removes) single settings; logs see them at once."""
        with self.changed:
            own = self._configs[self._existing(name).name]
            own.update({key: value for key, value in configs.items() if value is not None})
            for key in configs.keys() - {key for key in configs if configs[key] is not None}:
                own.pop(key, None)

    def create_partitions(self, name: str, total: int) -> TopicDescription:
        """Adds empty partitions up to `total`; never removes any."""
        with self.changed:
            topic = self._existing(name)
            if topic.partitions < total:
                for number in range(topic.partitions, total):
                    self._logs[topic.topic_id, number] = PartitionLog(self._configs[name])
                topic = self._topics[name] = replace(topic, partitions=total)
                self.changed.notify_all()
            return topic

    def offsets(
        self, partitions: Iterable[TopicPartition], isolation: ReadIsolation = "read_committed"
    ) -> dict[TopicPartition, LogRange]:
        """Returns log start and log end; with read_committed the end is the last stable offset."""
        committed = isolation == "read_committed"
        found = {}
        for key in sorted(set(partitions)):
            log = self.log(*key)
            found[key] = LogRange(log.log_start, log.last_stable() if committed else log.end)
        return found

    def group(self, group_id: str) -> GroupState:
        """Returns state and committed offsets; an unknown group is Dead."""
        self.answer()
        return self.groups.describe(group_id)

    def group_assignment(self, group_id: str) -> dict[str, list[TopicPartition]] | None:
        """Members in memory read nothing, so none of them is given anything."""
        self.answer()
        return {}

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits from outside. Raises `GroupNotEmpty`, `TopicMissing`."""
        for key in offsets:
            self.log(*key)
        if offsets:
            self.groups.commit(group_id, offsets)

    def wire(self) -> FakeWire:
        """A new connection to the one broker."""
        self.answer()
        return FakeWire(self)

    # -- applications ------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        codec: str = "none",
        timestamp: int | None = None,
    ) -> int:
        """One batch of a producer without an id; its base offset. timestamp: of the first record, default now."""
        when = self.clock() if timestamp is None else timestamp
        batch = build_simple_batch(values, keys=keys, timestamp=when, codec=codec)
        error, base, message = self.append(topic, partition, batch)
        if error:
            raise self._refused(message, error, topic)
        return base

    def produce_transaction(
        self,
        topic: str,
        partition: int,
        batches_of_values: Sequence[Sequence[bytes | None]],
        *,
        end: str = "commit",
        producer_id: int | None = None,
        codec: str = "none",
    ) -> int:
        """One transaction of several batches on one partition, as a real producer leaves it; its producer id.

        end: commit, abort, or open (see `end_transaction`). Open transactions hold the last stable offset back.
        """
        if producer_id is None:
            producer_id = self.issue_producer_id()
        with self.changed:
            log, sequence = self.log(topic, partition), 0
            for state in log.producers.describe():
                if state.producer_id == producer_id:
                    sequence = state.last_sequence + 1
            for values in batches_of_values:
                batch = build_simple_batch(
                    values,
                    timestamp=self.clock(),
                    codec=codec,
                    producer_id=producer_id,
                    epoch=0,
                    base_sequence=sequence,
                    transactional=True,
                )
                log.write(batch, self.clock())
                sequence += len(values)
            if end != "open":
                self.end_transaction(topic, partition, producer_id, commit=end == "commit")
            self.changed.notify_all()
        return producer_id

    def end_transaction(self, topic: str, partition: int, producer_id: int, *, commit: bool) -> None:
        """Write the marker; it takes one offset."""
        with self.changed:
            marker = build_marker_batch(producer_id, 0, COMMIT if commit else ABORT, self.clock())
            self.log(topic, partition).write(marker, self.clock())
            self.changed.notify_all()

    def records(self, topic: str, partition: int, *, committed: bool = True) -> list[BatchRecord]:
        """What a consumer reads from the log start on, without control records (and aborted ones)."""
        with self.changed:
            return self.log(topic, partition).visible(committed)

    # -- fate --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The broker dies: every connection is lost, every request answered by `Unreachable`. `start` revives it."""
        with self.changed:
            self.up = False
            self.changed.notify_all()

    def start(self) -> None:
        """After a restart only the newest batch of a producer is known, and expired state is gone."""
        with self.changed:
            self.up = True
            for log in self._logs.values():
                log.restart()
            self.expire_producers()

    def expire_producers(self) -> None:
        """The broker's periodic sweep (every 10 minutes on a real one)."""
        with self.changed:
            for log in self._logs.values():
                log.producers.expire(self.clock(), int(self.configs["producer.id.expiration.ms"]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Moves the log start up to `before`, as DeleteRecords does."""
        with self.changed:
            self.log(topic, partition).delete_records(before)

    def delete_topic(self, name: str) -> None:
        """A topic created again under this name has another topic id."""
        with self.changed:
            topic = self._existing(name)
            del self._topics[name], self._configs[name]
            for number in range(topic.partitions):
                del self._logs[topic.topic_id, number]
            self.groups.forget_topic(name)
            self.changed.notify_all()

    # -- for connections ---------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Raises `Unreachable` while the broker is down."""
        if not self.up:
            raise self.unreachable()

    def unreachable(self) -> Unreachable:
        """The error of a broker that is down."""
        return self.settings.unreachable("the broker is down")

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log itself, to look at and to tamper with (`truncate`). Raises `TopicMissing`."""
        self.answer()
        log = self._logs.get((self._existing(topic, partition).topic_id, partition))
        if log is None:
            raise self._missing(f"{topic} partition {partition}", topic, partition)
        return log

    def log_by_id(self, topic_id: uuid.UUID, partition: int) -> PartitionLog | None:
        """Returns the log, or None when no topic has this id (any more)."""
        return self._logs.get((topic_id, partition))

    def append(self, topic: str, partition: int, batch: BatchBuffer) -> tuple[int, int, str]:
        """(error code, base offset, message), as the broker answers a Produce of this batch."""
        with self.changed:
            answer = self.log(topic, partition).append(bytes(batch), self.clock())
            self.changed.notify_all()
            return answer

    def issue_producer_id(self) -> int:
        """Returns a producer id that nobody had before."""
        self.answer()
        with self.changed:
            self._next_producer_id += 1
            return self._next_producer_id

    def _existing(self, name: str, partition: int | None = None) -> TopicDescription:
        self.answer()
        topic = self._topics.get(name)
        if topic is None:
            raise self._missing(name, name, partition)
        return topic

    def _missing(self, what: str, topic: str, partition: int | None) -> TopicMissing:
        alias = self.settings.alias
        return TopicMissing(f"cluster {alias} has no topic {what}.", alias=alias, topic=topic, partition=partition)

    def _refused(self, message: str, code: int, topic: str) -> RequestRefused:
        error = RequestRefused(
            f"cluster {self.settings.alias} refused ({code}) for topic {topic}: {message}.",
            alias=self.settings.alias,
            topic=topic,
        )
        error.code = code
        return error
