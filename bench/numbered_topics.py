"""Topics of numbered records: what consumer groups read in `bench.groups`.

Every record carries its number in its value: 0, 1, 2 … over a topic, number n in partition n mod PARTITIONS. Within a
partition numbers rise with offsets, so a number says on which side of an offset its record stands, also when compaction
has taken the record away since.
"""

from __future__ import annotations

import math
import random
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition

GROUP_BENCH_PARTITIONS = 2
_SIZE = 100  # bytes of a value
READ_TO_END_S = 60.0
_NUMBER = struct.Struct(">Q")
_PADDING = b"." * (_SIZE - _NUMBER.size)
_TRANSACTION = (1, 500)  # records of one, both ends included
_ABORTED = 0.2  # of the transactions
_HOT, _COLD = 200, 400_000  # keys; every second record has a hot one, so that compaction leaves gaps everywhere
_CLEANED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "segment.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class _TopicKind:
    """One kind of topic. `spread`: for each record that compaction leaves, at most so many were written."""

    name: str
    configs: Mapping[str, str] = field(default_factory=dict)
    transactions: bool = False
    keys: bool = False
    spread: float = 1.0


TOPIC_KINDS = (
    _TopicKind("plain"),
    _TopicKind("transactional", transactions=True),
    _TopicKind("compacted", _CLEANED, keys=True, spread=2.5),
)


class NumberedRecord(NamedTuple):
    """One record as a reader of committed data gets it."""

    offset: int
    number: int
    key: bytes | None


NumberedRecords = dict[int, list[NumberedRecord]]  # by partition, in log order


class NumberedTopic:
    """The topic of one case on the source, and the producer that goes on writing into it."""

    def __init__(self, case: _TopicKind, source: ConnectionSettings) -> None:
        self.case, self.topic, self._source = case, case.name, source
        self.made = 0
        self.aborted: set[int] = set()
        self._chance = random.Random(case.name)  # noqa: S311 - not a secret
        with Admin(source) as admin:
            admin.create_topic(self.topic, GROUP_BENCH_PARTITIONS, configs=case.configs)
        more: dict[str, str | int] = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        if case.transactions:
            more |= {"transactional.id": f"bench-{case.name}"}
        self._producer = Producer(source.librdkafka(more))
        if case.transactions:
            self._producer.init_transactions(30)

    def produce(self, records: int) -> None:
        """So many more records; returns when the source has them. Transactions end with it."""
        left = records
        while left:
            some = min(left, self._chance.randint(*_TRANSACTION)) if self.case.transactions else left
            self._put(some)
            left -= some
        if unsent := self._producer.flush(60):
            raise RuntimeError(f"{unsent} records were not taken by {self.topic} within 60 s")

    def behind(self, lag: int) -> int:
        """The number from which on each partition holds its share of `lag` records, or some more."""
        number, wanted = (
            self.made,
            dict.fromkeys(range(GROUP_BENCH_PARTITIONS), math.ceil(lag * self.case.spread / GROUP_BENCH_PARTITIONS)),
        )
        while number and any(wanted.values()):
            number -= 1
            if number not in self.aborted:
                wanted[number % GROUP_BENCH_PARTITIONS] = max(wanted[number % GROUP_BENCH_PARTITIONS] - 1, 0)
        return number

    def close(self) -> None:
        """Nothing comes any more, and the cleaner leaves the topic as it is."""
        configs = {"min.cleanable.dirty.ratio": "1.0"} if self.case.configs else {}
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)
        if entries:
            client = AdminClient(self._source.librdkafka())
            for future in client.incremental_alter_configs([resource]).values():
                future.result(30)

    def _put(self, records: int) -> None:
        aborts = self.case.transactions and self._chance.random() < _ABORTED
        if self.case.transactions:
            self._producer.begin_transaction()
        for number in range(self.made, self.made + records):
            value, key = _NUMBER.pack(number) + _PADDING, self._key(number) if self.case.keys else None
            while True:
                try:
                    self._producer.produce(self.topic, value, key, partition=number % GROUP_BENCH_PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        if aborts:
            self._producer.flush(60)  # else they would be purged before they reach the log
            self._producer.abort_transaction(60)
            self.aborted.update(range(self.made, self.made + records))
        elif self.case.transactions:
            self._producer.commit_transaction(60)
        self.made += records

    def _key(self, number: int) -> bytes:
        """Hot or cold, in one partition always."""
        drawn = self._chance.randrange(_HOT if self._chance.random() < 0.5 else _COLD)
        return b"k%d" % (drawn - drawn % GROUP_BENCH_PARTITIONS + number % GROUP_BENCH_PARTITIONS)


def decode_number(message: Message) -> int:
    """The number in a record's value."""
    (number,) = _NUMBER.unpack_from(message.value() or b"")
    return int(number)


def read_numbered_records(settings: ConnectionSettings, topic: str) -> NumberedRecords:
    """The whole log as a reader of committed data gets it, up to its ends of the moment."""
    consumer = Consumer(settings.librdkafka(build_reader_settings("bench-reference")))
    rows: NumberedRecords = {partition: [] for partition in range(GROUP_BENCH_PARTITIONS)}
    with Admin(settings) as admin:
        spans = admin.offsets(TopicPartition(topic, partition) for partition in rows)
    try:
        consumer.assign([WirePartition(place.topic, place.partition, span.start) for place, span in spans.items()])
        read_to_end(consumer, rows)
    finally:
        consumer.close()
    return rows


def build_reader_settings(group: str) -> dict[str, str | int | bool]:
    """Settings of a consumer that never goes anywhere by itself: no position, no reading."""
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": 16 << 10,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 50,  # whoever is at the end hears so soon
    }


def read_to_end(consumer: Consumer, rows: NumberedRecords) -> dict[int, str]:
    """Read every partition of `rows` to its end into it. Returns why not, by partition, where there is no position."""
    open_, refused = set(rows), dict[int, str]()
    deadline = time.monotonic() + READ_TO_END_S
    while open_:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"partitions {sorted(open_)} could not be read to their ends within {READ_TO_END_S:.0f} s"
            )
        for message in consumer.consume(10_000, timeout=0.05):
            partition, error = message.partition() or 0, message.error()
            if error is None:
                rows[partition].append(NumberedRecord(message.offset() or 0, decode_number(message), message.key()))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_.discard(partition)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                refused[partition] = error.str()
                open_.discard(partition)
            else:
                raise RuntimeError(f"reading stopped: {error.str()}")
    return refused
