"""Sums of neighbouring ranges of one partition, read as one stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from clusters.errors import ClusterError
from spark.errors import NotReadable
from spark.fingerprint import MASK, ChunkSum, Prints, sum_prints
from spark.reading.addresses import address_of
from spark.reading.digests import Digests, joined, rows_of, sum_digests
from spark.reading.matching import LISTED
from spark.reading.ranges import Expired, PartitionAddress, read_digests, read_prints
from spark.reading.spans import Span
from spark.reading.units import Unit
from topology.plan import PlanCluster

_SPAN = 0x9E3779B97F4A7C15  # odd, and no number of records


@dataclass(frozen=True, slots=True)
class UnitSum:
    """What reading a unit gave. state: read, expired (`log_start` says where the log starts now) or failed.

    Of batches, by which only whole ones are summed up: `first` is the base offset of the first that begins in the unit,
    `behind` the offset behind the last of those (-1: there is none); `straddled` says that a batch stands over the
    unit's start, which is not in the sum. `listed`: the batches of a unit that was to list them, without the smallest.
    """

    unit: int
    state: str
    detail: str
    log_start: int
    sums: ChunkSum
    ms: int
    first: int = -1
    behind: int = -1
    straddled: bool = False
    listed: Digests | None = None


def read_units(cluster: PlanCluster, units: Sequence[Unit]) -> Iterator[UnitSum]:
    """Sums of neighbouring units, read as one stream."""
    asked, waiting = units[0], list(units)
    running = _Running(asked)
    try:
        address = address_of(cluster, asked)
        read: Callable[[PartitionAddress, Span], Iterator[Digests | Prints]]
        left_out = sorted({span for unit in units for span in unit.left_out})
        read = partial(read_prints, left_out=left_out) if asked.by == "records" else read_digests
        while waiting:
            try:
                for block in read(address, Span(waiting[0].start, units[-1].end)):
                    while waiting:
                        running.add(waiting[0], block)
                        if not len(block) or last_offset(block) < waiting[0].end:
                            break
                        yield running.finished(waiting.pop(0))
                while waiting:
                    yield running.finished(waiting.pop(0))
            except Expired as expired:  # what lies above the log's new start can still be read
                yield running.finished(waiting.pop(0), "expired", str(expired), expired.log_start)
                while waiting and waiting[0].start < expired.log_start:
                    yield running.finished(waiting.pop(0), "expired", str(expired), expired.log_start)
    except (ClusterError, NotReadable) as error:
        while waiting:
            yield running.finished(waiting.pop(0), "failed", str(error))


def last_offset(block: Digests | Prints) -> int:
    """The last offset that a block says something of."""
    return int(block.last[-1] if isinstance(block, Digests) else block.offset[-1])


def _between_known(prints: Prints, known: Sequence[tuple[int, int]]) -> int:
    """What is added to a run's `order`, so that a record that has moved over batches that were not opened differs: the
    sum of (number of such spans before a record) * fp, in a weight of its own."""
    before = np.searchsorted(np.array([first for first, _ in known], dtype=np.int64), prints.offset)
    return int((before.astype(np.uint64) * prints.fp).sum()) * _SPAN & MASK


class _Running:
    """The sum of the unit that is being read."""

    def __init__(self, unit: Unit) -> None:
        self._by, self._in_place = unit.by, unit.in_place
        self._begin()

    def _begin(self) -> None:
        self._sums, self._first, self._behind, self._straddled = ChunkSum(), -1, -1, False
        self._listed: list[Digests] = []
        self._between = 0
        self._since = time.monotonic()

    def add(self, unit: Unit, block: Digests | Prints) -> None:
        """What of the block belongs to the unit."""
        base = 0 if unit.in_place else None  # the same on both sides, wherever their ranges begin
        if isinstance(block, Digests):
            here = block.between(unit.start, unit.end)
            sums = sum_digests(here, base=base)
            if len(here):
                self._first = int(here.base[0]) if self._first < 0 else self._first
                self._behind = int(here.last[-1]) + 1
            if unit.by == "lists":
                self._listed.append(
                    rows_of(block, (block.size >= LISTED) & (block.base >= unit.start) & (block.base < unit.end))
                )
            self._straddled |= bool(((block.base < unit.start) & (block.last >= unit.start)).any())
        else:
            prints = block.between(unit.start, unit.end).without(unit.left_out)
            sums = sum_prints(prints, base=base)
            if unit.around_known and not unit.in_place:
                self._between += _between_known(prints, unit.left_out)
        self._sums = self._sums.joined_in_place(sums) if unit.in_place else self._sums + sums

    def finished(self, unit: Unit, state: str = "read", detail: str = "", log_start: int = -1) -> UnitSum:
        ms = int((time.monotonic() - self._since) * 1000)
        marks = self._first, self._behind, self._straddled
        listed = joined(self._listed) if unit.by == "lists" else None
        sums = replace(self._sums, order=(self._sums.order + self._between) & MASK)
        result = UnitSum(unit.id, state, detail, log_start, sums, ms, *marks, listed)
        self._begin()
        return result
