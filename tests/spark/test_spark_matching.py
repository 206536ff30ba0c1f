"""Which batches of two logs are the same: exactly those that stand where the map says, with the same digest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watershed.spark.reading.batch_digests import BatchDigests, sum_batch_digests
from watershed.spark.reading.batch_matching import match_batches
from watershed.spark.reading.offset_range import OffsetRange


def batches(*rows: tuple[int, int, int]) -> BatchDigests:
    """(base, records, digest) of each."""
    base, count, digest = (
        np.array(column, dtype=np.int64) for column in (zip(*rows, strict=True) if rows else [()] * 3)
    )
    ts = np.full(len(base), 1_000, dtype=np.int64)
    return BatchDigests(base, base + count - 1, count, ts, ts, count * 100, digest.astype(np.uint64))


def identity(offset: int) -> int:
    return offset


WHOLE = (OffsetRange(0, 1_000), OffsetRange(0, 1_000))


def test_what_was_merged_is_left_between_what_is_the_same() -> None:
    source = batches((0, 10, 1), (10, 5, 2), (15, 5, 3), (20, 10, 4), (30, 10, 5))
    target = batches((0, 10, 1), (10, 10, 9), (20, 10, 4), (30, 10, 5))
    found = match_batches(source, target, WHOLE, identity)
    assert found.source == found.target == ((0, 10), (20, 40))
    assert found.sums == found.target_sums == sum_batch_digests(batches((0, 10, 1), (20, 10, 4), (30, 10, 5)))


def test_a_copy_has_offsets_of_its_own() -> None:
    source, target = batches((100, 10, 1), (115, 10, 2)), batches((0, 10, 1), (10, 10, 2))
    found = match_batches(source, target, (OffsetRange(100, 200), OffsetRange(0, 20)), {100: 0, 115: 10}.__getitem__)
    assert (found.source, found.target) == (((100, 110), (115, 125)), ((0, 10), (10, 20)))


def test_the_same_batch_elsewhere_is_none() -> None:
    assert not match_batches(batches((0, 10, 1), (10, 10, 2)), batches((0, 10, 2), (10, 10, 1)), WHOLE, identity)


def test_a_batch_over_the_edge_of_the_chunk_is_none() -> None:
    both = batches((0, 10, 1), (10, 10, 2), (20, 10, 3))
    assert match_batches(both, both, (OffsetRange(5, 25), OffsetRange(5, 25)), identity).source == ((10, 20),)
    assert not match_batches(both, both, (OffsetRange(0, 30), OffsetRange(5, 15)), identity)


def test_nothing_on_one_side_is_nothing() -> None:
    assert not match_batches(batches(), batches((0, 10, 1)), WHOLE, identity)
    assert not match_batches(batches((0, 10, 1)), batches(), WHOLE, identity)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 1), st.booleans()), max_size=30))
def test_all_that_is_matched_is_the_same_on_both_sides(logs: list[tuple[int, int, int, bool]]) -> None:
    """Random batches (records, digest, hole behind them), some altered on the target: what is matched was not."""
    source, target, kept, places = [], [], [], {}
    here = there = 0
    for records, digest, hole, altered in logs:
        source.append((here, records, digest))
        target.append((there, records, digest + 7 if altered else digest))
        places[here] = there
        kept += [] if altered else range(here, here + records)
        here, there = here + records + hole, there + records
    found = match_batches(
        batches(*source), batches(*target), (OffsetRange(0, here), OffsetRange(0, there)), places.__getitem__
    )
    assert [offset for first, end in found.source for offset in range(first, end)] == kept
    assert found.sums.n == len(kept) == sum(end - first for first, end in found.target)
    assert found.sums == found.target_sums


def test_two_batches_that_are_expected_at_one_place_are_matched_once() -> None:
    """The map has a gap where the first should be: its like behind it is no proof of it."""
    source, target = batches((0, 10, 1), (10, 10, 1)), batches((0, 10, 1))
    found = match_batches(source, target, WHOLE, {0: 0, 10: 0}.__getitem__)
    assert (found.source, found.target, found.sums.n, found.target_sums.n) == (((0, 10),), ((0, 10),), 10, 10)


def test_a_hole_on_either_side_parts_the_spans_of_both() -> None:
    """So that as many spans stand before a record on one side as on the other."""
    source, target = batches((0, 10, 1), (10, 10, 2)), batches((0, 10, 1), (12, 10, 2))
    for here, there in ((source, target), (target, source)):
        places = dict(zip(here.base.tolist(), there.base.tolist(), strict=True))
        found = match_batches(here, there, WHOLE, places.__getitem__)
        assert len(found.source) == len(found.target) == 2
