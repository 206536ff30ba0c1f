"""Where two logs hold the same record, told by content alone: the cuts of a copy that nobody kept a ledger of.

Records are sampled by their own fingerprints (those that a number divides), so both sides sample the same records
wherever they stand; how many are held in memory is bounded whatever the logs' length. A record that the source holds
once, and its first copy, are a pair; the longest chain of pairs that rises on both sides are the anchors. Anchors are a
guess: they say where to cut and where a copy begins and ends. The proof compares every record between them afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.spark.judging.longest_chain import find_longest_chain, number_occurrences
from watershed.spark.reading.xxh64 import I64, U64

SAMPLES_PER_PARTITION = 32_768  # records of one partition and side that are held at once, about


@dataclass(frozen=True, slots=True)
class SampledRecords:
    """Some records of one log in order: offsets and fingerprints, shapes (n,)."""

    offset: I64
    fp: U64

    def __len__(self) -> int:
        return len(self.fp)

    def between(self, start: int, end: int) -> SampledRecords:
        """Those with start <= offset < end."""
        low, high = np.searchsorted(self.offset, (start, end)).tolist()
        return SampledRecords(self.offset[low:high], self.fp[low:high])

    def every(self, number: int) -> SampledRecords:
        """About one in `number`, chosen by content: the same records are chosen on both sides."""
        if number <= 1:
            return self
        keep = self.fp % np.uint64(number) == 0
        return SampledRecords(self.offset[keep], self.fp[keep])


NO_SAMPLES = SampledRecords(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64))


def join_samples(parts: Sequence[SampledRecords]) -> SampledRecords:
    """Neighbouring parts of one log, in order."""
    if not parts:
        return NO_SAMPLES
    return SampledRecords(np.concatenate([part.offset for part in parts]), np.concatenate([part.fp for part in parts]))


class Anchor(NamedTuple):
    """The same record on both sides, by its offsets."""

    source: int
    target: int


def find_anchors(source: SampledRecords, target: SampledRecords) -> list[Anchor]:
    """The longest chain. Where every content repeats, the n-th of its kind is taken for a copy of the n-th."""
    found = _chain(source, target)
    if found or not len(source) or not len(target):
        return found
    return _chain(_numbered(source), _numbered(target))


def _chain(source: SampledRecords, target: SampledRecords) -> list[Anchor]:
    prints, first, counts = np.unique(source.fp, return_index=True, return_counts=True)
    once = counts == 1
    there, there_first = np.unique(target.fp, return_index=True)
    _, i, j = np.intersect1d(prints[once], there, assume_unique=True, return_indices=True)
    here, other = first[once][i], there_first[j]
    pairs = zip(source.offset[here].tolist(), target.offset[other].tolist(), strict=True)
    return find_rising_chain([Anchor(*pair) for pair in pairs])


def find_rising_chain(pairs: Sequence[Anchor]) -> list[Anchor]:
    """The longest chain of them that rises on both sides."""
    ordered = sorted(set(pairs), key=lambda pair: (pair.target, -pair.source))
    return [Anchor(*pair) for pair in find_longest_chain(ordered)]


def _numbered(samples: SampledRecords) -> SampledRecords:
    return SampledRecords(samples.offset, number_occurrences(samples.fp))


@dataclass(frozen=True, slots=True)
class InferredOffsetMap(ExplicitRunMap):
    """A map of cuts: true at its anchors and in the stretches between them that are as long on both sides, a guess
    elsewhere. How many anchors it rests on, and what lies outside of it, for the report."""

    anchors: int = 0
    notes: tuple[str, ...] = ()


class LogEnds(NamedTuple):
    """What is known of both logs: first offset that is kept, and the end that was looked at."""

    source: tuple[int, int]
    target: tuple[int, int]


def build_inferred_map(
    chain: Sequence[Anchor],
    source: tuple[SampledRecords, SampledRecords],
    target: tuple[SampledRecords, SampledRecords],
    ends: LogEnds,
    *,
    earliest: bool,
) -> InferredOffsetMap:
    """The map over a chain that is not empty.

    source, target: all records close before the first anchor, and close behind the last one (no sample of them, and as
    many of the source as of the target). earliest: the copy is said to begin where the source does; otherwise what
    stands before its first record is not compared.
    """
    begin, low, notes = _head(chain[0], source[0], target[0], ends, earliest)
    position = _position(chain[-1], source[1], target[1], ends)
    points = [Anchor(begin, low), *(each for each in chain if each.source > begin and each.target > low)]
    stretches = [
        ExplicitRun(a.target, a.source, b.source - a.source if b.source - a.source == b.target - a.target else 1)
        for a, b in pairwise(points)
    ]
    stretches.append(ExplicitRun(points[-1].target, points[-1].source, 1))
    plain = ExplicitRunMap.over(
        join_explicit_runs(stretches), OffsetRun(low, begin), max(position, points[-1].source + 1)
    )
    return InferredOffsetMap(plain.runs, plain.counted, plain.begin, plain.position, len(chain), tuple(notes))


def _head(
    first: Anchor, source: SampledRecords, target: SampledRecords, ends: LogEnds, earliest: bool
) -> tuple[int, int, list[str]]:
    """(source offset, target offset) where the comparison begins, and what is left out before."""
    here, there = source.between(0, first.source), target.between(0, first.target)
    log_start, low_end = ends.source[0], ends.target[0]
    if not len(there):
        if earliest or not len(here):
            return log_start if earliest else first.source, first.target, []
        held = "what the copy still holds" if low_end > 0 else "the copy begins"
        return first.source, first.target, [
            f"source offsets {log_start} to {first.source - 1} stand before {held} (source offset {first.source} at "
            f"target offset {first.target}); --from-start calls what the copy lacks there missing"
        ]  # fmt: skip
    if log_start == 0:  # whatever the copy holds must be the source's
        back = max(0, len(here) - len(there))
        begin = log_start if earliest or not back else int(here.offset[back])
        return min(begin, first.source), low_end, []
    # The copy began before the source's log does now: all that the source has should be there, and no more is known.
    low = first.target if not len(here) else int(there.offset[max(0, len(there) - len(here))])
    notes = []
    if low > low_end:
        notes.append(f"target offsets {low_end} to {low - 1} are older than all that the source still has")
    return log_start if len(here) else first.source, low, notes


def _position(last: Anchor, source: SampledRecords, target: SampledRecords, ends: LogEnds) -> int:
    """Copied through (everything below) this source offset: behind as many records as the copy has after the anchor."""
    here = source.between(last.source + 1, ends.source[1])
    beyond = len(target.between(last.target + 1, ends.target[1]))
    if not beyond:
        return last.source + 1
    return int(here.offset[beyond - 1]) + 1 if beyond <= len(here) else ends.source[1]
