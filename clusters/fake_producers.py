"""What a broker remembers about producers on one partition, and the sequence check made from it.

Rules: Kafka 4.3's ProducerStateManager and ProducerAppendInfo, seen on real brokers (sequence-numbers.md §1).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from watershed.clusters.record_batch import MAX_SEQUENCE, BatchHeader
from watershed.clusters.wire.error_codes import (
    INVALID_PRODUCER_EPOCH,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
)
from watershed.clusters.wire.messages import ProducerState

_RETAINED_BATCHES = 5


@dataclass(frozen=True, slots=True)
class _AppendedBatch:
    """A remembered batch: its sequences and where it was stored."""

    first_sequence: int
    last_sequence: int
    offset: int
    last_offset: int


@dataclass(slots=True)
class _Entry:
    epoch: int
    last_timestamp: int
    newest: deque[_AppendedBatch] = field(default_factory=lambda: deque(maxlen=_RETAINED_BATCHES))
    transaction_start: int = -1
    last_offset: int = -1  # of anything it wrote, markers included


class FakeProducerStates:
    """State by producer id; knows nothing of the log itself. refuses_forgotten: as Kafka 2.4, which takes only sequence
    0 of a producer that it does not know; newer releases take any (KIP-360)."""

    def __init__(self) -> None:
        self.refuses_forgotten = False
        self._entries: dict[int, _Entry] = {}

    def check(self, batch: BatchHeader) -> tuple[int, _AppendedBatch | None]:
        """(error, the remembered batch when this one repeats it)."""
        entry = self._entries.get(batch.producer_id)
        if batch.producer_id < 0:
            return NONE, None
        if entry is None:
            return (UNKNOWN_PRODUCER_ID if self.refuses_forgotten and batch.base_sequence else NONE), None
        if batch.producer_epoch == entry.epoch:
            for known in entry.newest:
                if (known.first_sequence, known.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return NONE, known
        if batch.producer_epoch < entry.epoch:
            return INVALID_PRODUCER_EPOCH, None
        if batch.producer_epoch > entry.epoch or not entry.newest:
            return (NONE if batch.base_sequence == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER), None
        expected = (entry.newest[-1].last_sequence + 1) & MAX_SEQUENCE
        return (NONE if batch.base_sequence == expected else OUT_OF_ORDER_SEQUENCE_NUMBER), None

    def appended(self, batch: BatchHeader) -> None:
        """Remember a batch that was stored; `batch` carries its final offsets and timestamp."""
        if batch.producer_id < 0:
            return
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            started = entry.transaction_start if entry is not None else -1
            entry = _Entry(batch.producer_epoch, batch.max_timestamp, transaction_start=started)
            self._entries[batch.producer_id] = entry
        entry.last_timestamp = batch.max_timestamp
        entry.last_offset = batch.last_offset
        if batch.is_control:
            entry.transaction_start = -1
            return
        entry.newest.append(
            _AppendedBatch(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset)
        )
        if batch.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = batch.base_offset

    def open_transactions(self) -> list[int]:
        """First offsets of the transactions that are neither committed nor aborted."""
        return [entry.transaction_start for entry in self._entries.values() if entry.transaction_start >= 0]

    def transaction_start(self, producer_id: int) -> int:
        """Returns the first offset of the producer's open transaction, or -1."""
        entry = self._entries.get(producer_id)
        return -1 if entry is None else entry.transaction_start

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """By the time of the *records*, not of the appends; open transactions never expire."""
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry.transaction_start >= 0 or now_ms - entry.last_timestamp < expiration_ms
        }

    def restarted(self, log_start: int) -> None:
        """A clean restart reads a snapshot: only the newest batch of each producer, none of deleted records."""
        for entry in self._entries.values():
            while len(entry.newest) > 1:
                entry.newest.popleft()
        self._entries = {
            producer_id: entry for producer_id, entry in self._entries.items() if entry.last_offset >= log_start
        }

    def describe(self) -> list[ProducerState]:
        """Returns what DescribeProducers answers, by producer id."""
        return [
            ProducerState(
                producer_id=producer_id,
                epoch=entry.epoch,
                last_sequence=entry.newest[-1].last_sequence if entry.newest else -1,
                last_timestamp=entry.last_timestamp,
                transaction_start=entry.transaction_start,
            )
            for producer_id, entry in sorted(self._entries.items())
        ]
