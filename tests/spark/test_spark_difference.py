"""Record-level differences and the verdict, without clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.spark.fingerprint import (
    ORDER_WEIGHT_STEP,
    ChunkSum,
    ConsumedRecord,
    compute_order_weights,
    fingerprint_records,
    sum_fingerprints,
)
from watershed.spark.judging import record_difference
from watershed.spark.judging.proof_window import PartitionPair
from watershed.spark.judging.record_difference import RecordDifference, compare_records
from watershed.spark.judging.verdict import (
    ChunkRow,
    ConfirmedDifference,
    Counts,
    compute_proof_root,
    join_different_chunks,
    judge_proof,
)
from watershed.spark.reading.offset_range import OffsetRange

PLACE = PartitionPair("a-to-b", "orders", "orders", 0)
distinct = st.integers(0, 40).map(lambda n: [ConsumedRecord(b"%d" % i, b"v%d" % i, i) for i in range(n)])


def counts(d: RecordDifference) -> dict[str, int]:
    names = ("missing", "altered", "reordered", "duplicates", "foreign", "pending")
    return {name: getattr(d, name) for name in names if getattr(d, name)}


@given(distinct, st.data())
def test_lost_and_doubled_records_are_counted_exactly(log: list[ConsumedRecord], data: st.DataObject) -> None:
    fates = data.draw(st.lists(st.sampled_from([0, 1, 1, 1, 2, 3]), min_size=len(log), max_size=len(log)))
    copy = [record for record, fate in zip(log, fates, strict=True) for _ in range(fate)]
    found = compare_records(fingerprint_records(log), fingerprint_records(copy))
    lost = sum(fate == 0 for fate in fates)
    doubled = sum(max(0, fate - 1) for fate in fates)
    assert found.proven == len(log) - lost
    assert counts(found) == {k: v for k, v in (("missing", lost), ("duplicates", doubled)) if v}


@given(st.lists(st.integers(0, 6), max_size=25), st.lists(st.integers(0, 6), max_size=25))
def test_every_record_has_one_class_whatever_the_logs(left: list[int], right: list[int]) -> None:
    one = fingerprint_records([ConsumedRecord(b"%d" % n, None, n) for n in left])
    two = fingerprint_records([ConsumedRecord(b"%d" % n, None, n) for n in right])
    found = compare_records(one, two)
    assert found.proven + found.missing + found.altered + found.reordered == len(left)
    assert found.proven + found.altered + found.reordered + found.duplicates + found.foreign == len(right)
    assert (not counts(found)) == (left == right)
    assert found.proven == _longest_common(left, right)


def test_reordered_is_the_fewest_moves() -> None:
    log = [ConsumedRecord(b"%d" % i, None, i) for i in range(10)]
    moved = [*log[1:], log[0]]
    assert counts(compare_records(fingerprint_records(log), fingerprint_records(moved))) == {"reordered": 1}


def test_an_open_end_makes_the_last_ones_pending() -> None:
    log = [ConsumedRecord(b"%d" % i, None, i) for i in range(10)]
    some = [*log[:4], *log[5:8]]
    assert counts(compare_records(fingerprint_records(log), fingerprint_records(some))) == {"missing": 3}
    assert counts(compare_records(fingerprint_records(log), fingerprint_records(some), open_end=True)) == {
        "missing": 1,
        "pending": 2,
    }


def test_too_much_to_align_gives_honest_lower_bounds() -> None:
    before, record_difference.MAX_ALIGNED_RECORDS = record_difference.MAX_ALIGNED_RECORDS, 10
    try:
        log = [ConsumedRecord(b"k", b"%d" % i, i) for i in range(50)]
        later = [ConsumedRecord(b"k", b"%d" % i, i + 1) for i in range(50)]
        found = compare_records(fingerprint_records(log), fingerprint_records(later))
        assert (found.altered, found.components, found.exact) == (50, ("timestamp",), False)
        found = compare_records(fingerprint_records(log), fingerprint_records([*log[::2], log[0]]))
        assert (found.proven, found.missing, found.duplicates, found.exact) == (25, 25, 1, False)
    finally:
        record_difference.MAX_ALIGNED_RECORDS = before


def row(source: tuple[int, int], target: tuple[int, int], status: str, n: int = 10) -> ChunkRow:
    sums = sum_fingerprints(fingerprint_records([ConsumedRecord(b"k", None, i) for i in range(n)]))
    return ChunkRow(PLACE, OffsetRange(*source), OffsetRange(*target), sums, sums, status)  # type: ignore[arg-type]


def test_verdicts() -> None:
    equal = row((0, 10), (0, 10), "equal")
    assert judge_proof([equal], [], {}).verdict == "proven"
    assert judge_proof([], [], {}).verdict == "proven"
    assert judge_proof([equal], [], {PLACE: Counts(pending=1)}).verdict == "incomplete"
    assert judge_proof([equal], [], {PLACE: Counts(unverifiable=1)}).verdict == "incomplete"
    assert judge_proof([equal], [], {}, blocks=["topic x is missing on b"]).verdict == "incomplete"
    assert judge_proof([equal], [], {}, errors=["unreachable"]).verdict == "error"
    for kind in ("missing", "altered", "reordered", "duplicates", "foreign"):
        confirmed = ConfirmedDifference(PLACE, OffsetRange(0, 10), OffsetRange(0, 10), RecordDifference(9, **{kind: 1}))
        judged = judge_proof([equal], [confirmed], {PLACE: Counts(pending=5)})
        assert (judged.verdict, judged.total.unproven, judged.total.proven) == ("different", 1, 19)


def test_neighbours_that_differ_are_compared_together() -> None:
    rows = [
        row((20, 30), (20, 30), "different"),
        row((10, 20), (10, 20), "different"),
        row((0, 10), (0, 10), "equal"),
        row((40, 50), (40, 50), "different"),
    ]
    assert join_different_chunks(rows, 100) == [(PLACE, (10, 30), (10, 30)), (PLACE, (40, 50), (40, 50))]
    assert len(join_different_chunks(rows, 15)) == 3


def test_the_proof_root_depends_on_the_rows_and_not_on_their_order() -> None:
    rows = [row((i, i + 1), (i, i + 1), "equal") for i in range(5)]
    assert compute_proof_root(rows) == compute_proof_root(rows[::-1])
    assert len({compute_proof_root(rows[:n]) for n in range(6)}) == 6


@pytest.mark.parametrize("base", [None, 0])
def test_repeated_records_that_change_places_are_noticed(base: int | None) -> None:
    a, b = ConsumedRecord(b"a", None, 1), ConsumedRecord(b"b", None, 1)
    one, two = fingerprint_records([a, b, b, a]), fingerprint_records([b, a, a, b])
    assert sum_fingerprints(one, base=base).has_same_records(sum_fingerprints(two, base=base))
    assert not sum_fingerprints(one, base=base).equals(sum_fingerprints(two, base=base))


@pytest.mark.parametrize("apart", [1, 1 << 20])
def test_sums_of_neighbours_join(apart: int) -> None:
    log = fingerprint_records([ConsumedRecord(b"a", b"%d" % (i % 3), 1) for i in range(30)])
    log = replace(log, offset=log.offset * apart)
    left, right = log.between(0, 10 * apart), log.between(10 * apart, 30 * apart)
    assert (sum_fingerprints(left) + sum_fingerprints(right)).order == sum_fingerprints(log).order
    assert (
        sum_fingerprints(left, base=0).add_in_place(sum_fingerprints(right, base=0)).order
        == sum_fingerprints(log, base=0).order
    )
    assert compute_order_weights(log.offset).tolist() == [
        pow(ORDER_WEIGHT_STEP, each, 1 << 64) for each in log.offset.tolist()
    ]


def test_sums_notice_what_counts_cannot() -> None:
    log = fingerprint_records([ConsumedRecord(b"a", None, 1), ConsumedRecord(b"b", None, 2)])
    other = fingerprint_records([ConsumedRecord(b"a", None, 1), ConsumedRecord(b"a", None, 1)])
    assert sum_fingerprints(log).n == sum_fingerprints(other).n
    assert not sum_fingerprints(log).has_same_records(sum_fingerprints(other))
    assert sum_fingerprints(log.between(0, 0)) == ChunkSum()
    assert np.array_equal(log.fp[:1], other.fp[:1])


def _longest_common(a: list[int], b: list[int]) -> int:
    """The textbook table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_runs_without_a_single_equal_record_take_no_square_of_their_length() -> None:
    """Both keys and values other ones, as of a copy whose schema ids nobody translates: nothing pairs."""
    log = [ConsumedRecord(b"k%d" % i, b"v%d" % i, i) for i in range(20_000)]
    other = [ConsumedRecord(b"K%d" % i, b"V%d" % i, i) for i in range(20_000)]
    assert counts(compare_records(fingerprint_records(log), fingerprint_records(other))) == {
        "missing": 20_000,
        "foreign": 20_000,
    }
