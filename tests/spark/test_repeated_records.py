"""Repeats of a copy that may have them: each is named with the record that it repeats; what is more differs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.cluster_protocol import LogRange
from replicator.ledger.explicit_runs import ExplicitRunMap, RepeatedRunMap
from replicator.ledger.offset_map import ExplicitRun, OffsetRun
from spark.fingerprint import ConsumedRecord, RecordFingerprints, fingerprint_records
from spark.judging import difference_confirmation
from spark.judging.proof import ComparisonOutcome, compare_and_judge
from spark.judging.proof_inputs import ProofPartition
from spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window
from spark.judging.repeated_records import compare_with_repeats
from spark.judging.verdict import EXIT_CODES, PASSED_VERDICTS
from tests.spark.logs import Log, a_log, packed, records_of
from tests.spark.memory import Stored

IDS = (uuid.UUID(int=1), uuid.UUID(int=2))
PLACE = PartitionPair("a-to-b", "t", "t", 0)


def run_of(numbers: Iterable[int]) -> RecordFingerprints:
    return fingerprint_records([ConsumedRecord(b"%d" % n, b"v%d" % n, n) for n in numbers])


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=12))
def test_each_repeat_is_named_with_the_record_that_it_repeats(count: int, late: list[tuple[int, int]]) -> None:
    copy, repeats = [], []
    for number in range(count):
        copy.append(number)
        for behind, again in late:
            if behind == number and again <= number:
                repeats.append((again, len(copy)))
                copy.append(again)
    found = compare_with_repeats(run_of(range(count)), run_of(copy))
    assert (found.proven, found.repeated, found.difference_count) == (count, len(repeats), 0)
    named = [(each.source_offset, each.target_offset) for each in found.examples]
    assert named == repeats[: len(named)]
    assert {each.kind for each in found.examples} <= {"repeated"}


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=20))
def test_repeats_are_told_only_where_all_is_there_in_order(left: list[int], right: list[int]) -> None:
    found = compare_with_repeats(run_of(left), run_of(right), limit=100)
    at, is_copy = 0, True
    for item in right:
        if at < len(left) and item == left[at]:
            at += 1
        elif item not in left[:at]:
            is_copy = False
    is_copy = is_copy and at == len(left)
    assert (found.difference_count == 0) is is_copy
    if is_copy:
        assert found.repeated == len(right) - len(left)
        assert all(left[each.source_offset] == right[each.target_offset] for each in found.examples)
        assert [each.target_offset for each in found.examples] == sorted({e.target_offset for e in found.examples})


@pytest.mark.parametrize(
    ("source", "target", "counts"),
    [
        ([0, 1, 2, 3], [0, 1, 1, 3], {"missing": 1, "duplicates": 1}),
        ([0, 1, 2, 3], [0, 2, 1, 2, 3], {"duplicates": 1}),
        ([0, 1, 2, 3], [0, 1, 9, 2, 3], {"foreign": 1}),
        ([0, 1, 2, 3], [0, 2, 1, 3], {"reordered": 1}),
    ],
)
def test_what_is_more_than_a_repeat_differs(source: list[int], target: list[int], counts: dict[str, int]) -> None:
    found = compare_with_repeats(run_of(source), run_of(target))
    assert {name: getattr(found, name) for name in counts} == counts
    assert found.repeated == 0
    assert found.difference_count == sum(counts.values())


def test_what_is_not_copied_yet_is_pending() -> None:
    found = compare_with_repeats(run_of([0, 1, 2, 3]), run_of([0, 1, 0, 1]), open_end=True)
    assert (found.proven, found.pending, found.repeated, found.difference_count) == (2, 2, 2, 0)
    closed = compare_with_repeats(run_of([0, 1, 2, 3]), run_of([0, 1, 0, 1]))
    assert (closed.missing, closed.repeated) == (2, 0)


def test_a_run_of_repeats_goes_on_behind_itself() -> None:
    found = compare_with_repeats(run_of([7, 8, 7, 8, 7]), run_of([7, 8, 7, 8, 7, 7, 8, 7]))
    assert [each.source_offset for each in found.examples][1:] in ([1, 2], [3, 4])


def proof_of(
    source: Log, target: Log, runs: Sequence[ExplicitRun], known: Sequence[ExplicitRun] = (), chunk: int = 50
) -> ComparisonOutcome:
    """runs, known: what the ledger says of copied and of repeated records."""
    stored = Stored()
    ends = [stored.put((alias, "t", 0), log) for alias, log in (("onprem", source), ("cloud", target))]
    position = runs[-1].source + runs[-1].records
    offsets = RepeatedRunMap.beside(
        ExplicitRunMap.over(runs, OffsetRun(0, 0), position), runs[-1].target + runs[-1].records, tuple(known)
    )
    seen = ObservedPartition(PLACE, LogRange(0, ends[0]), LogRange(0, ends[1]), offsets, ends[0], IDS)
    with stored.in_place_of_clusters() as readers:
        partition = ProofPartition(fix_window(seen), seen.map, ("onprem", "cloud"), chunk=chunk)
        return compare_and_judge([partition], readers)


@pytest.mark.parametrize("chunk", [7, 50, 1_000])
def test_a_proof_counts_and_names_them_and_says_so_in_its_verdict(chunk: int) -> None:
    records = records_of(packed(a_log(1, 200)))
    target = packed([*records[:120], *records[90:110], *records[120:]])
    runs = [ExplicitRun(0, 0, 120), ExplicitRun(140, 120, 80)]
    proof = proof_of(packed(records), target, runs, [ExplicitRun(120, 90, 20)], chunk)
    assert proof.judgement.verdict == "repeated"
    assert proof.judgement.verdict in PASSED_VERDICTS
    assert EXIT_CODES[proof.judgement.verdict] == 0
    total = proof.judgement.total
    assert (total.proven, total.repeated, total.unproven) == (200, 20, 0)
    named = [(e.source_offset, e.target_offset) for each in proof.confirmed for e in each.difference.examples]
    assert named == [(90 + at, 120 + at) for at in range(20)]
    assert not proof.judgement.blocks
    assert {row.status for row in proof.rows} == ({"equal", "repeated"} if chunk < 1_000 else {"repeated"})


def test_repeats_that_no_worker_knows_are_found_at_the_end() -> None:
    records = records_of(packed(a_log(1, 100)))
    proof = proof_of(packed(records), packed([*records, *records[60:70]]), [ExplicitRun(0, 0, 100)])
    assert (proof.judgement.verdict, proof.judgement.total.repeated) == ("repeated", 10)


def test_what_the_ledger_names_is_found_however_far_back_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference_confirmation, "_NEAR", 20)
    records = records_of(packed(a_log(1, 200)))
    target = packed([*records[:150], *records[5:15], *records[150:]])
    runs = [ExplicitRun(0, 0, 150), ExplicitRun(160, 150, 50)]
    proof = proof_of(packed(records), target, runs, [ExplicitRun(150, 5, 10)])
    assert (proof.judgement.verdict, proof.judgement.total.repeated) == ("repeated", 10)
    unknown = proof_of(packed(records), target, runs)
    assert unknown.judgement.verdict == "different"
    assert unknown.judgement.total.foreign == 10


def test_a_lost_record_is_a_difference_as_ever() -> None:
    records = records_of(packed(a_log(1, 100)))
    target = packed([*records[:50], *records[30:40], *records[51:]])
    proof = proof_of(packed(records), target, [ExplicitRun(0, 0, 50), ExplicitRun(60, 50, 50)])
    assert proof.judgement.verdict == "different"
    assert proof.judgement.total.missing == 1


def test_without_repeats_it_is_proven() -> None:
    log = packed(a_log(1, 100))
    proof = proof_of(log, log, [ExplicitRun(0, 0, 100)])
    assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", 100)
    assert replace(proof.judgement).total.repeated == 0
