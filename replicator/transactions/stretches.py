"""The offset map of a partition that others write to as well: stretches with explicit lengths.

Between two of our stretches lie other producers' records and markers, so no stretch follows from its neighbours, and
the target's log end says nothing. What is known is exactly what our transactions have written down.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from replicator.errors import NotCopied, ReplicatorError
from replicator.offsetmap import OffsetMap, Run, Stretch


@dataclass(frozen=True, slots=True)
class StretchMap(OffsetMap):
    """Stretches in log order. `begin`: where the copy began (target's log end then, first source offset); `position`:
    the source is copied through (everything below) this offset.

    Raises ReplicatorError for stretches that overlap or run backwards on either side.
    """

    counted: tuple[Stretch, ...]
    begin: Run
    position: int

    @staticmethod
    def over(counted: Iterable[Stretch], begin: Run, position: int) -> StretchMap:
        """The map of these stretches. `runs` are their beginnings, or `begin` while nothing is copied."""
        stretches = tuple(counted)
        runs = tuple(Run(target, source) for target, source, _ in stretches) or (begin,)
        return StretchMap(runs, stretches, begin, position)

    def __post_init__(self) -> None:
        for before, after in pairwise(self.counted):
            if after.target < before.target + before.records or after.source < before.source + before.records:
                raise ReplicatorError(f"the offset map contradicts itself: {before} then {after}")
        last = self.counted[-1] if self.counted else None
        if last is not None and self.position < last.source + last.records:
            raise ReplicatorError(f"the offset map contradicts itself: copied through {self.position}, but {last}")
        object.__setattr__(self, "_sources", tuple(stretch.source for stretch in self.counted))
        object.__setattr__(self, "_targets", tuple(stretch.target for stretch in self.counted))

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
            target = self._end()
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
        return self.position if target_end >= self._end() else self.to_source(target_end)

    def stretches(self, target_end: int) -> Iterator[Stretch]:
        for target, source, records in self.counted:
            if target < target_end:
                yield Stretch(target, source, min(records, target_end - target))

    def extended(self, run: Run) -> OffsetMap:
        raise ReplicatorError(f"a run without a length ({run}) cannot extend a map of stretches")

    def _end(self) -> int:
        return _target_end(self.counted[-1]) if self.counted else self.begin.target


def _source_end(stretch: Stretch) -> int:
    return stretch.source + stretch.records


def _target_end(stretch: Stretch) -> int:
    return stretch.target + stretch.records


def coalesced(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Stretches in log order, joined where both offsets advance equally."""
    joined: list[Stretch] = []
    for stretch in stretches:
        if joined and (_target_end(joined[-1]), _source_end(joined[-1])) == (stretch.target, stretch.source):
            joined[-1] = joined[-1]._replace(records=joined[-1].records + stretch.records)
        else:
            joined.append(stretch)
    return joined
