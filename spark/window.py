"""The window of a proof: one vector of offsets, fixed once before anything is read.

Source start = max(log start, where the flow or the earlier proof begins); source end = min(barrier, copied
through), the barrier being the last stable offset when the proof began. The target's range follows from the offset
map. What lies outside is named, never dropped in silence: *pending* (below the barrier, not copied yet),
*unverifiable* (gone on one side before it could be read), *not compared* (before the flow, expired before).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from clusters.surface import LogRange
from replicator.offsetmap import OffsetMap


class Span(NamedTuple):
    """Offsets start <= offset < end."""

    start: int
    end: int


class Place(NamedTuple):
    """One partition of a flow, by its names on both sides."""

    flow: str
    topic: str
    target_topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of one partition. `target` was read before the map, the map before `source`.

    barrier: the source's last stable offset when the proof began; the ends of `source` and `target` are last
    stable offsets. ids: topic ids on source and target.
    """

    place: Place
    source: LogRange
    target: LogRange
    map: OffsetMap
    barrier: int
    ids: tuple[uuid.UUID, uuid.UUID]


@dataclass(frozen=True, slots=True)
class Window:
    """What is compared of one partition: `source` with `target`; `tail` may hold pending records.

    unverifiable: records that were copied and are gone on one side. open_end: `target` reaches the log's end, as it
    does when it holds more than the source can explain (so that this content is looked at).
    proven_earlier: records below the window that the summary named by `since` has proven.
    """

    place: Place
    source: Span
    target: Span
    tail: Span
    ids: tuple[uuid.UUID, uuid.UUID]
    unverifiable: int = 0
    proven_earlier: int = 0
    open_end: bool = False
    not_compared: tuple[str, ...] = field(default=())


class Earlier(NamedTuple):
    """Where an earlier proof of the same partition ended."""

    source_end: int
    target_end: int
    proven: int


def fix_window(
    seen: Observed, *, start: str = "earliest", final: bool = False, earlier: Earlier | None = None
) -> Window:
    """The window of one partition. `start` is the flow's ("earliest" or "latest"); `final`: the source is fenced."""
    runs = seen.map.runs
    notes: list[str] = []
    where = f"{seen.place.topic}-{seen.place.partition}"
    if not runs:  # nothing copied yet: whatever stands on the target is not from this flow
        begin = seen.source.start if start == "earliest" else seen.barrier
        target = Span(seen.target.start, seen.target.end)
        return Window(seen.place, Span(begin, begin), target, Span(begin, max(begin, seen.barrier)), seen.ids)

    target_end = seen.target.end
    position = seen.map.source_position(target_end)
    source_end = min(seen.barrier, position)
    everything = final or position > max(seen.source.end, seen.barrier)  # more than the source can explain
    begin, unverifiable, proven_earlier = _begin(seen, start, earlier, notes, where)
    if seen.source.start > position and seen.barrier > position:
        gone = seen.source.start - position
        unverifiable += gone
        notes.append(f"{where}: source offsets {position} to {seen.source.start - 1} expired before they were copied")
    source_end = max(source_end, begin)
    low = earlier.target_end if earlier and earlier.source_end == begin else _target(seen, begin)
    if seen.target.start > low:
        gone = min(seen.target.start, target_end) - low
        unverifiable += gone
        notes.append(f"{where}: {gone} records already expired on the target")
        low = min(seen.target.start, target_end)
        begin = min(max(begin, seen.map.to_source(low)), source_end)
    high = target_end if everything else _target(seen, source_end)
    tail = Span(source_end, max(source_end, seen.barrier))
    return Window(
        seen.place,
        Span(begin, source_end),
        Span(low, max(low, high)),
        tail,
        seen.ids,
        unverifiable,
        proven_earlier,
        high == target_end,
        tuple(notes),
    )


def cut(window: Window, offsets: OffsetMap, size: int) -> Iterator[tuple[Span, Span]]:
    """(source, target) spans that follow one another and cover the window; about `size` source offsets each.

    Cuts lie on multiples of `size`, so that another proof of the same log cuts at the same places; each is moved
    to the next copied record, which is a cut on both sides.
    """
    source, target = window.source, window.target
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
            yield Span(a, b), Span(x, y)


def _begin(seen: Observed, start: str, earlier: Earlier | None, notes: list[str], where: str) -> tuple[int, int, int]:
    """(source start, unverifiable, proven earlier)."""
    first, log_start = seen.map.runs[0], seen.source.start
    if earlier is not None:
        begin = max(log_start, earlier.source_end)
        gone = max(0, _target(seen, begin) - earlier.target_end) if begin > earlier.source_end else 0
        if gone:
            notes.append(f"{where}: {gone} records expired on the source since the earlier proof")
        return begin, gone, earlier.proven
    begin = log_start if start == "earliest" else max(log_start, first.source)
    if log_start > first.source:
        gone = _target(seen, log_start) - first.target
        if gone:
            notes.append(f"{where}: {gone} copied records had expired on the source before the proof began")
    if first.target > seen.target.start:
        notes.append(f"{where}: {first.target - seen.target.start} records on the target are older than the flow")
    return begin, 0, 0


def _target(seen: Observed, source_offset: int) -> int:
    """Target offset of a source offset; past what was copied it is the target's end."""
    if source_offset >= seen.map.source_position(seen.target.end):
        return seen.target.end
    return seen.map.to_target(source_offset, seen.target.end)
