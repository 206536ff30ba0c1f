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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from spark.fingerprint import Prints

LIMIT = 400_000  # records left after equal heads and tails are cut off; above, only lower bounds are given
EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Example:
    """One difference: offsets are None where a side has no such record."""

    kind: str
    source_offset: int | None
    target_offset: int | None
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Counts of records; `exact` False means lower bounds (too much differs to align record by record)."""

    proven: int
    missing: int = 0
    altered: int = 0
    reordered: int = 0
    duplicates: int = 0
    foreign: int = 0
    pending: int = 0
    exact: bool = True
    components: tuple[str, ...] = ()
    examples: tuple[Example, ...] = field(default=())


def compare(source: Prints, target: Prints, *, open_end: bool = False) -> Difference:
    """The difference between two runs that should hold the same records in the same order.

    `open_end`: the target's run ends where its log ends, so source records behind the last one that arrived are
    pending, not missing.
    """
    head = _equal_head(source.fp, target.fp)
    tail = _equal_head(source.fp[head:][::-1], target.fp[head:][::-1])
    left = np.arange(head, len(source) - tail)
    right = np.arange(head, len(target) - tail)
    if len(left) + len(right) > LIMIT:
        return _lower_bounds(source, target)

    a, b = source.fp[left].tolist(), target.fp[right].tolist()
    pairs = _common(a, b)
    in_line_a, in_line_b = {i for i, _ in pairs}, {j for _, j in pairs}
    rest_a = [i for i in range(len(a)) if i not in in_line_a]
    rest_b = [j for j in range(len(b)) if j not in in_line_b]
    moved = Counter(a[i] for i in rest_a) & Counter(b[j] for j in rest_b)
    lost, _ = _take_out(rest_a, a, moved)
    extra, moves = _take_out(rest_b, b, moved)

    altered = _pair_altered(lost, extra, pairs, source, target, head)
    gone = {i for i, _, _ in altered}
    used = {j for _, j, _ in altered}
    known = set(a)
    missing = [i for i in lost if i not in gone]
    pending = 0
    while open_end and missing and missing[-1] == len(source) - head - 1 - pending:
        missing.pop()
        pending += 1
    duplicates: list[int] = []
    foreign: list[int] = []
    for j in extra:
        if j in used:
            continue
        is_known = b[j] in known or bool((source.fp == np.uint64(b[j])).any())
        (duplicates if is_known else foreign).append(j)

    examples = [
        Example("altered", int(source.offset[head + i]), int(target.offset[head + j]), c) for i, j, c in altered
    ]
    examples += [Example("missing", int(source.offset[head + i]), None) for i in missing]
    examples += [Example("reordered", None, int(target.offset[head + j])) for j in moves]
    examples += [Example("duplicate", None, int(target.offset[head + j])) for j in duplicates]
    examples += [Example("foreign", None, int(target.offset[head + j])) for j in foreign]
    return Difference(
        proven=len(source) - len(missing) - len(altered) - len(moves) - pending,
        missing=len(missing),
        altered=len(altered),
        reordered=len(moves),
        duplicates=len(duplicates),
        foreign=len(foreign),
        pending=pending,
        components=_union(c for _, _, c in altered),
        examples=tuple(examples[:EXAMPLES]),
    )


def _equal_head(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    unequal = np.flatnonzero(a[:n] != b[:n])
    return int(unequal[0]) if len(unequal) else n


def _common(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """A longest common subsequence as (index in a, index in b), rising in both."""
    places: dict[int, list[int]] = {}
    for i, item in enumerate(a):
        places.setdefault(item, []).append(i)
    most = max(map(len, places.values()), default=0)
    if most * len(b) > 50 * LIMIT:  # a great many equal records: give each occurrence its own partner
        return _common(_numbered(a), _numbered(b))
    ends: list[int] = []  # ends[k]: smallest index of a that ends a common subsequence of length k + 1
    links: list[tuple[int, int, tuple | None]] = []
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
    pairs, link = [], links[-1] if links else None
    while link is not None:
        pairs.append((link[0], link[1]))
        link = link[2]
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
    lost: list[int], extra: list[int], pairs: list[tuple[int, int]], source: Prints, target: Prints, head: int
) -> list[tuple[int, int, tuple[str, ...]]]:
    """(source index, target index, components that differ) of records changed in place."""
    by_gap: dict[int, list[int]] = {}
    ends_b = [j for _, j in pairs]
    ends_a = [i for i, _ in pairs]
    for j in extra:
        by_gap.setdefault(bisect_left(ends_b, j), []).append(j)
    found = []
    for i in lost:
        for j in by_gap.get(bisect_left(ends_a, i), ()):
            components = _components(source, head + i, target, head + j)
            if len(components) <= 2 and ("value" not in components or len(components) == 1):
                found.append((i, j, components))
                by_gap[bisect_left(ends_a, i)].remove(j)
                break
    return found


def _components(source: Prints, i: int, target: Prints, j: int) -> tuple[str, ...]:
    names = (("key", "kh"), ("value", "vh"), ("headers", "hh"), ("timestamp", "ts"))
    return tuple(name for name, field in names if getattr(source, field)[i] != getattr(target, field)[j])


def _lower_bounds(source: Prints, target: Prints) -> Difference:
    """For runs that differ nearly everywhere: position by position, or by multiset when the lengths differ."""
    if len(source) == len(target):
        unequal = source.fp != target.fp
        count = int(np.count_nonzero(unequal))
        names = (("key", "kh"), ("value", "vh"), ("headers", "hh"), ("timestamp", "ts"))
        changed = tuple(name for name, f in names if (getattr(source, f) != getattr(target, f)).any())
        if np.array_equal(np.sort(source.fp), np.sort(target.fp)):
            return Difference(len(source) - count, reordered=count, exact=False)
        return Difference(len(source) - count, altered=count, exact=False, components=changed)
    have, have_n = np.unique(source.fp, return_counts=True)
    there, there_n = np.unique(target.fp, return_counts=True)
    _, i, j = np.intersect1d(have, there, assume_unique=True, return_indices=True)
    common = int(np.minimum(have_n[i], there_n[j]).sum())
    duplicates = int(np.maximum(there_n[j] - have_n[i], 0).sum())
    return Difference(
        common,
        missing=len(source) - common,
        duplicates=duplicates,
        foreign=len(target) - common - duplicates,
        exact=False,
    )


def _union(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    found = {name for group in groups for name in group}
    return tuple(name for name in ("key", "value", "headers", "timestamp") if name in found)
