"""Reading a range of one partition as fingerprints, from raw record batches (`clusters.wire`).

Rules, each of them a mistake somebody shipped (research/verification §3.7): the range is half-open and fixed before;
reading ends at an offset, never at an empty answer; a position may step over markers, aborted and compacted records,
so gaps are no loss; a log that starts behind the position is (`Expired`); a log that ends before the range does is
an error, as is an answer that does not come. Checksums are verified. Only committed records count.

This reader shares no code with the replicator, whose work it is to judge.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clusters.errors import Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire import codes
from clusters.wire.connection import Connection, connect
from clusters.wire.messages import FetchedPartition, FetchPartition
from spark.batches import Batch, CorruptBatch, locate, split
from spark.errors import NotReadable
from spark.fingerprint import Prints, print_slices
from spark.window import Span

FETCH_BYTES = 8 << 20
BLOCK_RECORDS = 40_000  # hashed together; numpy wants many, memory wants few
BLOCK_BYTES = 16 << 20
PATIENCE_S = 60.0  # without any progress

_LEADER_MOVES = frozenset({5, 6, 13, 74, 75, 76})  # leader not available, not leader, ..., fenced and unknown epochs


@dataclass(frozen=True, slots=True)
class PartitionAddress:
    """What is read: `skip` are producer ids whose batches the flow leaves out (its loop guard)."""

    settings: ConnectionSettings
    topic: str
    topic_id: uuid.UUID
    partition: int
    timestamps: bool = True
    skip: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on {self.settings.alias}"


class Expired(Exception):
    """The log now starts at `log_start`, behind the position that was to be read."""

    def __init__(self, log_start: int) -> None:
        super().__init__(f"the log starts at {log_start} now")
        self.log_start = log_start


def read_prints(address: PartitionAddress, span: Span) -> Iterator[Prints]:
    """Fingerprints of the committed records of `span`, block by block in log order.

    Raises Expired, NotReadable, ClusterError.
    """
    waiting: list[Batch] = []
    records = size = 0
    for batch in _batches(address, span):
        waiting.append(batch)
        records, size = records + batch.count, size + len(batch.raw)
        if records >= BLOCK_RECORDS or size >= BLOCK_BYTES:
            yield _prints(address, waiting, span)
            waiting, records, size = [], 0, 0
    if waiting:
        yield _prints(address, waiting, span)


def read_all(address: PartitionAddress, span: Span) -> Prints:
    """The whole span as one block (for record-level comparison of a small one)."""
    blocks = list(read_prints(address, span))
    names = ("offset", "fp", "kh", "vh", "hh", "ts")
    types = (np.int64, np.uint64, np.uint64, np.uint64, np.uint64, np.int64)
    columns = [
        np.concatenate([getattr(b, name) for b in blocks]) if blocks else np.empty(0, dtype=kind)
        for name, kind in zip(names, types, strict=True)
    ]
    return Prints(*columns, size=sum(b.size for b in blocks))


def _prints(address: PartitionAddress, batches: list[Batch], span: Span) -> Prints:
    try:
        prints = print_slices(locate(batches), timestamps=address.timestamps)
    except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
        raise NotReadable(f"{address}: {error}") from None
    return prints.between(span.start, span.end)


def _batches(address: PartitionAddress, span: Span) -> Iterator[Batch]:
    position, link, since = span.start, None, time.monotonic()
    try:
        while position < span.end:
            try:
                link = link or _leader(address)
                answer = _fetch(link, address, position)
            except Unreachable:
                _close(link)
                link = None
                if time.monotonic() - since > PATIENCE_S:
                    raise
                time.sleep(0.5)
                continue
            if answer is None or not len(answer.records):
                if answer is None:
                    _close(link)
                    link = None
                if time.monotonic() - since > PATIENCE_S:
                    raise _stuck(address, position, span, answer)
                if answer is not None and answer.last_stable < span.end and answer.high_watermark < span.end:
                    raise _stuck(address, position, span, answer)
                time.sleep(0.05)
                continue
            before = position
            for batch in _committed(address, answer):
                position = max(position, batch.last_offset + 1)
                if batch.count and not batch.control and batch.last_offset >= before and batch.base_offset < span.end:
                    yield batch
            position = max(position, _end_of_whole(answer.records))
            since = time.monotonic() if position > before else since
    except (CorruptBatch, ValueError) as error:
        raise NotReadable(f"{address}: {error}") from None
    finally:
        _close(link)


def _committed(address: PartitionAddress, answer: FetchedPartition) -> Iterator[Batch]:
    """Batches that count: no control batches, no aborted ones, none of the producers to skip.

    An answer lists all aborted transactions that touch it, so nothing is remembered between answers (Java
    consumer, CompletedFetch).
    """
    ahead = sorted(answer.aborted, key=lambda transaction: transaction[1])
    aborted: set[int] = set()
    for batch in split(answer.records):
        while ahead and ahead[0][1] <= batch.last_offset:
            aborted.add(ahead.pop(0)[0])
        if batch.control:
            if batch.aborts:
                aborted.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in aborted) and batch.producer_id not in address.skip:
            yield batch


def _end_of_whole(records: memoryview) -> int:
    """The offset behind the last whole batch, whatever it held."""
    at, end, behind = 0, len(records), -1
    while end - at >= 61:
        size = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if at + size > end:
            break
        behind = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += size
    return behind


def _fetch(link: Connection, address: PartitionAddress, position: int) -> FetchedPartition | None:
    """One answer; None when the leader has moved."""
    asked = FetchPartition(address.topic_id, address.partition, position, max_bytes=FETCH_BYTES)
    [answer] = link.fetch((asked,), max_wait_ms=1000)
    if answer.error == 0:
        return answer
    if answer.error in _LEADER_MOVES:
        time.sleep(0.3)
        return None
    if answer.error == 1:  # offset out of range
        start = answer.log_start if answer.log_start >= 0 else _log_start(link, address)
        if start > position:
            raise Expired(start)
        raise NotReadable(f"{address}: offset {position} is beyond its end; was the log truncated?")
    if answer.error == 100:  # unknown topic id
        raise NotReadable(f"{address}: the topic was deleted or made anew while it was read")
    raise NotReadable(f"{address}: the broker answered {codes.name_of(answer.error)} to a fetch at {position}")


def _log_start(link: Connection, address: PartitionAddress) -> int:
    from clusters.wire.messages import EARLIEST

    [answer] = link.list_offsets(((address.topic, address.partition),), EARLIEST)
    return answer.offset


def _leader(address: PartitionAddress) -> Connection:
    link = connect(address.settings)
    try:
        answer = link.metadata((address.topic,))
    finally:
        link.close()
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.partition == address.partition and partition.node in answer.brokers:
                return connect(address.settings, answer.brokers[partition.node])
    raise Unreachable(f"{address} has no leader just now", alias=address.settings.alias)


def _stuck(address: PartitionAddress, position: int, span: Span, answer: FetchedPartition | None) -> NotReadable:
    seen = f"; its log ends at {answer.high_watermark}" if answer is not None else "; its leader keeps moving"
    return NotReadable(f"{address}: nothing more to read at offset {position}, before {span.end}{seen}")


def _close(link: Connection | None) -> None:
    if link is not None:
        link.close()
