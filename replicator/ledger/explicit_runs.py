"""The offset map of a partition that others write to as well: stretches with explicit lengths.

Between two of our stretches lie other producers' records and markers, so no stretch follows from its neighbours, and
the target's log end says nothing. What is known is exactly what our transactions have written down.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from operator import add, gt, ne, or_, sub

from watershed.replicator.errors import NotCopied, ReplicatorError
from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun


@dataclass(frozen=True, slots=True)
class ExplicitRunMap(OffsetMap):
    """Stretches in log order. `begin`: where the copy began (target's log end then, first source offset); `position`:
    the source is copied through (everything below) this offset.

    Raises ReplicatorError for stretches that overlap or run backwards on either side.
    """

    counted: ColumnRows[ExplicitRun]
    begin: OffsetRun
    position: int
    _end: int = field(init=False, repr=False, compare=False)  # on the target, behind our last record

    @staticmethod
    def over(counted: Iterable[ExplicitRun], begin: OffsetRun, position: int) -> ExplicitRunMap:
        """The map of these stretches. `runs` are their beginnings, or `begin` while nothing is copied."""
        stretches = ColumnRows.of(ExplicitRun, counted)
        targets, sources, _ = stretches.columns
        return ExplicitRunMap(
            ColumnRows(OffsetRun, (targets, sources)) if stretches else (begin,), stretches, begin, position
        )

    def __post_init__(self) -> None:
        targets, sources, records = self.counted.columns
        ends = array("q", map(add, targets, records)), array("q", map(add, sources, records))
        if any(map(gt, ends[0], targets[1:])) or any(map(gt, ends[1], sources[1:])):
            before, after = next(
                (a, b)
                for a, b in pairwise(self.counted)
                if b.target < a.target + a.records or b.source < a.source + a.records
            )
            raise ReplicatorError(f"the offset map contradicts itself: {before} then {after}")
        if ends[1] and self.position < ends[1][-1]:
            last = self.counted[-1]
            raise ReplicatorError(f"the offset map contradicts itself: copied through {self.position}, but {last}")
        object.__setattr__(self, "_sources", sources)
        object.__setattr__(self, "_targets", targets)
        object.__setattr__(self, "_end", ends[0][-1] if ends[0] else self.begin.target)

    def to_target(self, source_offset: int, target_end: int) -> int:
        """See OffsetMap. At the position itself: the offset behind our last record, so that nothing is skipped."""
        at = bisect_right(self._sources, source_offset) - 1
        if source_offset > self.position:
            raise NotCopied(source_offset, self.source_position(target_end))
        if at >= 0 and source_offset < _source_end(self.counted[at]):
            target = self.counted[at].target + source_offset - self.counted[at].source
        elif at + 1 < len(self.counted):
            target = self.counted[at + 1].target
            if at < 0:
                return min(target, target_end)
        else:
            target = self._end
        if target > target_end:
            raise NotCopied(source_offset, self.source_position(target_end))
        return target

    def to_source(self, target_offset: int) -> int:
        """The source offset that stands at `target_offset`; at a foreign record or marker that of our next record."""
        at = bisect_right(self._targets, target_offset) - 1
        if at < 0 and target_offset < self.begin.target:
            raise ReplicatorError(f"target offset {target_offset} lies before the first copied record")
        if at >= 0 and target_offset < _target_end(self.counted[at]):
            return self.counted[at].source + target_offset - self.counted[at].target
        return self.counted[at + 1].source if at + 1 < len(self.counted) else self.position

    def source_position(self, target_end: int) -> int:
        """Source offset to copy next if the target log ends at `target_end`."""
        return self.position if target_end >= self._end else self.to_source(target_end)

    def find_last_record(self, target_end: int) -> OffsetRun | None:
        """See OffsetMap. Records of other writers and markers are passed over."""
        at = bisect_right(self._targets, target_end - 1) - 1
        if at < 0:
            return None
        target, source, records = self.counted[at]
        last = min(records, target_end - target) - 1
        return OffsetRun(target + last, source + last)

    def stretches(self, target_end: int) -> Iterator[ExplicitRun]:
        """The runs below `target_end`; the last one is cut there."""
        for target, source, records in self.counted:
            if target < target_end:
                yield ExplicitRun(target, source, min(records, target_end - target))

    def extended(self, run: OffsetRun) -> OffsetMap:
        """Raises ReplicatorError: this map holds runs with a length only."""
        raise ReplicatorError(f"a run without a length ({run}) cannot extend a map of stretches")


@dataclass(frozen=True, slots=True)
class RepeatedRunMap(ExplicitRunMap):
    """The map of a partition that is copied with repeats. known_end: the log is known below this target offset.
    repeated: runs that stand there once more; no source offset is translated into one of them."""

    known_end: int
    repeated: tuple[ExplicitRun, ...]

    @staticmethod
    def beside(runs: ExplicitRunMap, known_end: int, repeated: tuple[ExplicitRun, ...]) -> RepeatedRunMap:
        """The map of these runs, with what is known of the rest of the log."""
        return RepeatedRunMap(runs.runs, runs.counted, runs.begin, runs.position, known_end, repeated)

    def to_target(self, source_offset: int, target_end: int) -> int:
        """See OffsetMap. Between two runs: the first target offset behind the earlier one that is not known to be
        repeated. Records may stand there that nobody could compare, and that a group must not skip."""
        target = ExplicitRunMap.to_target(self, source_offset, target_end)
        at = bisect_right(self._sources, source_offset) - 1
        if at + 1 == len(self.counted) or (at >= 0 and source_offset < _source_end(self.counted[at])):
            return target
        return min(target, self._skip_repeated(_target_end(self.counted[at]) if at >= 0 else self.begin.target))

    def _skip_repeated(self, target: int) -> int:
        at = bisect_right(self.repeated, target, key=lambda run: run.target) - 1
        while 0 <= at < len(self.repeated) and self.repeated[at].target <= target < _target_end(self.repeated[at]):
            target, at = _target_end(self.repeated[at]), at + 1
        return target


def _source_end(stretch: ExplicitRun) -> int:
    return stretch.source + stretch.records


def _target_end(stretch: ExplicitRun) -> int:
    return stretch.target + stretch.records


def join_explicit_runs(stretches: Iterable[ExplicitRun]) -> list[ExplicitRun]:
    """Stretches in log order, joined where both offsets advance equally."""
    joined: list[ExplicitRun] = []
    for stretch in stretches:
        if joined and (_target_end(joined[-1]), _source_end(joined[-1])) == (stretch.target, stretch.source):
            joined[-1] = joined[-1]._replace(records=joined[-1].records + stretch.records)
        else:
            joined.append(stretch)
    return joined


def concatenate_explicit_runs(pieces: Iterable[ColumnRows[ExplicitRun]]) -> ColumnRows[ExplicitRun]:
    """What `join_explicit_runs` makes of all pieces together, in columns."""
    targets, sources, records = array("q"), array("q"), array("q")
    for piece in pieces:
        for all_of_it, more in zip((targets, sources, records), piece.columns, strict=True):
            all_of_it.extend(more)
    if not targets:
        return ColumnRows(ExplicitRun, (targets, sources, records))
    target_ends = array("q", map(add, targets, records))
    source_ends = map(add, sources, records)
    first = [True, *map(or_, map(ne, targets[1:], target_ends), map(ne, sources[1:], source_ends))]
    last = chain(first[1:], (True,))
    starts = array("q", compress(targets, first))
    lengths = array("q", map(sub, compress(target_ends, last), starts))
    return ColumnRows(ExplicitRun, (starts, array("q", compress(sources, first)), lengths))
