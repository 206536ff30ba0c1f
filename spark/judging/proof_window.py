"""The window of a proof: the ranges of offsets that it compares, fixed once before anything is read.

Source start = max(log start, start of the flow or of the earlier proof). Source end = min(barrier, copied position).
The barrier is the last stable offset when the proof began. The offset map gives the target's range. Whatever lies
outside is reported by name: *pending* (below the barrier, not copied yet), *unverifiable* (gone on one side before it
could be read), *not compared* (before the flow, or expired earlier).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.flow_records import StartPosition
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.foreign_part import JoinedOffsetMap
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.reading.offset_range import OffsetRange

DEFAULT_CHUNK_OFFSETS = 50_000  # source offsets, where the partition's size in bytes is not known
TARGET_CHUNK_BYTES = 64 << 20
SMALLEST_CHUNK, LARGEST_CHUNK = 1 << 10, 1 << 20  # offsets; a chunk that differs is held in memory record by record


class PartitionPair(NamedTuple):
    """One partition of a flow, by its names on both sides."""

    flow: str
    topic: str
    target_topic: str
    partition: int

    @property
    def name(self) -> str:
        """The source's partition as findings name it: `orders-3`."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ObservedPartition:
    """What was read of one partition, in this order: `target`, the map, `source`.

    barrier: the source's last stable offset when the proof began; the ends of `source` and `target` are last
    stable offsets. ids: topic ids on source and target.
    """

    place: PartitionPair
    source: LogRange
    target: LogRange
    map: OffsetMap
    barrier: int
    ids: tuple[uuid.UUID, uuid.UUID]


@dataclass(frozen=True, slots=True)
class ProofWindow:
    """What is compared of one partition: `source` with `target`. `tail` may hold pending records.

    unverifiable: records that were copied and are gone on one side. open_end: `target` reaches the log's end. It also
    does when the target holds more than the source can explain, so that the proof reads the surplus.
    """

    place: PartitionPair
    source: OffsetRange
    target: OffsetRange
    tail: OffsetRange
    ids: tuple[uuid.UUID, uuid.UUID]
    unverifiable: int = 0
    open_end: bool = False
    not_compared: tuple[str, ...] = field(default=())


class EarlierWindow(NamedTuple):
    """What an earlier proof of the same partition covered: where its window began on both sides, and the ranges of it
    (source, target) that were proven, in log order."""

    source_start: int
    target_start: int
    proven: tuple[tuple[OffsetRange, OffsetRange], ...] = ()


def fix_window(
    seen: ObservedPartition,
    *,
    start: StartPosition = "earliest",
    final: bool = False,
    earlier: EarlierWindow | None = None,
) -> ProofWindow:
    """The window of one partition. start: the flow's start position, or the offset at which it was told to begin.
    final: the source is fenced.

    Records behind the barrier are not read. With `final` they are read, because nothing should have been written there.
    """
    runs = seen.map.runs
    barrier = max(seen.barrier, seen.source.end) if final else seen.barrier
    if not runs:  # nothing copied yet: whatever stands on the target is not from this flow
        told = start if isinstance(start, int) else barrier
        begin = seen.source.start if start == "earliest" else max(seen.source.start, told)
        target = OffsetRange(seen.target.start, seen.target.end)
        tail = OffsetRange(begin, max(begin, barrier))
        return ProofWindow(seen.place, OffsetRange(begin, begin), target, tail, seen.ids, open_end=True)

    notes: list[str] = []
    where = seen.place.name
    position = seen.map.source_position(seen.target.end)
    everything = position > max(seen.source.end, barrier)  # more than the source can explain
    begin, unverifiable = _begin(seen, start, earlier, notes, where)
    if gone := max(0, min(seen.source.start, barrier) - position):
        unverifiable += gone
        end = position + gone - 1
        notes.append(f"{where}: source offsets {position} to {end} expired before they were copied")
    source_end = max(min(barrier, position), begin)
    low = _target(seen, begin)
    high = seen.target.end if everything else _target(seen, source_end)
    if seen.target.start > low:
        left = min(seen.target.start, high)
        if gone := _uncovered(earlier, low, left):
            unverifiable += gone
            notes.append(f"{where}: {gone} records already expired on the target")
        low = left
        begin = min(max(begin, seen.map.to_source(low)), source_end)
    return ProofWindow(
        seen.place,
        OffsetRange(begin, source_end),
        OffsetRange(low, max(low, high)),
        OffsetRange(source_end, max(source_end, barrier)),
        seen.ids,
        unverifiable,
        high == seen.target.end,
        tuple(notes),
    )


