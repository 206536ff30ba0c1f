"""One partition's log as digests: its batches are fetched as they are stored, their records walked, nothing is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.errors import ClusterError, Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire import error_codes
from clusters.wire.connection import Connection, open_connection
from clusters.wire.messages import READ_COMMITTED, FetchedPartition, FetchPartition
from replicator.adoption.log_digests import DigestedLog, DigestedLogBuilder, compute_record_digest
from replicator.batch.legacy_formats import decode_legacy_records
from replicator.batch.record_batch import UNKNOWN_RECORD_COUNT, RawBatch, decode_batches
from replicator.batch.records import decode_records
from replicator.errors import BadBatch, ReplicatorError
from replicator.recovery.log_inspection import LeaderLog, read_leader_logs

_FETCH_BYTES: Final = 8 << 20
_PATIENCE_S: Final = 60.0  # without any progress
_MOVES: Final = frozenset(
    {
        error_codes.LEADER_NOT_AVAILABLE,
        error_codes.NOT_LEADER_OR_FOLLOWER,
        error_codes.FENCED_LEADER_EPOCH,
        error_codes.UNKNOWN_LEADER_EPOCH,
    }
)


class NotProvable(ReplicatorError):
    """The logs cannot be compared as they are now; the message says what to do."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What is read: offsets start <= offset < end of a partition, all of them below the last stable offset."""

    settings: ConnectionSettings
    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on {self.settings.alias}"


def read_log_digests(
    wanted: PartitionRange,
    key: bytes,
    *,
    timestamps: bool = True,
    aborted: bool = False,
    directory: Path | None = None,
    progress: Callable[[int], None] = lambda _records: None,
) -> DigestedLog:
    """The records of `wanted`. key: of the digests, the same for both logs. aborted: records of aborted transactions
    are there, too, and named. progress hears of every batch of records that was read.

    Raises NotProvable when the range is not there any more or a batch is damaged, ClusterError.
    """
    taking = FetchDigester(wanted, key, DigestedLogBuilder(directory), timestamps, aborted)
    position, since = wanted.start, time.monotonic()
    led: LeaderLog | None = None
    link: Connection | None = None
    try:
        while position < wanted.end:
            try:
                if link is None:
                    led = _leader(wanted)
                    link = open_connection(wanted.settings, led.leader)
                assert led is not None
                answer = _fetch(link, led, wanted, position)
            except Unreachable:
                link = _close(link)
                if time.monotonic() - since > _PATIENCE_S:
                    raise
                time.sleep(0.5)
                continue
            before = position
            if answer is None:
                link = _close(link)
            else:
                records = taking.builder.records
                position = taking.take(answer, position)
                progress(taking.builder.records - records)
            if position > before:
                since = time.monotonic()
            elif time.monotonic() - since > _PATIENCE_S:
                raise NotProvable(f"{wanted}: nothing more to read at offset {position}, before {wanted.end}")
            else:
                time.sleep(0.05)
    except BadBatch as error:
        raise NotProvable(f"{wanted}: {error}") from None
    finally:
        _close(link)
    return taking.builder.finished()


@dataclass(slots=True)
class FetchDigester:
    """What becomes of Fetch answers, without I/O. aborted: see `read`."""

    wanted: PartitionRange
    key: bytes
    builder: DigestedLogBuilder
    timestamps: bool = True
    aborted: bool = False

    def take(self, answer: FetchedPartition, position: int) -> int:
        """Digest what an answer that was asked for at `position` holds; the next position. Raises BadBatch."""
        for batch, gone in _batches(answer):
            if batch.end <= position:
                continue
            if not batch.control and batch.records and (self.aborted or not gone) and batch.base < self.wanted.end:
                self._digest(batch, gone)
            position = batch.end
        return position

    def _digest(self, batch: RawBatch, gone: bool) -> None:
        records = decode_legacy_records(batch) if batch.records == UNKNOWN_RECORD_COUNT else decode_records(batch)
        first, expected, digests = -1, -1, bytearray()
        for offset, timestamp, rest in records:
            if not self.wanted.start <= offset < self.wanted.end:
                continue
            if offset != expected and digests:
                self.builder.add(first, bytes(digests), aborted=gone)
                digests.clear()
            if not digests:
                first = offset
            digests += compute_record_digest(self.key, rest, timestamp if self.timestamps else None)
            expected = offset + 1
        if digests:
            self.builder.add(first, bytes(digests), aborted=gone)


def _batches(answer: FetchedPartition) -> list[tuple[RawBatch, bool]]:
    """The whole batches with whether they were aborted. An answer lists all aborted transactions that touch it, so
    nothing is remembered from one to the next (the Java consumer's CompletedFetch)."""
    waiting = sorted(answer.aborted, key=lambda entry: entry[1], reverse=True)
    aborting: set[int] = set()
    found: list[tuple[RawBatch, bool]] = []
    for batch in decode_batches(answer.records):
        while waiting and waiting[-1][1] < batch.end:
            aborting.add(waiting.pop()[0])
        if batch.control:
            # An aborted producer's next marker ends that transaction: it is the abort.
            aborting.discard(batch.producer_id)
        found.append((batch, batch.transactional and batch.producer_id in aborting))
    return found


def _fetch(link: Connection, led: LeaderLog, wanted: PartitionRange, position: int) -> FetchedPartition | None:
    """One answer; None when the leader has moved."""
    asked = FetchPartition(led.topic_id, wanted.partition, position, max_bytes=_FETCH_BYTES)
    (answer,) = link.fetch((asked,), max_wait_ms=500, isolation=READ_COMMITTED)
    if answer.error in _MOVES:
        return None
    if answer.error == error_codes.OFFSET_OUT_OF_RANGE:
        raise NotProvable(f"{wanted}: offset {position} expired while it was read; ask again")
    if answer.error:
        raise NotProvable(
            f"{wanted}: the broker answers {error_codes.describe_error_code(answer.error)} to a Fetch at {position}"
        )
    return answer


def _leader(wanted: PartitionRange) -> LeaderLog:
    led = read_leader_logs(wanted.settings, [(wanted.topic, wanted.partition)], READ_COMMITTED)[
        wanted.topic, wanted.partition
    ]
    if isinstance(led, ClusterError):
        raise led
    return led


def _close(link: Connection | None) -> Connection | None:
    """What is left of the connection: nothing."""
    if link is not None:
        link.close()
    return None
