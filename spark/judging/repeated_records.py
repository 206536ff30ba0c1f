"""Repeats of a copy that may have them (`at_least_once, proven`): every record in order, and some once more.

The target is walked from its front, and each record that is the next one of the source is taken as it. What is left
over is a *repeat* if the source has the same record further in front, so whoever reads the target has seen it before. A
record that stands there before its turn is none: it changes the order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.spark.fingerprint import RecordFingerprints
from watershed.spark.judging.record_difference import (
    MAX_DIFFERENCE_EXAMPLES,
    DifferenceExample,
    NeighbourSearch,
    RecordDifference,
    compare_records,
)
from watershed.spark.reading.xxh64 import U64

# fingerprints → source offsets in front of the compared range that hold them, rising; those that are found
EarlierSearch = Callable[[U64], Mapping[int, Sequence[int]]]


class _Walk(NamedTuple):
    """taken: how many source records were found in order. rest: target indices left over, each with how many source
    records were found in front of it."""

    taken: int
    rest: list[tuple[int, int]]


def compare_with_repeats(
    source: RecordFingerprints,
    target: RecordFingerprints,
    *,
    open_end: bool = False,
    limit: int = MAX_DIFFERENCE_EXAMPLES,
    elsewhere: NeighbourSearch | None = None,
    earlier: EarlierSearch = lambda _prints: {},
    known: Sequence[ExplicitRun] = (),
    is_gone: Callable[[int], bool] = lambda _target_offset: False,
) -> RecordDifference:
    """The difference between two runs where the target may hold records of the source again.

    open_end, limit, elsewhere: as in `compare_records`, which judges what is more than repeats; then records that
    stand twice are duplicates. earlier: asked only of records that are left over. known: repeats that the ledger names;
    of equal records they are those that are left over, if all are there without them. is_gone: whether the ledger says
    that this target offset repeats a record that has expired at the source, so that nobody can tell; asked last.
    """
    plain = _walk_in_order(source, target)
    pending = len(source) - plain.taken
    trusting = _walk_in_order(source, target, known) if plain.rest and known else plain
    for walk in (trusting, plain):
        if (pending and not open_end) or walk.taken < plain.taken:
            continue
        origins = _find_origins(source, target, walk.rest, earlier, is_gone)
        if origins is not None:
            examples = tuple(_build_repeat(source, target, j, offset) for j, offset in list(origins.items())[:limit])
            return RecordDifference(
                walk.taken,
                pending=pending,
                unverifiable=len(walk.rest) - len(origins),
                repeated=len(origins),
                examples=examples,
                taken=_join_taken(source, target, walk),
            )
    return compare_records(source, target, open_end=open_end, limit=limit, elsewhere=elsewhere)


def _walk_in_order(source: RecordFingerprints, target: RecordFingerprints, known: Sequence[ExplicitRun] = ()) -> _Walk:
    """known: runs of the target that are not taken."""
    ours, at = source.fp.tolist(), 0
    passed = np.zeros(len(target), dtype=np.bool_)
    for run in known:
        passed |= (target.offset >= run.target) & (target.offset < run.target + run.records)
    rest: list[tuple[int, int]] = []
    for j, (fingerprint, is_passed) in enumerate(zip(target.fp.tolist(), passed.tolist(), strict=True)):
        if not is_passed and at < len(ours) and ours[at] == fingerprint:
            at += 1
        else:
            rest.append((j, at))
    return _Walk(at, rest)


def _join_taken(source: RecordFingerprints, target: RecordFingerprints, walk: _Walk) -> ColumnRows[ExplicitRun]:
    """Where the records stand that were found in order: joined where both offsets advance equally."""
    left_out = np.array([j for j, _ in walk.rest], dtype=np.int64)
    targets: npt.NDArray[np.int64] = np.delete(target.offset, left_out).astype(np.int64)
    sources: npt.NDArray[np.int64] = source.offset[: walk.taken].astype(np.int64)
    if not len(targets):
        return ColumnRows.of(ExplicitRun, ())
    starts = np.flatnonzero(np.concatenate(([True], (np.diff(targets) != 1) | (np.diff(sources) != 1))))
    lengths = np.diff(np.concatenate((starts, [len(targets)])))
    columns = (array("q", column.tolist()) for column in (targets[starts], sources[starts], lengths))
    return ColumnRows(ExplicitRun, columns)


def _find_origins(
    source: RecordFingerprints,
    target: RecordFingerprints,
    rest: Sequence[tuple[int, int]],
    earlier: EarlierSearch,
    is_gone: Callable[[int], bool],
) -> dict[int, int] | None:
    """The source offset that each of these repeats, by target index, without those of which nobody can tell; or None if
    one of them repeats nothing that stands in front of it.

    Where several records are the same, repeats that stand side by side are those of one run.
    """
    offsets = source.offset.tolist()
    places = _find_places(source, {int(target.fp[j]) for j, _ in rest})
    inside = [[offsets[i] for i in places[int(target.fp[j])] if i < at] for j, at in rest]
    left = [j for (j, _), known in zip(rest, inside, strict=True) if not known]
    before = earlier(target.fp[left]) if left else {}
    known = [here or before.get(int(target.fp[j]), ()) for (j, _), here in zip(rest, inside, strict=True)]
    lost = {j for (j, _), places in zip(rest, known, strict=True) if not places}
    if not all(is_gone(int(target.offset[j])) for j in lost):
        return None
    found = [(j, places) for (j, _), places in zip(rest, known, strict=True) if j not in lost]
    return dict(zip((j for j, _ in found), _choose_in_a_row([places for _, places in found], offsets), strict=True))


def _choose_in_a_row(known: Sequence[Sequence[int]], offsets: Sequence[int]) -> list[int]:
    """One offset of each: that in front of the next one's, else behind the last one's, else the newest."""
    behind = dict(pairwise(offsets))
    front = {after: before for before, after in behind.items()}
    chosen = [places[-1] for places in known]
    for at in reversed(range(len(chosen) - 1)):
        wanted = front.get(chosen[at + 1], chosen[at + 1] - 1)
        chosen[at] = wanted if wanted in known[at] else chosen[at]
    for at in range(1, len(chosen)):
        wanted = behind.get(chosen[at - 1], chosen[at - 1] + 1)
        chosen[at] = wanted if wanted in known[at] else chosen[at]
    return chosen


def _find_places(source: RecordFingerprints, wanted: Collection[int]) -> Mapping[int, Sequence[int]]:
    """Indices of the source at which these fingerprints stand, rising."""
    places: dict[int, list[int]] = {fingerprint: [] for fingerprint in wanted}
    for i, fingerprint in enumerate(source.fp.tolist() if wanted else ()):
        if fingerprint in places:
            places[fingerprint].append(i)
    return places


def _build_repeat(source: RecordFingerprints, target: RecordFingerprints, j: int, offset: int) -> DifferenceExample:
    """Both hold the same record, so the target's says what is in it."""
    print_, time = int(target.fp[j]), int(target.times[j])
    return DifferenceExample(
        "repeated", offset, int(target.offset[j]), (), print_, print_, time, time, int(target.kh[j])
    )