def choose_chunk_offsets(size: int | None, offsets: int) -> int:
    """How many offsets make a chunk of about 64 MiB. size: the partition's bytes (None: not known). offsets: the number
    of its offsets. The result is a power of two: the next proof of a grown partition cuts at the same places."""
    if not size or offsets <= 0:
        return DEFAULT_CHUNK_OFFSETS
    wanted = TARGET_CHUNK_BYTES * offsets // size
    return min(LARGEST_CHUNK, max(SMALLEST_CHUNK, 1 << max(0, wanted.bit_length() - 1)))


def cut_chunks(
    source: OffsetRange, target: OffsetRange, offsets: OffsetMap, size: int
) -> Iterator[tuple[OffsetRange, OffsetRange]]:
    """Pairs of ranges (source, target), one after another, that together cover both; about `size` source offsets each.

    A cut begins at a multiple of `size`, so that another proof of the same log cuts at the same places. It then moves
    to the next copied record, because there both sides can be cut.
    """
    points = [(source.start, target.start)]
    for at in range((source.start // size + 1) * size, source.end, size):
        there = offsets.to_target(at, target.end)
        here = offsets.to_source(there)
        if here >= source.end:
            break
        if here > points[-1][0] and there >= points[-1][1]:
            points.append((here, there))
    points.append((source.end, target.end))
    for (a, x), (b, y) in pairwise(points):
        if b > a or y > x:
            yield OffsetRange(a, b), OffsetRange(x, y)


def has_same_mapping(seen: ObservedPartition, source: OffsetRange, target: OffsetRange) -> bool:
    """Whether an earlier proof of these ranges is still valid: the offset map still maps one to the other."""
    if not seen.map.runs or target.end > seen.target.end:
        return False
    try:
        ends = [seen.map.to_target(offset, seen.target.end) for offset in source]
    except ReplicatorError:
        return False
    return ends == list(target)


def _begin(
    seen: ObservedPartition, start: StartPosition, earlier: EarlierWindow | None, notes: list[str], where: str
) -> tuple[int, int]:
    """Returns (source start, number of unverifiable records)."""
    first, log_start = seen.map.runs[0], seen.source.start
    told = start if isinstance(start, int) else first.source
    begin = log_start if start == "earliest" else max(log_start, told)
    if earlier is not None:
        gone = _uncovered(earlier, earlier.target_start, _target(seen, log_start))
        if gone:
            notes.append(f"{where}: {gone} records expired on the source since the earlier proof")
        return begin, gone
    if log_start > first.source:
        gone = _target(seen, log_start) - first.target
        if gone:
            notes.append(f"{where}: {gone} copied records had expired on the source before the proof began")
    if isinstance(seen.map, JoinedOffsetMap) and seen.map.extra:
        spans, tool = seen.map.extra, seen.map.tool
        notes.append(
            f"{where}: {sum(span.end - span.first for span in spans)} target offsets between {spans[0].first} and "
            f"{spans[-1].end - 1} hold what {tool} left beside one copy of each record, as was accepted when the flow "
            "went on behind it"
        )
    if first.target > seen.target.start:
        notes.append(f"{where}: {first.target - seen.target.start} records on the target are older than the flow")
    return begin, 0


def _uncovered(earlier: EarlierWindow | None, start: int, end: int) -> int:
    """Target offsets from start to end that no earlier proof has proven."""
    known = earlier.proven if earlier is not None else ()
    covered = sum(max(0, min(end, target.end) - max(start, target.start)) for _, target in known)
    return max(0, end - start - covered)


def _target(seen: ObservedPartition, source_offset: int) -> int:
    """The target offset of a source offset. At the copied position and behind it, this is the target's end."""
    if source_offset >= seen.map.source_position(seen.target.end):
        return seen.target.end
    return seen.map.to_target(source_offset, seen.target.end)
