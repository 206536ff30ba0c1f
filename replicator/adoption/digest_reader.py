"""One partition's log as digests: its batches are fetched as they are stored, their records walked, nothing is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watershed.clusters.errors import Unreachable
from watershed.clusters.record_fingerprint import digest_record
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import READ_COMMITTED, FetchedPartition, FetchPartition
from watershed.replicator.adoption.log_digests import DigestedLog, DigestedLogBuilder
from watershed.replicator.batch.batch_selection import decode_with_outcome
from watershed.replicator.batch.legacy_formats import decode_records_of_any_format
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.errors import BadBatch, ReplicatorError
from watershed.replicator.recovery.log_inspection import LeaderLog, require_leader_logs

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
                    place = (wanted.topic, wanted.partition)
                    (led,) = require_leader_logs(wanted.settings, [place], READ_COMMITTED).values()
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
    """What becomes of Fetch answers, without I/O. aborted: see `read_log_digests`."""

    wanted: PartitionRange
    key: bytes
    builder: DigestedLogBuilder
    timestamps: bool = True
    aborted: bool = False

    def take(self, answer: FetchedPartition, position: int) -> int:
        """Digest what an answer that was asked for at `position` holds; the next position. Raises BadBatch."""
        for batch, is_aborted in decode_with_outcome(answer.records, answer.aborted):
            if batch.end <= position:
                continue
            counts = batch.records and not batch.control and (self.aborted or not is_aborted)
            if counts and batch.base < self.wanted.end:
                self._digest(batch, is_aborted)
            position = batch.end
        return position

    def _digest(self, batch: RawBatch, is_aborted: bool) -> None:
        first, expected, digests = -1, -1, bytearray()
        for offset, timestamp, rest in decode_records_of_any_format(batch):
            if not self.wanted.start <= offset < self.wanted.end:
                continue
            if offset != expected and digests:
                self.builder.add(first, bytes(digests), aborted=is_aborted)
                digests.clear()
            if not digests:
                first = offset
            digests += digest_record(self.key, rest, timestamp if self.timestamps else None)
            expected = offset + 1
        if digests:
            self.builder.add(first, bytes(digests), aborted=is_aborted)


def _fetch(link: Connection, led: LeaderLog, wanted: PartitionRange, position: int) -> FetchedPartition | None:
    """One answer; None when the leader has moved."""
    asked = FetchPartition(led.topic_id, wanted.partition, position, max_bytes=_FETCH_BYTES)
    answer = fetch_one(link, asked, max_wait_ms=500, isolation=READ_COMMITTED)
    if answer.error in _MOVES:
        return None
    if answer.error == error_codes.OFFSET_OUT_OF_RANGE:
        raise NotProvable(f"{wanted}: offset {position} expired while it was read; ask again")
    if answer.error:
        raise NotProvable(
            f"{wanted}: the broker answers {error_codes.describe_error_code(answer.error)} to a Fetch at {position}"
        )
    return answer


def _close(link: Connection | None) -> Connection | None:
    """What is left of the connection: nothing."""
    if link is not None:
        link.close()
    return None
