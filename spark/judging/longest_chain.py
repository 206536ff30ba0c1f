"""Aligning two runs of records: the longest chain of equal records that rises on both sides."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from watershed.spark.reading.xxh64 import U64

_Link: TypeAlias = "tuple[int, int, _Link | None]"  # a pair, and the pair before it in its chain


def find_longest_chain(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """A longest chain of pairs that rises in both numbers (Hunt and Szymanski 1977).

    pairs: by rising second number; where that is equal, by falling first number. Only chains that can still grow are
    held in memory, so there may be many more pairs than records.
    """
    ends: list[int] = []  # ends[k]: smallest first number that ends a chain of length k + 1
    links: list[_Link] = []
    for first, second in pairs:
        k = bisect_left(ends, first)
        if k == len(ends):
            ends.append(first)
            links.append((first, second, links[k - 1] if k else None))
        elif ends[k] != first:
            ends[k] = first
            links[k] = (first, second, links[k - 1] if k else None)
    chain = []
    last = links[-1] if links else None
    while last is not None:
        chain.append((last[0], last[1]))
        last = last[2]
    return chain[::-1]


def number_occurrences(prints: U64) -> U64:
    """Fingerprints made distinct by how often each stood before: the second of its kind equals only another second."""
    order = np.argsort(prints, kind="stable")
    ranked = prints[order]
    first = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))) if len(ranked) else np.empty(0, int)
    seen = np.arange(len(ranked)) - np.repeat(first, np.diff(np.append(first, len(ranked))))
    distinct = np.empty_like(prints)
    distinct[order] = ranked + seen.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return distinct
