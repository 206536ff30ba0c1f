"""What a task of a write does: append batches in a transaction of its own, which it leaves open."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from watershed.clusters.errors import ClusterError, TopicMissing
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import ProducedPartition, ProducePartition
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.transactions.produce_answers import COORDINATOR_MOVES, SessionLost
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.copy.transactions.transactional_producer import TransactionalProducer
from watershed.spark.datasource.log_offsets import LogOffsetReader
from watershed.spark.datasource.options import WriteOptions
from watershed.spark.datasource.row_to_batch import build_batch_from_row, select_used_columns
from watershed.spark.errors import NotAppended
from watershed.topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    import pyarrow as pa

_IN_FLIGHT: Final = 5  # of one connection: so many a broker remembers of a producer (max.in.flight of the Java client)
_PATIENCE_S: Final = 30.0
# A first batch that was turned away before it was written: the same sequence number is sent again.
_NOT_YET = COORDINATOR_MOVES | error_codes.REINSPECT_CODES | {error_codes.CONCURRENT_TRANSACTIONS}
_TV2 = 2

_Place = tuple[str, int]


@dataclass(frozen=True)
class OpenTaskTransaction(WriterCommitMessage):
    """What a task left open. No producer: it had nothing to write. query: of the stream, if it is one."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    batches: int = 0
    records: int = 0
    query: str = ""

    @property
    def nothing(self) -> bool:
        """Whether the task had no row to write."""
        return self.producer_id < 0


def append_in_transaction(
    writing: WriteOptions, transactional_id: str, tables: Iterable[pa.RecordBatch], query: str = ""
) -> OpenTaskTransaction:
    """Append all rows, in their order. Raises NotAppended, ClusterError; nothing is visible then, or ever will be."""
    attempt = _Attempt(writing, transactional_id)
    try:
        for row in _rows(tables):
            attempt.send(writing.topic or row["topic"], row["partition"], build_batch_from_row(row))
        attempt.drain()
    except BaseException as error:
        attempt.give_up()
        if isinstance(error, SessionLost):
            raise NotAppended(f"cluster {writing.cluster.alias}: {error}") from None
        raise
    who = attempt.producer.identity
    attempt.close()
    return OpenTaskTransaction(transactional_id, who.producer_id, who.epoch, attempt.batches, attempt.records, query)


