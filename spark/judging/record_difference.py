"""Exactly what differs between two runs of records, by their fingerprints.

Both runs are aligned by a longest common subsequence (Hunt and Szymanski 1977). Every source record is then proven,
missing, altered or reordered; every further target record is a duplicate or foreign:

- *reordered*: present on both sides, but out of line; counted as the fewest records that would have to move.
- *duplicate*: one more of a record that the source has. *foreign*: a record the source does not have.
- *altered*: a source record without partner and a foreign record at the same place (between the same two aligned
  neighbours) that agree in value, or in two of key, headers and timestamp; named by the components that differ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.spark.fingerprint import RecordFingerprints
from watershed.spark.judging.longest_chain import find_longest_chain, number_occurrences
from watershed.spark.reading.xxh64 import I64, U64

# records left after equal heads and tails are cut off; above, only lower bounds are given
MAX_ALIGNED_RECORDS = 400_000
MAX_DIFFERENCE_EXAMPLES = 20
# What a record differs in, and the column of fingerprints that tells.
COMPONENT_COLUMNS: Final = {"key": "kh", "value": "vh", "headers": "hh", "timestamp": "ts"}
# A record that was altered agrees in value and something else, or in everything but the value.
_ALIKE = (("vh", "kh"), ("vh", "hh"), ("vh", "ts"), ("kh", "hh", "ts"))


@dataclass(frozen=True, slots=True)
class DifferenceExample:
    """One difference: what is None belongs to a side that has no such record.

    source_fp, target_fp: fingerprints; source_ts, target_ts: ms; key: the key's hash, the source's where it has one.
    """

    kind: str
    source_offset: int | None
    target_offset: int | None
    components: tuple[str, ...] = ()
    source_fp: int | None = None
    target_fp: int | None = None
    source_ts: int | None = None
    target_ts: int | None = None
    key: int | None = None


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """Counts of records, or of keys (`spark.judging.key_state`). repeated: see `spark.judging.repeated_records`.

    exact: False means lower bounds, because too much differs to align record by record. kept_otherwise: source offsets
    at which the quarantine holds another content. taken: where the source's records were found, in log order; told only
    where records may repeat.
    """

    proven: int
    missing: int = 0
    altered: int = 0
    reordered: int = 0
    duplicates: int = 0
    foreign: int = 0
    pending: int = 0
    unverifiable: int = 0
    quarantined: int = 0
    repeated: int = 0
    kept_otherwise: tuple[int, ...] = ()
    exact: bool = True
    components: tuple[str, ...] = ()
    examples: tuple[DifferenceExample, ...] = field(default=())
    taken: Sequence[ExplicitRun] = field(default=(), compare=False, repr=False)

    @property
    def difference_count(self) -> int:
        """Records that are not as they should be; pending and unverifiable ones are not counted."""
        return self.missing + self.altered + self.reordered + self.duplicates + self.foreign


# fingerprints → which of them the source holds in other ranges
NeighbourSearch = Callable[[U64], npt.NDArray[np.bool_]]


def compare_records(
    source: RecordFingerprints,
    target: RecordFingerprints,
    *,
    open_end: bool = False,
    in_place: bool = False,
    limit: int = MAX_DIFFERENCE_EXAMPLES,
    elsewhere: NeighbourSearch | None = None,
) -> RecordDifference:
    """The difference between two runs that should hold the same records in the same order.

    `open_end`: the target's run ends where its log ends, so source records behind the last one that arrived are
    pending, not missing. `in_place`: both sides have the same offsets, see `_in_place`.
    limit: so many differences are named at most, some of every kind; counts do not depend on it. elsewhere: asked only
    of target records that this run of the source does not hold, which are duplicates if another one does.
    """
    if in_place:
        return _in_place(source, target, open_end, limit, elsewhere)
    head = _equal_head(source.fp, target.fp)
    tail = _equal_head(source.fp[head:][::-1], target.fp[head:][::-1])
    left = np.arange(head, len(source) - tail)
    right = np.arange(head, len(target) - tail)
    if len(left) + len(right) > MAX_ALIGNED_RECORDS:
        return _lower_bounds(source, target)

    a, b = source.fp[left].tolist(), target.fp[right].tolist()
    pairs = _common(a, b)
    in_line_a, in_line_b = {i for i, _ in pairs}, {j for _, j in pairs}
    rest_a = [i for i in range(len(a)) if i not in in_line_a]
    rest_b = [j for j in range(len(b)) if j not in in_line_b]
    moved = Counter(a[i] for i in rest_a) & Counter(b[j] for j in rest_b)
    lost, moved_from = _take_out(rest_a, a, moved)
    extra, moves = _take_out(rest_b, b, moved)

    altered = _pair_altered(lost, extra, pairs, source, target, head)
    gone = {i for i, _, _ in altered}
    used = {j for _, j, _ in altered}
    missing = [i for i in lost if i not in gone]
    pending = 0
    while open_end and missing and missing[-1] == len(source) - head - 1 - pending:
        missing.pop()
        pending += 1
    extra = [j for j in extra if j not in used]
    known = _known(target.fp[head:][np.array(extra, dtype=np.int64)], source, elsewhere)
    duplicates = [j for j, is_known in zip(extra, known, strict=True) if is_known]
    foreign = [j for j, is_known in zip(extra, known, strict=True) if not is_known]

    named = [
        [build_example("altered", source, head + i, target, head + j, c) for i, j, c in altered[:limit]],
        [build_example("missing", source, head + i) for i in missing[:limit]],
        [
            build_example("reordered", source, head + i, target, head + j)
            for i, j in _by_item(moved_from, a, moves[:limit], b)
        ],
        [build_example("duplicate", None, -1, target, head + j) for j in duplicates[:limit]],
        [build_example("foreign", None, -1, target, head + j) for j in foreign[:limit]],
    ]
    return RecordDifference(
        proven=len(source) - len(missing) - len(altered) - len(moves) - pending,
        missing=len(missing),
        altered=len(altered),
        reordered=len(moves),
        duplicates=len(duplicates),
        foreign=len(foreign),
        pending=pending,
        components=order_components(c for _, _, c in altered),
        examples=_some(named, limit),
    )


def _in_place(
    source: RecordFingerprints,
    target: RecordFingerprints,
    open_end: bool,
    limit: int,
    elsewhere: NeighbourSearch | None,
) -> RecordDifference:
    """Of a copy whose records stand at the source's offsets: each is expected at its own, so there is no alignment to
    find. A record that stands at another offset is altered (component `offset`), whatever order that makes; one that
    has another content at its offset is altered under the same rule as elsewhere, else it is missing and the other
    one foreign. A record is paired with its like at its own offset first, then in log order."""
    i, j = _at_the_same(source.offset, target.offset)
    same = source.fp[i] == target.fp[j]
    left, right = np.delete(np.arange(len(source)), i[same]), np.delete(np.arange(len(target)), j[same])
    _, i, j = np.intersect1d(
        number_occurrences(source.fp[left]),
        number_occurrences(target.fp[right]),
        assume_unique=True,
        return_indices=True,
    )
    rising = np.argsort(left[i])
    displaced = left[i][rising], right[j][rising]
    left, right = np.delete(left, i), np.delete(right, j)

    i, j = _at_the_same(source.offset[left], target.offset[right])
    alike = np.zeros(len(i), dtype=bool)
    for names in _ALIKE:
        alike |= np.logical_and.reduce(
            [getattr(source, name)[left[i]] == getattr(target, name)[right[j]] for name in names]
        )
    i, j = i[alike], j[alike]
    altered = [
        (a, b, _components(source, a, target, b)) for a, b in zip(left[i].tolist(), right[j].tolist(), strict=True)
    ]
    missing, extra = np.delete(left, i), np.delete(right, j)
    pending = 0
    if open_end:
        pending = int((missing[::-1] == np.arange(len(source) - 1, len(source) - 1 - len(missing), -1)).cumprod().sum())
        missing = missing[: len(missing) - pending]
    known = _known(target.fp[extra], source, elsewhere)

    where = sorted(zip(*(column.tolist() for column in displaced), strict=True))
    named = [
        [build_example("altered", source, a, target, b, ("offset",)) for a, b in where[:limit]],
        [build_example("altered", source, a, target, b, components) for a, b, components in altered[:limit]],
        [build_example("missing", source, a) for a in missing[:limit].tolist()],
        [build_example("duplicate", None, -1, target, b) for b in extra[known][:limit].tolist()],
        [build_example("foreign", None, -1, target, b) for b in extra[~known][:limit].tolist()],
    ]
    return RecordDifference(
        proven=len(source) - len(displaced[0]) - len(altered) - len(missing) - pending,
        missing=len(missing),
        altered=len(displaced[0]) + len(altered),
        duplicates=int(known.sum()),
        foreign=len(extra) - int(known.sum()),
        pending=pending,
        components=order_components([*(c for _, _, c in altered), *([("offset",)] if len(displaced[0]) else [])]),
        examples=_some(named, limit),
    )


def _known(prints: U64, source: RecordFingerprints, elsewhere: NeighbourSearch | None) -> npt.NDArray[np.bool_]:
    """Which of these the source holds."""
    known = np.isin(prints, source.fp)
    if elsewhere is not None and not known.all():
        known[~known] = elsewhere(prints[~known])
    return known


def _at_the_same(ours: I64, theirs: I64) -> tuple[I64, I64]:
    """Indices (in ours, in theirs) of the offsets that both hold; both rise."""
    at = np.searchsorted(theirs, ours)
    there = np.flatnonzero(np.append(theirs, -1)[at] == ours)
    return there, at[there]


class RecordColumns(Protocol):
    """Columns of records of one side, shape (n,): of a run (`RecordFingerprints`) or of a state (`KeyState`)."""

    @property
    def offset(self) -> I64:
        """Offsets in the log."""

    @property
    def fp(self) -> U64:
        """Fingerprints of the records."""

    @property
    def kh(self) -> U64:
        """Hashes of the keys."""

    @property
    def times(self) -> I64:
        """Timestamps in ms, as stored."""


def build_example(
    kind: str,
    source: RecordColumns | None,
    i: int,
    target: RecordColumns | None = None,
    j: int = -1,
    components: tuple[str, ...] = (),
) -> DifferenceExample:
    """One difference by the records at these indices; None for a side that has no such record."""
    has_key = source if source is not None else target
    assert has_key is not None, "one side has the record"
    return DifferenceExample(
        kind,
        None if source is None else int(source.offset[i]),
        None if target is None else int(target.offset[j]),
        components,
        None if source is None else int(source.fp[i]),
        None if target is None else int(target.fp[j]),
        None if source is None else int(source.times[i]),
        None if target is None else int(target.times[j]),
        int(has_key.kh[i if source is not None else j]),
    )


def _by_item(here: list[int], a: list[int], there: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Each of `there` with the first of `here` that holds the same and is not taken yet."""
    waiting: dict[int, deque[int]] = defaultdict(deque)
    for i in here:
        waiting[a[i]].append(i)
    return [(waiting[b[j]].popleft(), j) for j in there]


