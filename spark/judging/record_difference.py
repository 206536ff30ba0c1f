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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from spark.fingerprint import RecordFingerprints
from spark.reading.xxh64 import I64, U64

MAX_ALIGNED_RECORDS = (
    400_000  # records left after equal heads and tails are cut off; above, only lower bounds are given
)
MAX_DIFFERENCE_EXAMPLES = 20
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
    """Counts of records, or of keys (`spark.judging.key_state`). exact: False means lower bounds, because too much
    differs
    to align record by record. kept_otherwise: source offsets of records that the quarantine holds otherwise."""

    proven: int
    missing: int = 0
    altered: int = 0
    reordered: int = 0
    duplicates: int = 0
    foreign: int = 0
    pending: int = 0
    unverifiable: int = 0
    quarantined: int = 0
    kept_otherwise: tuple[int, ...] = ()
    exact: bool = True
    components: tuple[str, ...] = ()
    examples: tuple[DifferenceExample, ...] = field(default=())

    @property
    def difference_count(self) -> int:
        """Records that are not as they should be; pending and unverifiable ones are not counted."""
        return self.missing + self.altered + self.reordered + self.duplicates + self.foreign


NeighbourSearch = Callable[
    [U64], npt.NDArray[np.bool_]
]  # fingerprints → which of them the source holds in other ranges


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
        [_example("altered", source, head + i, target, head + j, c) for i, j, c in altered[:limit]],
        [_example("missing", source, head + i) for i in missing[:limit]],
        [
            _example("reordered", source, head + i, target, head + j)
            for i, j in _by_item(moved_from, a, moves[:limit], b)
        ],
        [_example("duplicate", None, -1, target, head + j) for j in duplicates[:limit]],
        [_example("foreign", None, -1, target, head + j) for j in foreign[:limit]],
    ]
    return RecordDifference(
        proven=len(source) - len(missing) - len(altered) - len(moves) - pending,
        missing=len(missing),
        altered=len(altered),
        reordered=len(moves),
        duplicates=len(duplicates),
        foreign=len(foreign),
        pending=pending,
        components=_union(c for _, _, c in altered),
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
        _occurrences(source.fp[left]), _occurrences(target.fp[right]), assume_unique=True, return_indices=True
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
        [_example("altered", source, a, target, b, ("offset",)) for a, b in where[:limit]],
        [_example("altered", source, a, target, b, components) for a, b, components in altered[:limit]],
        [_example("missing", source, a) for a in missing[:limit].tolist()],
        [_example("duplicate", None, -1, target, b) for b in extra[known][:limit].tolist()],
        [_example("foreign", None, -1, target, b) for b in extra[~known][:limit].tolist()],
    ]
    return RecordDifference(
        proven=len(source) - len(displaced[0]) - len(altered) - len(missing) - pending,
        missing=len(missing),
        altered=len(displaced[0]) + len(altered),
        duplicates=int(known.sum()),
        foreign=len(extra) - int(known.sum()),
        pending=pending,
        components=_union([*(c for _, _, c in altered), *([("offset",)] if len(displaced[0]) else [])]),
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


def _occurrences(prints: U64) -> U64:
    """Fingerprints made distinct by how often each stood before: the second of its kind equals only another second."""
    order = np.argsort(prints, kind="stable")
    ranked = prints[order]
    first = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))) if len(ranked) else np.empty(0, int)
    seen = np.arange(len(ranked)) - np.repeat(first, np.diff(np.append(first, len(ranked))))
    distinct = np.empty_like(prints)
    distinct[order] = ranked + seen.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return distinct


def _example(
    kind: str,
    source: RecordFingerprints | None,
    i: int,
    target: RecordFingerprints | None = None,
    j: int = -1,
    components: tuple[str, ...] = (),
) -> DifferenceExample:
    def of(prints: RecordFingerprints | None, at: int, name: str) -> int | None:
        return None if prints is None else int(getattr(prints, name)[at])

    key = of(source, i, "kh") if source is not None else of(target, j, "kh")
    coordinates = of(source, i, "offset"), of(target, j, "offset")
    prints = of(source, i, "fp"), of(target, j, "fp"), of(source, i, "times"), of(target, j, "times")
    return DifferenceExample(kind, *coordinates, components, *prints, key)


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


_Link: TypeAlias = "tuple[int, int, _Link | None]"  # index in a, index in b, the pair before it


def _common(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """A longest common subsequence as (index in a, index in b), rising in both."""
    places: dict[int, list[int]] = {}
    for i, item in enumerate(a):
        places.setdefault(item, []).append(i)
    most = max(map(len, places.values()), default=0)
    if most * len(b) > 50 * MAX_ALIGNED_RECORDS:  # a great many equal records: give each occurrence its own partner
        return _common(_numbered(a), _numbered(b))
    ends: list[int] = []  # ends[k]: smallest index of a that ends a common subsequence of length k + 1
    links: list[_Link] = []
    for j, item in enumerate(b):
        for i in reversed(places.get(item, ())):
            k = bisect_left(ends, i)
            link = (i, j, links[k - 1] if k else None)
            if k == len(ends):
                ends.append(i)
                links.append(link)
            elif ends[k] != i:
                ends[k] = i
                links[k] = link
    pairs = []
    last = links[-1] if links else None
    while last is not None:
        pairs.append((last[0], last[1]))
        last = last[2]
    return pairs[::-1]


def _numbered(items: list[int]) -> list[int]:
    """Items made distinct by their occurrence: the second of its kind equals only another second."""
    seen: Counter[int] = Counter()
    answer = []
    for item in items:
        answer.append(hash((item, seen[item])))
        seen[item] += 1
    return answer


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
    names = (("key", "kh"), ("value", "vh"), ("headers", "hh"), ("timestamp", "ts"))
    return tuple(name for name, field in names if getattr(source, field)[i] != getattr(target, field)[j])


def _lower_bounds(source: RecordFingerprints, target: RecordFingerprints) -> RecordDifference:
    """For runs that differ nearly everywhere: position by position, or by multiset when the lengths differ."""
    if len(source) == len(target):
        unequal = source.fp != target.fp
        count = int(np.count_nonzero(unequal))
        names = (("key", "kh"), ("value", "vh"), ("headers", "hh"), ("timestamp", "ts"))
        changed = tuple(name for name, f in names if (getattr(source, f) != getattr(target, f)).any())
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


def _union(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    found = {name for group in groups for name in group}
    return tuple(name for name in ("key", "value", "headers", "timestamp", "offset") if name in found)
