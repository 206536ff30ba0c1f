"""Runs that several generations announced, laid over each other: the newer one is right where both said something.

Works on columns, in place and at C speed: a map of a million runs comes together in well below a second.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import ne, sub
from typing import NamedTuple

from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.offset_map import OffsetRun

Runs = ColumnRows[OffsetRun]


class GenerationRuns(NamedTuple):
    """What one generation announced, in pieces. floor: what older ones announced from this target offset on never
    counts; None where it does."""

    pieces: Sequence[Runs]
    floor: int | None = None


def merge_generations(layers: Iterable[GenerationRuns]) -> Runs:
    """All layers in one, the oldest given first. A layer is right from its first run to the last that it announced;
    behind that, what an older one announced still counts, unless it contradicts."""
    targets, sources = array("q"), array("q")
    for pieces, floor in layers:
        if floor is not None:
            _cut(targets, sources, bisect_left(targets, floor))
        own_targets, own_sources = _joined(pieces)
        last_target, last_source = own_targets[-1], own_sources[-1]
        beyond = _behind(targets, sources, last_target, last_source)
        if beyond < len(targets) and sources[beyond] - last_source < targets[beyond] - last_target:
            beyond = len(targets)
        later = targets[beyond:], sources[beyond:]
        _cut(targets, sources, bisect_left(targets, own_targets[0]))
        targets.extend(own_targets)
        sources.extend(own_sources)
        targets.extend(later[0])
        sources.extend(later[1])
    return ColumnRows(OffsetRun, (targets, sources))


def drop_continuing_runs(runs: Runs) -> Runs:
    """Without the runs that only continue the one before (each takeover repeats where it stands)."""
    if not runs:
        return runs
    targets, sources = runs.columns
    shifts = array("q", map(sub, sources, targets))
    kept = [True, *map(ne, shifts[1:], shifts)]
    return ColumnRows(OffsetRun, (array("q", compress(targets, kept)), array("q", compress(sources, kept))))


def _joined(pieces: Sequence[Runs]) -> tuple[array[int], array[int]]:
    """One generation's runs in order, each once: what was written in small records stands in a block, too."""
    targets, sources = array("q"), array("q")
    for piece in sorted(pieces, key=lambda piece: piece[0]) if len(pieces) > 1 else pieces:
        more_targets, more_sources = piece.columns
        if targets and piece[0] <= (targets[-1], sources[-1]):
            at = bisect_left(targets, more_targets[0])
            merged = sorted(
                {*zip(targets[at:], sources[at:], strict=True), *zip(more_targets, more_sources, strict=True)}
            )
            _cut(targets, sources, at)
            more_targets = array("q", (target for target, _ in merged))
            more_sources = array("q", (source for _, source in merged))
        targets.extend(more_targets)
        sources.extend(more_sources)
    return targets, sources


def _behind(targets: array[int], sources: array[int], target: int, source: int) -> int:
    """The place of the first run behind this one."""
    low, high = bisect_left(targets, target), bisect_right(targets, target)
    return bisect_right(sources, source, low, high)


def _cut(targets: array[int], sources: array[int], at: int) -> None:
    del targets[at:]
    del sources[at:]
