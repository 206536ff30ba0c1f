"""Matched batches: equal batches on both sides of a chunk that differs. They need not be opened.

A worker passes batches on as they are but for tiny ones, of which it makes one (decision 0017). So the copy of a busy
topic differs here and there, and most of it is the source's still. A batch is matched when its digest is that of the
batch that stands on the target where the offset map says its first record stands. Its records are then proven, and only
what lies between matched batches is judged record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from watershed.spark.fingerprint import ChunkSum
from watershed.spark.reading.batch_digests import BatchDigests, sum_batch_digests
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.xxh64 import I64

MIN_LISTED_BYTES = 8 << 10  # bytes of a batch as stored; the worker merges smaller ones

_Spans = tuple[tuple[int, int], ...]


class MatchedBatches(NamedTuple):
    """Offsets (first, end) of matched batches on both sides, in order, as many on one as on the other, and their
    sums."""

    source: _Spans = ()
    target: _Spans = ()
    sums: ChunkSum = ChunkSum()
    target_sums: ChunkSum = ChunkSum()

    def __bool__(self) -> bool:
        return bool(self.source)


def match_batches(
    source: BatchDigests,
    target: BatchDigests,
    within: tuple[OffsetRange, OffsetRange],
    to_target: Callable[[int], int],
    *,
    in_place: bool = False,
) -> MatchedBatches:
    """Batches of both sides that are the same and lie wholly `within` the chunk's spans (source, target).

    to_target: the offset map. in_place: sums as for an aligned copy, where a match has the same offset on both sides.
    """
    source, target = (_inside(side, span) for side, span in zip((source, target), within, strict=True))
    if not len(source) or not len(target):
        return MatchedBatches()
    expected = np.array([to_target(base) for base in source.base.tolist()], dtype=np.int64)
    at = np.searchsorted(target.base, expected)
    there = np.minimum(at, len(target) - 1)
    same = (target.base[there] == expected) & (target.digest[there] == source.digest) & (at < len(target))
    if in_place:
        same &= source.base == expected
    rows = np.flatnonzero(same)
    _, first = np.unique(there[rows], return_index=True)  # in a gap of the map two batches are expected at one place
    rows = rows[first]
    ours, theirs = source.take(rows), target.take(there[rows])
    base = 0 if in_place else None
    spans, target_spans = _spans(ours, theirs)
    return MatchedBatches(spans, target_spans, sum_batch_digests(ours, base=base), sum_batch_digests(theirs, base=base))


def _inside(digests: BatchDigests, span: OffsetRange) -> BatchDigests:
    return digests.take(np.flatnonzero((digests.base >= span.start) & (digests.last < span.end)))


def _spans(*sides: BatchDigests) -> tuple[_Spans, ...]:
    """Offsets of the batches on each side; batches that follow one another on all sides are joined."""
    count = len(sides[0])
    if not count:
        return tuple(() for _ in sides)
    apart = np.logical_or.reduce([side.base[1:] != side.last[:-1] + 1 for side in sides])
    begins: I64 = np.flatnonzero(np.concatenate(([True], apart)))
    last = np.concatenate((begins[1:] - 1, [count - 1]))
    return tuple(tuple(zip(side.base[begins].tolist(), (side.last[last] + 1).tolist(), strict=True)) for side in sides)
