"""A consumer group at the source that stays a fixed number of records behind the end of its topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as WirePartition

from watershed.bench.numbered_topics import (
    GROUP_BENCH_PARTITIONS,
    READ_TO_END_S,
    NumberedRecords,
    NumberedTopic,
    build_reader_settings,
    decode_number,
)
from watershed.clusters.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class StoppedGroup:
    """Where a group stood when it was stopped: committed offsets at the source by partition, and what it had read."""

    group: str
    lag: int
    committed: Mapping[int, int]
    read: frozenset[int]


class LaggingGroup:
    """A real member of a real group; it commits what it has read, and only that."""

    def __init__(self, numbered: NumberedTopic, lag: int, source: ConnectionSettings) -> None:
        self.lag, self.group = lag, f"{numbered.topic}-behind-{lag}"
        self._numbered = numbered
        self._read: set[int] = set()
        self._next = dict.fromkeys(range(GROUP_BENCH_PARTITIONS), 0)
        self._consumer = Consumer(
            source.librdkafka(build_reader_settings(self.group) | {"auto.offset.reset": "earliest"})
        )
        self._consumer.subscribe([numbered.topic])

    def follow(self) -> None:
        """Read on until about `lag` records are left, and commit."""
        self._read_below(dict.fromkeys(range(GROUP_BENCH_PARTITIONS), self._numbered.behind(self.lag)))

    def stop(self, rows: NumberedRecords) -> StoppedGroup:
        """Read on until exactly `lag` of these records are left, half of them in each partition; commit and leave."""
        limits = {}
        for partition, found in rows.items():
            left = self.lag // GROUP_BENCH_PARTITIONS
            limits[partition] = found[len(found) - left].number if left else self._numbered.made
            if self._next[partition] > 0 and left and self._next[partition] > found[len(found) - left].offset:
                raise RuntimeError(f"group {self.group} has read too far in partition {partition}: spread is too small")
        self._read_below(limits)
        self._consumer.close()
        return StoppedGroup(self.group, self.lag, dict(self._next), frozenset(self._read))

    def _read_below(self, limits: Mapping[int, int]) -> None:
        """Read all records with numbers below the limit of their partition that are there; then commit."""
        topic = self._numbered.topic
        open_, deadline = set(range(GROUP_BENCH_PARTITIONS)), time.monotonic() + READ_TO_END_S
        self._consumer.resume(self._consumer.assignment())
        while open_:
            if time.monotonic() > deadline:
                raise TimeoutError(f"group {self.group} could not read {topic} within {READ_TO_END_S:.0f} s")
            for message in self._consumer.consume(10_000, timeout=0.05):
                partition = message.partition() or 0
                if partition in open_ and self._taken(message, partition, limits[partition]):
                    continue
                if partition in open_:
                    open_.discard(partition)
                    self._hold(partition)
        self._consumer.commit(
            offsets=[WirePartition(topic, partition, at) for partition, at in self._next.items()], asynchronous=False
        )

    def _taken(self, message: Message, partition: int, limit: int) -> bool:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise RuntimeError(f"group {self.group} cannot read: {error.str()}")
        if error is not None or decode_number(message) >= limit:
            return False
        self._read.add(decode_number(message))
        self._next[partition] = (message.offset() or 0) + 1
        return True

    def _hold(self, partition: int) -> None:
        """Here it goes on the next time; what was fetched beyond is forgotten."""
        place = WirePartition(self._numbered.topic, partition, self._next[partition])
        self._consumer.pause([place])
        self._consumer.seek(place)
