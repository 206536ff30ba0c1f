"""Sums of neighbouring ranges of one partition, read as one stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from watershed.clusters.errors import ClusterError
from watershed.clusters.record_fingerprint import UINT64_MASK
from watershed.spark.errors import NotReadable
from watershed.spark.fingerprint import ChunkSum, RecordFingerprints, sum_fingerprints
from watershed.spark.reading.batch_digests import BatchDigests, join_digests, sum_batch_digests
from watershed.spark.reading.batch_matching import MIN_LISTED_BYTES
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_address import build_partition_address
from watershed.spark.reading.range_reader import read_batch_digests, read_fingerprints
from watershed.spark.reading.range_requests import RangeRequest
from watershed.topology.plan import PlanCluster

_SPAN = 0x9E3779B97F4A7C15  # odd, and no number of records


@dataclass(frozen=True, slots=True)
class RangeSum:
    """What reading a range gave. state: read, expired (`log_start` says where the log starts now) or failed.

    Of batches only whole ones are summed up. first: base offset of the first batch that begins in the range; behind:
    the offset behind the last of those; both -1 where none begins. straddled: a batch stands over the range's start; it
    is not in the sum. listed: the batches, without the smallest, where the request asks for a list.
    """

    request_id: int
    state: str
    detail: str
    log_start: int
    sums: ChunkSum
    ms: int
    first: int = -1
    behind: int = -1
    straddled: bool = False
    listed: BatchDigests | None = None


def sum_ranges(cluster: PlanCluster, requests: Sequence[RangeRequest]) -> Iterator[RangeSum]:
    """Sums of neighbouring ranges, read as one stream."""
    asked, waiting = requests[0], list(requests)
    running = _Running(asked)
    try:
        address = build_partition_address(cluster, asked)
        read: Callable[[PartitionAddress, OffsetRange], Iterator[BatchDigests | RecordFingerprints]]
        left_out = sorted({span for request in requests for span in request.left_out})
        read = partial(read_fingerprints, left_out=left_out) if asked.by == "records" else read_batch_digests
        while waiting:
            try:
                for block in read(address, OffsetRange(waiting[0].start, requests[-1].end)):
                    while waiting:
                        running.add(waiting[0], block)
                        if not len(block) or find_last_offset(block) < waiting[0].end:
                            break
                        yield running.finished(waiting.pop(0))
                while waiting:
                    yield running.finished(waiting.pop(0))
            except OffsetsExpired as expired:  # what lies above the log's new start can still be read
                yield running.finished(waiting.pop(0), "expired", str(expired), expired.log_start)
                while waiting and waiting[0].start < expired.log_start:
                    yield running.finished(waiting.pop(0), "expired", str(expired), expired.log_start)
    except (ClusterError, NotReadable) as error:
        while waiting:
            yield running.finished(waiting.pop(0), "failed", str(error))


def find_last_offset(block: BatchDigests | RecordFingerprints) -> int:
    """The last offset that a block says something of."""
    return int(block.last[-1] if isinstance(block, BatchDigests) else block.offset[-1])


def _weigh_between_known(prints: RecordFingerprints, known: Sequence[tuple[int, int]]) -> int:
    """Extra term of `order`. Matched batches are not opened, so a record that moved across one keeps its ordinal; the
    term adds (number of matched spans before the record) * fp, with a weight of its own, and makes the move visible."""
    before = np.searchsorted(np.array([first for first, _ in known], dtype=np.int64), prints.offset)
    return int((before.astype(np.uint64) * prints.fp).sum()) * _SPAN & UINT64_MASK


class _Running:
    """The sum of the range that is being read."""

    def __init__(self, request: RangeRequest) -> None:
        self._by, self._in_place = request.by, request.in_place
        self._begin()

    def _begin(self) -> None:
        self._sums, self._first, self._behind, self._straddled = ChunkSum(), -1, -1, False
        self._listed: list[BatchDigests] = []
        self._between = 0
        self._since = time.monotonic()

    def add(self, request: RangeRequest, block: BatchDigests | RecordFingerprints) -> None:
        """What of the block belongs to the range."""
        base = 0 if request.in_place else None  # the same on both sides, wherever their ranges begin
        if isinstance(block, BatchDigests):
            here = block.between(request.start, request.end)
            sums = sum_batch_digests(here, base=base)
            if len(here):
                self._first = int(here.base[0]) if self._first < 0 else self._first
                self._behind = int(here.last[-1]) + 1
            if request.by == "lists":
                begins_here = (block.base >= request.start) & (block.base < request.end)
                self._listed.append(block.take(begins_here & (block.size >= MIN_LISTED_BYTES)))
            self._straddled |= bool(((block.base < request.start) & (block.last >= request.start)).any())
        else:
            prints = block.between(request.start, request.end).without(request.left_out)
            sums = sum_fingerprints(prints, base=base)
            if request.around_known and not request.in_place:
                self._between += _weigh_between_known(prints, request.left_out)
        self._sums = self._sums.add_in_place(sums) if request.in_place else self._sums + sums

    def finished(self, request: RangeRequest, state: str = "read", detail: str = "", log_start: int = -1) -> RangeSum:
        ms = int((time.monotonic() - self._since) * 1000)
        marks = self._first, self._behind, self._straddled
        listed = join_digests(self._listed) if request.by == "lists" else None
        sums = replace(self._sums, order=(self._sums.order + self._between) & UINT64_MASK)
        result = RangeSum(request.id, state, detail, log_start, sums, ms, *marks, listed)
        self._begin()
        return result