def _rows(tables: Iterable[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
    for table in tables:
        names = select_used_columns(table.schema.names)
        columns = [table.column(name) for name in names]
        for at in range(table.num_rows):  # one by one: a payload is copied when its turn comes
            yield {name: column[at].as_py() for name, column in zip(names, columns, strict=True)}


@dataclass(slots=True)
class _Leader:
    connection: Connection
    unanswered: deque[tuple[_Place, str]] = field(default_factory=deque)


class _Attempt:
    def __init__(self, writing: WriteOptions, transactional_id: str) -> None:
        self.settings: ConnectionSettings = resolve_connection_settings(writing.cluster)
        self.producer = TransactionalProducer(
            transactional_id,
            lambda address: open_connection(self.settings, address),
            bump=False,
            timeout_ms=writing.timeout * 1000,
        )
        self.batches = self.records = 0
        self._logs = LogOffsetReader(self.settings)
        self._ids: dict[str, dict[int, uuid.UUID]] = {}
        self._leaders: dict[tuple[str, int], _Leader] = {}
        self._opened: dict[_Place, _Leader] = {}

    def send(self, topic: str, partition: int, batch: RawBatch) -> None:
        if self.producer.identity.producer_id < 0:
            self.producer.bump = read_transaction_version(self.settings) >= _TV2
            self.producer.begin()
        place = topic, partition
        topic_id = self._id_of(place)
        sequence = self.producer.sequence((topic_id, partition), batch.records)
        who = self.producer.identity
        header = rewrite_header(
            batch.data[:BATCH_HEADER_BYTES],
            producer_id=who.producer_id,
            epoch=who.epoch,
            sequence=sequence,
            transactional=True,
        )
        part = ProducePartition(topic_id, partition, (header, batch.data[BATCH_HEADER_BYTES:]))
        told = (
            f"{topic}-{partition} on {self.settings.alias}, a batch of {batch.records} records, {len(batch.data)} bytes"
        )
        if place in self._opened:
            self._send(self._opened[place], place, part, told)
        else:
            self._open(place, part, told)
        self.batches, self.records = self.batches + 1, self.records + batch.records

    def drain(self) -> None:
        for leader in self._leaders.values():
            while leader.unanswered:
                self._receive(leader)

    def give_up(self) -> None:
        """Abort what is open. Where even that fails, the transaction's own timeout does."""
        if self.producer.identity.producer_id >= 0:
            with suppress(SessionLost, ClusterError, OSError):
                self.producer.end(commit=False)
        self.close()

    def close(self) -> None:
        self.producer.close()
        self._logs.close()
        for leader in self._leaders.values():
            leader.connection.close()

    def _id_of(self, place: _Place) -> uuid.UUID:
        topic, partition = place
        if topic not in self._ids:
            logs = self._logs.selected(TopicSelection(include=(Selector("literal", topic),)))
            self._ids[topic] = {log.partition: log.topic_id for log in logs}
        if partition not in self._ids[topic]:
            raise TopicMissing(
                f"topic {topic} on cluster {self.settings.alias} has {len(self._ids[topic])} partitions, and a row is "
                f"meant for partition {partition}. Create it with more, or change the column partition",
                alias=self.settings.alias,
                topic=topic,
                partition=partition,
            )
        return self._ids[topic][partition]

    def _open(self, place: _Place, part: ProducePartition, told: str) -> None:
        """The first batch of a partition goes alone: its answer may be that the transaction cannot take it yet."""
        if not self.producer.bump:
            self.producer.add((place,))
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            leader = self._leader(place)
            while leader.unanswered:
                self._receive(leader)
            leader.connection.send_produce((part,), transactional_id=self.producer.transactional_id)
            [answer] = leader.connection.receive_produce()
            if answer.error not in _NOT_YET or time.monotonic() > deadline:
                break
            self._logs.close()
            time.sleep(0.1)
        self._check(answer, told)
        self._opened[place] = leader

    def _send(self, leader: _Leader, place: _Place, part: ProducePartition, told: str) -> None:
        while len(leader.unanswered) >= _IN_FLIGHT:
            self._receive(leader)
        leader.connection.send_produce((part,), transactional_id=self.producer.transactional_id)
        leader.unanswered.append((place, told))

    def _receive(self, leader: _Leader) -> None:
        [answer] = leader.connection.receive_produce()
        _, told = leader.unanswered.popleft()
        self._check(answer, told)

    def _check(self, answer: ProducedPartition, told: str) -> None:
        if answer.error == error_codes.NONE:
            return
        name = error_codes.describe_error_code(answer.error)
        remedy = {
            error_codes.MESSAGE_TOO_LARGE: "max.message.bytes of the topic is smaller; raise it",
            error_codes.TOPIC_AUTHORIZATION_FAILED: "WRITE on the topic is missing",
            error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on transactional ids that begin with "
            "watershed-spark-",
            error_codes.CORRUPT_MESSAGE: "the payload is not what its checksum says",
        }.get(answer.error, answer.message or "the task is tried again, if Spark tries tasks again")
        reasons = "; ".join(f"record {at}: {reason}" for at, reason in answer.record_errors[:3])
        raise NotAppended(f"{told}: the broker answers {name} ({reasons or remedy})")

    def _leader(self, place: _Place) -> _Leader:
        address = self._logs.leader(*place)
        if address not in self._leaders:
            self._leaders[address] = _Leader(open_connection(self.settings, address))
        return self._leaders[address]
