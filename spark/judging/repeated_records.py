"""Repeats of a copy that may have them (`at_least_once, proven`): every record in order, and some once more.

The target is walked from its front, and each record that is the next one of the source is taken as it. What is left
over is a *repeat* if the source has the same record further in front, so whoever reads the target has seen it before. A
record that stands there before its turn is none: it changes the order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from spark.fingerprint import RecordFingerprints
from spark.judging.record_difference import (
    MAX_DIFFERENCE_EXAMPLES,
    DifferenceExample,
    NeighbourSearch,
    RecordDifference,
    compare_records,
)
from spark.reading.xxh64 import U64

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
) -> RecordDifference:
    """The difference between two runs where the target may hold records of the source again.

    open_end, limit, elsewhere: as in `compare_records`, which judges what is more than repeats; then records that
    stand twice are duplicates. earlier: asked only of records that are left over.
    """
    walk = _walk_in_order(source, target)
    pending = len(source) - walk.taken
    if not pending or open_end:
        origins = _find_origins(source, target, walk.rest, earlier)
        if origins is not None:
            examples = tuple(
                _build_repeat(source, target, j, offset)
                for (j, _), offset in list(zip(walk.rest, origins, strict=True))[:limit]
            )
            return RecordDifference(walk.taken, pending=pending, repeated=len(walk.rest), examples=examples)
    return compare_records(source, target, open_end=open_end, limit=limit, elsewhere=elsewhere)


def _walk_in_order(source: RecordFingerprints, target: RecordFingerprints) -> _Walk:
    ours, at = source.fp.tolist(), 0
    rest: list[tuple[int, int]] = []
    for j, fingerprint in enumerate(target.fp.tolist()):
        if at < len(ours) and ours[at] == fingerprint:
            at += 1
        else:
            rest.append((j, at))
    return _Walk(at, rest)


def _find_origins(
    source: RecordFingerprints, target: RecordFingerprints, rest: Sequence[tuple[int, int]], earlier: EarlierSearch
) -> list[int] | None:
    """The source offset that each of these repeats, or None if one of them repeats nothing that stands in front of it.

    Where several records are the same, repeats that stand side by side are those of one run.
    """
    offsets = source.offset.tolist()
    places = _find_places(source, {int(target.fp[j]) for j, _ in rest})
    inside = [[offsets[i] for i in places[int(target.fp[j])] if i < at] for j, at in rest]
    left = [j for (j, _), known in zip(rest, inside, strict=True) if not known]
    before = earlier(target.fp[left]) if left else {}
    known = [here or before.get(int(target.fp[j]), ()) for (j, _), here in zip(rest, inside, strict=True)]
    return _choose_in_a_row(known, offsets) if all(known) else None


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
