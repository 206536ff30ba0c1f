"""One open transaction: what was sent in it, what was answered, and its ledger records."""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from watershed.clusters.control_topics import LEDGER_TOPIC, encode_control_value
from watershed.clusters.errors import ProtocolError
from watershed.clusters.record_batch import BatchRecord, build_batch
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition, ProducePartition
from watershed.clusters.wire.transaction_requests import TransactionWire
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.log_append_time import check_append_time
from watershed.replicator.copy.transactions.produce_answers import SessionLost, judge_produce_answer, raise_for_session
from watershed.replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy
from watershed.replicator.copy.transactions.transactional_producer import (
    COORDINATOR_PATIENCE_S,
    COORDINATOR_PAUSE_S,
    TopicIdPartition,
    TransactionalProducer,
)
from watershed.replicator.ledger.transaction_positions import LedgerEntry
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress

# A transaction is committed when nothing more is waiting, and at the latest after so much time (what a reader waits at
# most) or bytes (some 40 ms at full speed: the three round trips of a commit then cost a tenth).
_COMMIT_S: Final = 0.1
_COMMIT_BYTES: Final = 8 << 20
_REQUEST_BYTES: Final = 2 << 20
_REQUESTS_IN_FLIGHT: Final = 5  # to one broker, once the first answer of the transaction is there
_PRODUCE_TIMEOUT_MS: Final = 20_000  # below the transaction's own timeout
_LEDGER_BATCH_BYTES: Final = 512 << 10  # half of the default max.message.bytes
_NO_TIMESTAMP: Final = -1  # of ledger records: a worker whose clock is wrong must not be refused by the broker


class SlotPartition(NamedTuple):
    """A partition and the target's broker that leads it. `room` says that its buffer has room again."""

    copy: TransactionCopy
    leader: BrokerAddress
    room: Callable[[], None] = lambda: None


class LedgerPartition(NamedTuple):
    """The slot's partition of the ledger, and who leads it."""

    topic_id: uuid.UUID
    slot: int
    leader: BrokerAddress


