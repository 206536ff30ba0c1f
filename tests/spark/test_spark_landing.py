"""The landing test against an oracle that knows where every record went."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.fingerprint import ConsumedRecord, RecordFingerprints, fingerprint_records
from watershed.spark.judging.group_position_landing import (
    LandedPosition,
    LandingResult,
    RecordsAround,
    compare_landing,
    judge_position,
)
from watershed.spark.judging.group_position_reading import (
    FlowGroupPositions,
    GroupPosition,
    add_group_findings,
    run_landing_tests,
    run_landing_tests_once,
)
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair
from watershed.spark.judging.verdict import ProofJudgement
from watershed.spark.reading.fetch_answers import OffsetsExpired
from watershed.spark.reading.offset_range import OffsetRange
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
PLACE = TopicPartition("orders", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def around(log: list[int], at: int) -> RecordsAround:
    return RecordsAround(tuple(log[:at]), tuple(log[at:]))


@given(st.integers(1, 30), st.data())
def test_a_position_is_off_by_what_it_is_off(length: int, data: st.DataObject) -> None:
    log = list(range(length))
    here = data.draw(st.integers(0, length))
    there = data.draw(st.integers(0, length))
    found = compare_landing(around(log, here), around(log, there))
    if there > here:
        assert found == LandingResult("ahead", there - here)
    elif there < here:
        assert found == LandingResult("behind", here - there)
    else:
        assert found == LandingResult("exact")


@given(st.lists(st.integers(0, 2), min_size=2, max_size=20), st.data())
def test_like_records_never_make_a_right_position_wrong(log: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(log)))
    assert compare_landing(around(log, at), around(log, at)).word == "exact"


def test_one_too_far_among_like_records_is_seen() -> None:
    log = [7, 5, 5, 5, 8]
    assert compare_landing(around(log, 2), around(log, 3)) == LandingResult("ahead", 1)
    assert compare_landing(around(log, 3), around(log, 2)) == LandingResult("behind", 1)


@pytest.mark.parametrize(
    ("here", "there", "word"),
    [
        (([1, 2], [3, 4]), ([1, 2], [9, 4]), "not known"),  # altered where it lands
        (([1, 2], [3, 4]), ([1, 2], [9, 3, 4]), "exact"),  # a foreign record comes first, nothing is left out
        (([1, 2], [3, 4]), ([1], [3, 4]), "exact"),  # one lost before it
        (([1, 2], [3]), ([1, 2], []), "not known"),  # not copied, or lost
        (([1, 2], []), ([1, 2], [9]), "exact"),
        (([], []), ([], []), "exact"),
        (([1, 2], []), ([1, 3], []), "not known"),
    ],
)
def test_next_to_a_difference(here: tuple[list[int], list[int]], there: tuple[list[int], list[int]], word: str) -> None:
    found = compare_landing(RecordsAround(*map(tuple, here)), RecordsAround(*map(tuple, there)))  # type: ignore[arg-type]
    assert found.word == word


class Logs:
    """A copied log: aborted transactions at the source make its offsets sparse. The copy begins at offset 5."""

    def __init__(self, count: int = 200, marker_every: int = 10) -> None:
        self.home = [n + n // marker_every for n in range(count)]
        runs = [(5 + n, at) for n, at in enumerate(self.home) if n % marker_every == 0]
        self.map = OffsetMap.of(runs)
        records = [ConsumedRecord(b"k", b"%d" % n, n) for n in range(count)]
        plain = fingerprint_records(records)
        self.sides = (_moved(plain, self.home), _moved(plain, [5 + n for n in range(count)]))
        self.end = self.home[-1] + 2  # a marker is the last thing at the source
        self.asked: list[OffsetRange] = []

    def read(self, side: int, topic: str, partition: int, span: OffsetRange) -> RecordFingerprints:
        self.asked.append(span)
        return self.sides[side].between(span.start, span.end)

    def observed(self, **change: object) -> ObservedPartition:
        seen = ObservedPartition(
            PartitionPair("a-to-b", "orders", "orders", 0),
            LogRange(0, self.end),
            LogRange(5, 5 + len(self.home)),
            self.map,
            self.end,
            IDS,
        )
        return replace(seen, **change)  # type: ignore[arg-type]

    def test(self, committed: int, at_target: int | None, **change: object) -> LandedPosition:
        position = replace(GroupPosition("billing", "billing", PLACE, committed, at_target), **change)  # type: ignore[arg-type]
        [found] = run_landing_tests_once(FLOW, [position], [self.observed()], self.read)
        return found


def _moved(prints: RecordFingerprints, offsets: list[int]) -> RecordFingerprints:
    import numpy as np

    return replace(prints, offset=np.array(offsets, dtype=np.int64))


@given(st.integers(0, 221))
def test_every_offset_of_the_source_lands_exactly(committed: int) -> None:
    logs = Logs()
    right = 5 + sum(at < committed for at in logs.home)
    found = logs.test(committed, right)
    assert (found.translated, found.translation, found.landing, found.judged) == (right, "exact", "exact", "same")
    assert found.source_fp == found.target_fp


def test_what_the_target_holds_is_measured_in_records() -> None:
    logs = Logs()
    right = 5 + sum(at < 110 for at in logs.home)
    assert [(f.landing, f.landing_records, f.judged) for f in (logs.test(110, right + n) for n in (-7, 0, 3))] == [
        ("behind", 7, "told"),
        ("exact", None, "same"),
        ("ahead", 3, "different"),
    ]
    nothing = logs.test(110, None)
    assert (nothing.landing, nothing.judged) == ("not there", "same")
    alive = logs.test(110, right + 3, elsewhere=True)
    assert (alive.landing, alive.judged) == ("ahead", "told")
    assert "its position there is its own" in alive.why
    beyond = logs.test(110, 900)
    assert (beyond.landing, beyond.judged) == ("ahead", "different")
    assert "behind the target's log end 205" in beyond.why


def test_a_wrong_map_is_found_out_by_the_records() -> None:
    logs = Logs()
    logs.map = OffsetMap.of([(5, 0)])  # markers counted as records: ever further ahead
    found = logs.test(110, None)
    assert (found.translation, found.translation_records, found.judged) == ("ahead", 10, "different")
    judgement = add_group_findings(ProofJudgement({}), [found])
    assert judgement.verdict == "different"


def test_what_is_not_copied_yet_is_not_known() -> None:
    logs = Logs()
    [found] = run_landing_tests_once(
        FLOW, [GroupPosition("g", "g", PLACE, 150, 20)], [logs.observed(target=LogRange(5, 25))], logs.read
    )
    assert (found.translation, found.landing, found.judged) == ("not known", "not known", "unknown")
    assert "the copy was at source offset 22" in found.why
    judgement = add_group_findings(ProofJudgement({}), [found])
    assert judgement.verdict == "incomplete"
    assert "group g: where 1 of its positions land is not known" in judgement.blocks[0]


def test_what_came_from_the_target_is_not_judged() -> None:
    assert Logs().test(110, 3, home=True).judged == "told"


def test_what_seems_ahead_is_looked_at_again() -> None:
    """A flow carried the position on between the two looks."""
    logs = Logs()
    right = 5 + sum(at < 110 for at in logs.home)
    early, late = GroupPosition("g", "g", PLACE, 100, right), GroupPosition("g", "g", PLACE, 110, right)
    looks: list[int] = []

    def look() -> FlowGroupPositions:
        looks.append(1)
        return FlowGroupPositions((late,))

    [found] = run_landing_tests(FLOW, [early], [logs.observed()], logs.read, look)
    assert (found.landing, looks) == ("exact", [1])
    [found] = run_landing_tests(FLOW, [early], [logs.observed()], logs.read, lambda: FlowGroupPositions((early,)))
    assert found.judged == "different"


def test_a_partition_that_was_not_compared() -> None:
    [found] = run_landing_tests_once(FLOW, [GroupPosition("g", "g", PLACE, 5, None)], [], Logs().read)
    assert (found.judged, found.why) == ("unknown", "the partition was not compared")


def test_words() -> None:
    exact, ahead = LandingResult("exact"), LandingResult("ahead", 1)
    assert judge_position(ahead, exact, elsewhere=True) == "different"
    assert judge_position(exact, LandingResult("not known"), elsewhere=False) == "unknown"


def test_what_expires_while_it_is_read_is_not_known() -> None:
    logs = Logs()

    def read(side: int, topic: str, partition: int, span: OffsetRange) -> RecordFingerprints:
        if side == 1 and span == OffsetRange(43, 105):  # between what is committed there and where it belongs
            raise OffsetsExpired(90)
        return logs.read(side, topic, partition, span)

    [found] = run_landing_tests_once(FLOW, [GroupPosition("g", "g", PLACE, 110, 43)], [logs.observed()], read)
    assert (found.judged, found.why) == (
        "unknown",
        "records there expired while they were read: the log starts at 90 now",
    )
