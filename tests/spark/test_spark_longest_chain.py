"""The longest chain of equal records, against the plain quadratic algorithm."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watershed.spark.judging.longest_chain import find_longest_chain, number_occurrences

items = st.lists(st.integers(0, 5), max_size=12)


@given(items, items)
def test_a_chain_is_as_long_as_the_longest_common_subsequence_and_rises(a: list[int], b: list[int]) -> None:
    pairs = [(i, j) for j in range(len(b)) for i in reversed(range(len(a))) if a[i] == b[j]]
    chain = find_longest_chain(pairs)
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, one in enumerate(a, 1):
        for j, two in enumerate(b, 1):
            longer = max(length[i - 1][j], length[i][j - 1])
            length[i][j] = length[i - 1][j - 1] + 1 if one == two else longer
    assert len(chain) == length[-1][-1]
    assert all(a[i] == b[j] for i, j in chain)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in pairwise(chain))


@given(items, items)
def test_numbered_items_are_equal_where_item_and_occurrence_are(a: list[int], b: list[int]) -> None:
    def plain(values: list[int]) -> list[tuple[int, int]]:
        return [(value, values[:at].count(value)) for at, value in enumerate(values)]

    numbered = [number_occurrences(np.array(values, dtype=np.uint64)).tolist() for values in (a, b)]
    for x, item in zip(numbered[0], plain(a), strict=True):
        for y, other in zip(numbered[1], plain(b), strict=True):
            assert (x == y) == (item == other)