@dataclass(slots=True)
class OpenTransaction:
    """`wire` gives the connection to a broker. Every method may raise SessionLost or ClusterError: then nobody knows
    what became of it.

    failed: it cannot be committed; troubles: what is wrong with single partitions.
    """

    producer: TransactionalProducer
    ledger: LedgerPartition
    wire: Callable[[BrokerAddress], TransactionWire]
    started: float = field(default_factory=time.monotonic)
    failed: bool = False
    troubles: list[tuple[TransactionCopy, Halt | Reinspect]] = field(default_factory=list)
    copies: dict[int, TransactionCopy] = field(default_factory=dict)
    _size: int = 0
    _answered: int = 0  # batches
    _turned_away: int = 0  # batches that met the end of the transaction before (CONCURRENT_TRANSACTIONS)
    _places: set[TopicIdPartition] = field(default_factory=set)
    _in_flight: deque[tuple[BrokerAddress, list[tuple[TransactionCopy, RawBatch]]]] = field(default_factory=deque)
    _flying: Counter[BrokerAddress] = field(default_factory=Counter)

    @property
    def is_turned_away(self) -> bool:
        """Every batch was turned away because the transaction before is still being completed: nothing is written."""
        return 0 < self._turned_away == self._answered and not self.troubles

    def fill(self, partitions: Callable[[], Iterable[SlotPartition]], path: CopyPath) -> None:
        """Send what is waiting, and take all answers. The first one is awaited alone: a broker that has not let the
        transaction in must not have a second batch of a partition on its way."""
        while True:
            while self._takes_more() and self._send(partitions(), path):
                pass
            if not self._in_flight:
                return
            self._receive()

    def write(self, entries: list[LedgerEntry]) -> None:
        """Write ledger records into the transaction, or begin it with them."""
        place = (self.ledger.topic_id, self.ledger.slot)
        self._join([])
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        for number, part in enumerate(_split_entries(entries)):
            records = [
                BatchRecord(at, _NO_TIMESTAMP, key.encode(), None if value is None else encode_control_value(value))
                for at, (key, value) in enumerate(part)
            ]
            batch = build_batch(
                records,
                producer_id=self.producer.identity.producer_id,
                epoch=self.producer.identity.epoch,
                base_sequence=self.producer.sequence(place, len(records)),
                transactional=True,
            )
            while (answer := self._produce_ledger_batch(place, batch)).error != error_codes.NONE:
                first = number == 0 and not self._answered  # so nothing was written yet, and asking again is safe
                if not first or answer.error != error_codes.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                    raise_for_session(answer.error, "Produce", self.producer.transactional_id)
                    reason = (
                        f"the target answers {error_codes.describe_error_code(answer.error)} to a record of "
                        f"{LEDGER_TOPIC}-{self.ledger.slot}"
                    )
                    raise SessionLost(Reinspect(f"{reason}: {answer.message}" if answer.message else reason))
                time.sleep(COORDINATOR_PAUSE_S)

    def _takes_more(self) -> bool:
        if self.failed or (self._in_flight and not self._answered):
            return False
        return self._size < _COMMIT_BYTES and time.monotonic() - self.started < _COMMIT_S

    def _send(self, partitions: Iterable[SlotPartition], path: CopyPath) -> bool:
        """One batch of every partition that has one, one request a broker. False when there is nothing to send."""
        requests: dict[BrokerAddress, list[tuple[TransactionCopy, RawBatch]]] = {}
        size = 0
        for copy, leader, _ in partitions:
            if self._flying[leader] >= _REQUESTS_IN_FLIGHT or size >= _REQUEST_BYTES:
                continue
            batch = copy.take(path)
            if batch is not None:
                self.copies[id(copy)] = copy
                requests.setdefault(leader, []).append((copy, batch))
                size += len(batch.data)
        self._size += size
        for leader, request in requests.items():
            self._in_flight.append((leader, request))
            self._flying[leader] += 1
            self._join([copy for copy, _ in request])
            self.wire(leader).send_produce(
                tuple(_rewrite_batch(self.producer, copy, batch) for copy, batch in request),
                timeout_ms=_PRODUCE_TIMEOUT_MS,
                transactional_id=self.producer.transactional_id,
            )
        return bool(requests)

    def _join(self, copies: list[TransactionCopy]) -> None:
        """TV1: make the partitions that are new in this transaction, and the ledger's, part of it."""
        if self.producer.bump:
            return
        named: dict[TopicIdPartition, tuple[str, int]] = {self.ledger[:2]: (LEDGER_TOPIC, self.ledger.slot)}
        for copy in copies:
            named[copy.target_id, copy.key.partition] = (copy.key.target_topic, copy.key.partition)
        new = {place: name for place, name in named.items() if place not in self._places}
        if new:
            self.producer.add(tuple(new.values()))
            self._places.update(new)

    def _receive(self) -> None:
        leader, request = self._in_flight.popleft()
        self._flying[leader] -= 1
        answers = {(a.topic_id, a.partition): a for a in self.wire(leader).receive_produce()}
        for copy, batch in request:
            answer = answers.get((copy.target_id, copy.key.partition))
            if answer is None:
                raise ProtocolError("an answer to Produce leaves a partition out")
            self._take(copy, batch, answer)

    def _take(self, copy: TransactionCopy, batch: RawBatch, answer: ProducedPartition) -> None:
        self._answered += 1
        trouble: Halt | Reinspect | None
        if answer.error == error_codes.NONE:
            trouble = check_append_time(copy.key.target_topic, batch, answer)
            if self.failed or (trouble is None and copy.landed(answer.base_offset, answer.log_start)):
                return
            extent = f"source offsets {batch.base} to {batch.end - 1}"
            trouble = trouble or Halt(
                "duplicated",
                f"the target answers offset {answer.base_offset} for {extent}, "
                f"but our records end at {copy.progress.acked}",
            )
        else:
            self._turned_away += answer.error == error_codes.CONCURRENT_TRANSACTIONS
            trouble = judge_produce_answer(copy, batch, answer, self.producer.transactional_id)
        self.failed = True
        if trouble is not None and not any(known is copy for known, _ in self.troubles):
            self.troubles.append((copy, trouble))

    def _produce_ledger_batch(self, place: TopicIdPartition, batch: bytes) -> ProducedPartition:
        wire = self.wire(self.ledger.leader)
        wire.send_produce(
            (ProducePartition(*place, (batch,)),),
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            transactional_id=self.producer.transactional_id,
        )
        (answer,) = wire.receive_produce()
        return answer


def _rewrite_batch(producer: TransactionalProducer, copy: TransactionCopy, batch: RawBatch) -> ProducePartition:
    place = (copy.target_id, copy.key.partition)
    header = rewrite_header(
        batch.data[:BATCH_HEADER_BYTES],
        producer_id=producer.identity.producer_id,
        epoch=producer.identity.epoch,
        sequence=producer.sequence(place, batch.records),
        transactional=True,
    )
    return ProducePartition(*place, (header, batch.data[BATCH_HEADER_BYTES:]))


def _split_entries(entries: list[LedgerEntry]) -> Iterable[list[LedgerEntry]]:
    """Entries for one batch each."""
    part: list[LedgerEntry] = []
    size = 0
    for key, value in entries:
        weight = len(key) + (0 if value is None else len(encode_control_value(value)))
        if part and size + weight > _LEDGER_BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append((key, value))
        size += weight
    if part:
        yield part