def _some(kinds: list[list[DifferenceExample]], limit: int) -> tuple[DifferenceExample, ...]:
    """At most `limit` of all kinds; a kind of which there are few is not crowded out by one of which there are many."""
    shares, left = {}, limit
    for rank, kind in enumerate(sorted(range(len(kinds)), key=lambda kind: len(kinds[kind]))):
        shares[kind] = min(len(kinds[kind]), left // (len(kinds) - rank))
        left -= shares[kind]
    return tuple(example for kind, examples in enumerate(kinds) for example in examples[: shares[kind]])


def _equal_head(a: U64, b: U64) -> int:
    n = min(len(a), len(b))
    unequal = np.flatnonzero(a[:n] != b[:n])
    return int(unequal[0]) if len(unequal) else n


def _common(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """A longest common subsequence as (index in a, index in b), rising in both."""
    places: dict[int, list[int]] = {}
    for i, item in enumerate(a):
        places.setdefault(item, []).append(i)
    most = max(map(len, places.values()), default=0)
    if most * len(b) > 50 * MAX_ALIGNED_RECORDS:  # a great many equal records: give each occurrence its own partner
        numbered = (number_occurrences(np.array(items, dtype=np.uint64)).tolist() for items in (a, b))
        return _common(*numbered)
    return find_longest_chain((i, j) for j, item in enumerate(b) for i in reversed(places.get(item, ())))


def _take_out(rest: list[int], items: list[int], moved: Counter[int]) -> tuple[list[int], list[int]]:
    """(indices that remain, indices taken out), taking `moved` out of `rest`."""
    left, remain, taken = Counter(moved), [], []
    for index in rest:
        if left[items[index]] > 0:
            left[items[index]] -= 1
            taken.append(index)
        else:
            remain.append(index)
    return remain, taken


def _pair_altered(
    lost: list[int],
    extra: list[int],
    pairs: list[tuple[int, int]],
    source: RecordFingerprints,
    target: RecordFingerprints,
    head: int,
) -> list[tuple[int, int, tuple[str, ...]]]:
    """(source index, target index, components that differ) of records changed in place."""
    ends_a, ends_b = [i for i, _ in pairs], [j for _, j in pairs]
    waiting: dict[tuple[object, ...], deque[int]] = defaultdict(deque)  # by gap and what they agree in, in order
    here, there = _columns(source, head), _columns(target, head)
    for j in extra:
        for names in _ALIKE:
            waiting[bisect_left(ends_b, j), names, *(there[name][j] for name in names)].append(j)
    found: list[tuple[int, int, tuple[str, ...]]] = []
    used: set[int] = set()
    for i in lost:
        gap, first = bisect_left(ends_a, i), -1
        for names in _ALIKE:
            row = waiting.get((gap, names, *(here[name][i] for name in names)))
            while row and row[0] in used:
                row.popleft()
            if row and (first < 0 or row[0] < first):
                first = row[0]
        if first >= 0:
            used.add(first)
            found.append((i, first, _components(source, head + i, target, head + first)))
    return found


def _columns(prints: RecordFingerprints, head: int) -> dict[str, list[int]]:
    return {name: getattr(prints, name)[head:].tolist() for name in ("kh", "vh", "hh", "ts")}


def _components(source: RecordFingerprints, i: int, target: RecordFingerprints, j: int) -> tuple[str, ...]:
    return tuple(
        name for name, field in COMPONENT_COLUMNS.items() if getattr(source, field)[i] != getattr(target, field)[j]
    )


def _lower_bounds(source: RecordFingerprints, target: RecordFingerprints) -> RecordDifference:
    """For runs that differ nearly everywhere: position by position, or by multiset when the lengths differ."""
    if len(source) == len(target):
        unequal = source.fp != target.fp
        count = int(np.count_nonzero(unequal))
        columns = COMPONENT_COLUMNS.items()
        changed = tuple(name for name, field in columns if (getattr(source, field) != getattr(target, field)).any())
        if np.array_equal(np.sort(source.fp), np.sort(target.fp)):
            return RecordDifference(len(source) - count, reordered=count, exact=False)
        return RecordDifference(len(source) - count, altered=count, exact=False, components=changed)
    have, have_n = np.unique(source.fp, return_counts=True)
    there, there_n = np.unique(target.fp, return_counts=True)
    _, i, j = np.intersect1d(have, there, assume_unique=True, return_indices=True)
    common = int(np.minimum(have_n[i], there_n[j]).sum())
    duplicates = int(np.maximum(there_n[j] - have_n[i], 0).sum())
    return RecordDifference(
        common,
        missing=len(source) - common,
        duplicates=duplicates,
        foreign=len(target) - common - duplicates,
        exact=False,
    )


def order_components(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The components that occur in any of the groups, in the order in which reports name them."""
    found = {name for group in groups for name in group}
    return tuple(name for name in (*COMPONENT_COLUMNS, "offset") if name in found)
