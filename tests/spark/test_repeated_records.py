"""Repeats of a copy that may have them: each is named with the record that it repeats; what is more differs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.logs import Log, a_log, packed, records_of
from tests.spark.memory import Stored
from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, RepeatedRunMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.spark.fingerprint import ConsumedRecord, RecordFingerprints, fingerprint_records
from watershed.spark.judging import difference_confirmation
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window
from watershed.spark.judging.repeated_records import compare_with_repeats
from watershed.spark.judging.verdict import EXIT_CODES, PASSED_VERDICTS

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
    source: Log,
    target: Log,
    runs: Sequence[ExplicitRun],
    known: Sequence[ExplicitRun] = (),
    chunk: int = 50,
    source_start: int = 0,
) -> ComparisonOutcome:
    """runs, known: what the ledger says of copied and of repeated records. source_start: the source's log start."""
    stored = Stored()
    ends = [stored.put((alias, "t", 0), log) for alias, log in (("onprem", source), ("cloud", target))]
    position = runs[-1].source + runs[-1].records
    offsets = RepeatedRunMap.beside(
        ExplicitRunMap.over(runs, OffsetRun(0, 0), position), runs[-1].target + runs[-1].records, tuple(known)
    )
    seen = ObservedPartition(PLACE, LogRange(source_start, ends[0]), LogRange(0, ends[1]), offsets, ends[0], IDS)
    stored.starts["onprem", "t", 0] = source_start
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


@pytest.mark.parametrize("chunk", [50, 1_000])
def test_a_repeat_does_not_hide_a_map_that_leads_behind_a_record(chunk: int) -> None:
    """The ledger puts source offset 100 at 120; it stands at 100, and a repeat stands at 120."""
    records = records_of(packed(a_log(1, 200)))
    target = packed([*records[:120], *records[60:80], *records[120:]])
    wrong = [ExplicitRun(0, 0, 100), ExplicitRun(120, 100, 100)]
    proof = proof_of(packed(records), target, wrong, [ExplicitRun(100, 60, 20)], chunk)
    assert (proof.judgement.total.repeated, proof.judgement.total.unproven) == (20, 0)
    [finding] = proof.judgement.blocks
    assert "not at the offsets that the offset map gives" in finding
    assert proof.judgement.verdict == "incomplete"


def test_of_equal_records_those_repeat_that_the_ledger_says() -> None:
    """Two batches of equal records, the first of them twice: the second one stands where the map says."""
    one, other = records_of(packed(a_log(1, 4))), records_of(packed(a_log(2, 40)))
    source, target = packed([*one, *one, *other]), packed([*one, *one, *one, *other])
    runs = [ExplicitRun(0, 0, 4), ExplicitRun(8, 4, 44)]
    proof = proof_of(source, target, runs, [ExplicitRun(4, 0, 4)])
    assert (proof.judgement.verdict, proof.judgement.total.repeated) == ("repeated", 4)
    believed = proof_of(source, target, [ExplicitRun(0, 0, 8), ExplicitRun(12, 8, 40)], [ExplicitRun(0, 0, 4)])
    assert believed.judgement.verdict == "repeated", "a ledger that is wrong hides nothing that is there"


@pytest.mark.parametrize("small", [True, False])
def test_what_the_ledger_does_not_know_yet_is_no_difference(monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    """It is written behind the answers; behind the copy waits a backlog."""
    monkeypatch.setattr(difference_confirmation, "_TAIL", 1_000 if small else 40)
    records = records_of(packed(a_log(1, 600)))
    target = packed(records[:130])
    judgement = proof_of(packed(records), target, [ExplicitRun(0, 0, 100)]).judgement
    assert (judgement.total.proven, judgement.total.pending, judgement.total.unproven) == (130, 470, 0)
    assert not judgement.blocks
    assert judgement.verdict == "incomplete"
    again = packed([*records[:130], *records[110:130], *records[130:]])
    caught_up = proof_of(packed(records), again, [ExplicitRun(0, 0, 100)]).judgement
    assert (caught_up.total.repeated, caught_up.total.unproven, caught_up.blocks) == (20, 0, ())


def test_a_repeat_of_what_has_expired_at_the_source_is_unverifiable() -> None:
    log = a_log(1, 200)
    records = records_of(packed(log))
    target = packed([*records[:150], *records[5:15], *records[150:]])
    runs, source = [ExplicitRun(0, 0, 150), ExplicitRun(160, 150, 50)], packed(log)
    known = [ExplicitRun(150, 5, 10)]
    total = proof_of(source, target, runs, known, source_start=50).judgement.total
    assert (total.repeated, total.unverifiable, total.difference_count) == (0, 10, 0)
    unknown = proof_of(source, target, runs, source_start=50).judgement.total
    assert (unknown.foreign, unknown.unverifiable) == (10, 0)
