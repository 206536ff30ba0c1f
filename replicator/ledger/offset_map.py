"""The offset map of one partition: which source offset stands at which target offset.

A *run* says that consecutive source offsets were copied to consecutive target offsets. Only the start of a run
is stored: it lasts until the next run starts, the last one until the target's log end. A topic without gaps is
one run for ever; a transactional topic has one run a transaction (its markers are the gaps). Runs are kept in columns
(`replicator.ledger.column_rows`): 16 bytes each, and a lookup is one bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import gt, sub
from typing import NamedTuple

from watershed.replicator.errors import NotCopied, ReplicatorError
from watershed.replicator.ledger.column_rows import ColumnRows


class OffsetRun(NamedTuple):
    """From here on, target offset `target + n` holds source offset `source + n`."""

    target: int
    source: int


class ExplicitRun(NamedTuple):
    """A run with its length: `records` records from `source` on stand at `target` on."""

    target: int
    source: int
    records: int


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Runs in log order: both `target` and `source` never fall from one run to the next.

    Two runs may start at the same target offset (the first of them held nothing): the later one counts.
    """

    runs: Sequence[OffsetRun]
    _sources: Sequence[int] = field(init=False, repr=False, compare=False)
    _targets: Sequence[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        runs = ColumnRows.of(OffsetRun, self.runs)
        targets, sources = runs.columns
        shifts = array("q", map(sub, sources, targets))
        if any(map(gt, targets, targets[1:])) or any(map(gt, shifts, shifts[1:])):
            before, after = next(
                (a, b) for a, b in pairwise(runs) if b.target < a.target or b.source - a.source < b.target - a.target
            )
            raise ReplicatorError(f"the offset map contradicts itself: {before} then {after}")
        object.__setattr__(self, "runs", runs)
        object.__setattr__(self, "_sources", sources)
        object.__setattr__(self, "_targets", targets)

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> OffsetMap:
        """A map from (target, source) pairs in any order."""
        return OffsetMap(tuple(OffsetRun(target, source) for target, source in sorted(pairs)))

    def to_target(self, source_offset: int, target_end: int) -> int:
        """Where a reader that continues at `source_offset` continues on the target.

        An offset in a gap (marker, aborted or compacted record) gives the next record's target offset.
        `target_end` is the target's log end. Raises NotCopied when `source_offset` is beyond what was copied.
        """
        if not self._sources:
            raise NotCopied(source_offset, 0)
        at = bisect_right(self._sources, source_offset) - 1
        if at < 0:
            return min(self._targets[0], target_end)
        target = self._targets[at] + source_offset - self._sources[at]
        if at + 1 < len(self._targets):
            target = min(target, self._targets[at + 1])
        if target > target_end:
            raise NotCopied(source_offset, self.source_position(target_end))
        return target

    def to_source(self, target_offset: int) -> int:
        """The source offset that stands at `target_offset` (at the log end: where copying goes on)."""
        at = bisect_right(self._targets, target_offset) - 1
        if at < 0:
            raise ReplicatorError(f"target offset {target_offset} lies before the first copied record")
        return self._sources[at] + target_offset - self._targets[at]

    def source_position(self, target_end: int) -> int:
        """The source is copied through (everything below) this offset when the target's log ends at `target_end`."""
        return self.to_source(target_end) if self.runs else 0

    def find_last_record(self, target_end: int) -> OffsetRun | None:
        """Where the last record stands that was copied below `target_end`, on both sides; None where there is none."""
        at = bisect_right(self._targets, target_end - 1) - 1
        return None if at < 0 else OffsetRun(target_end - 1, self._sources[at] + target_end - 1 - self._targets[at])

    def stretches(self, target_end: int) -> Iterator[ExplicitRun]:
        """The runs that hold records, with their lengths, up to the target's log end."""
        for (target, source), (following, _) in pairwise(chain(self.runs, (OffsetRun(target_end, 0),))):
            end = min(following, target_end)
            if end > target:
                yield ExplicitRun(target, source, end - target)

    @property
    def own(self) -> Sequence[OffsetRun]:
        """The runs that this flow copied itself: all of them, but for an adopted partition (`replicator.adoption`)."""
        return self.runs

    def extended(self, run: OffsetRun) -> OffsetMap:
        """This map with a run appended."""
        return OffsetMap((*self.runs, run))


@dataclass(frozen=True, slots=True)
class BrokenOffsetMap(OffsetMap):
    """Runs that contradict themselves. Whoever asks it for an offset gets a ReplicatorError, whoever only reads what
    else the ledger holds does not: it concerns its own partition and no other."""

    error: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sources", ())
        object.__setattr__(self, "_targets", ())

    def to_target(self, source_offset: int, target_end: int) -> int:
        """Raises ReplicatorError with the fault of the map."""
        raise ReplicatorError(f"{self.error}; source offset {source_offset} cannot be translated")

    def to_source(self, target_offset: int) -> int:
        """Raises ReplicatorError with the fault of the map."""
        raise ReplicatorError(f"{self.error}; target offset {target_offset} cannot be translated")

    def source_position(self, target_end: int) -> int:
        """Raises ReplicatorError with the fault of the map."""
        raise ReplicatorError(self.error)

    def stretches(self, target_end: int) -> Iterator[ExplicitRun]:
        """Raises ReplicatorError with the fault of the map."""
        raise ReplicatorError(self.error)

    def extended(self, run: OffsetRun) -> OffsetMap:
        """Raises ReplicatorError with the fault of the map."""
        raise ReplicatorError(self.error)


def build_offset_map(runs: Sequence[OffsetRun]) -> OffsetMap:
    """The map of these runs, broken when they contradict themselves."""
    try:
        return OffsetMap(runs)
    except ReplicatorError as error:
        return BrokenOffsetMap(runs, str(error))
