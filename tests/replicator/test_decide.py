"""How a partition goes on that is copied in transactions: what the logs say, and what was ordered."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.replicator.test_explicit_runs import Log
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.transaction_positions import (
    PositionAndRuns,
    PositionTracker,
    TransactionPosition,
    decode_positions,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.recovery.transaction_recovery_point import (
    InspectedRanges,
    TransactionRecoveryPoint,
    apply_transaction_decision,
    find_transaction_recovery_point,
)

KEY = PartitionKey("flow", "orders", "all-orders", 0)
SOURCE, TARGET, OTHER = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
ENDS = InspectedRanges(SOURCE, 10, 100, TARGET, 0, 500)
KNOWN = PositionAndRuns(
    TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(0, 0), 40, 7, stretches=(ExplicitRun(5, 10, 30),))
)


@pytest.mark.parametrize(("start", "position"), [("earliest", 10), ("latest", 100), (37, 37)])
def test_the_first_time_begins_at_the_targets_end_whoever_wrote_there(start, position) -> None:
    goes = find_transaction_recovery_point(KEY, None, ENDS, start)
    assert goes == TransactionRecoveryPoint(
        PositionAndRuns(TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(500, position), position)), begins=True
    )


def test_where_a_flow_was_told_to_begin_and_that_has_expired_is_loud_and_not_skipped() -> None:
    goes = find_transaction_recovery_point(KEY, None, ENDS, 4)
    assert isinstance(goes, TransactionRecoveryPoint)
    assert goes.known.position.position == 4
    assert find_transaction_recovery_point(KEY, goes.known, ENDS, 4) == Halt(
        "source_expired",
        "source offsets 4 to 9 are gone, at most 6 records: the log now starts at 10",
        source=OffsetSpan(4, 10),
    )


def test_what_is_known_goes_on() -> None:
    assert find_transaction_recovery_point(KEY, KNOWN, ENDS, "latest") == TransactionRecoveryPoint(KNOWN)


def test_an_upgrade_gives_the_source_topic_its_id_once() -> None:
    stand_in = build_stand_in_id("zk-cluster", "orders")
    known = replace(KNOWN, position=replace(KNOWN.position, source_id=stand_in))
    for is_same in (True, None):
        goes = find_transaction_recovery_point(KEY, known, replace(ENDS, source_is_same=is_same), "earliest")
        assert goes == TransactionRecoveryPoint(KNOWN, begins=True)
    other = find_transaction_recovery_point(KEY, known, replace(ENDS, source_is_same=False), "earliest")
    assert isinstance(other, Halt)
    assert other.state == "source_recreated"
    back = find_transaction_recovery_point(KEY, KNOWN, replace(ENDS, source_id=stand_in), "earliest")
    assert isinstance(back, Reinspect)


def test_an_upgrade_gives_the_target_topic_its_id_once() -> None:
    stand_in = build_stand_in_id("zk-cluster", "all-orders")
    known = replace(KNOWN, position=replace(KNOWN.position, target_id=stand_in))
    assert find_transaction_recovery_point(KEY, known, ENDS, "earliest") == TransactionRecoveryPoint(KNOWN, begins=True)
    back = find_transaction_recovery_point(KEY, KNOWN, replace(ENDS, target_id=stand_in), "earliest")
    assert isinstance(back, Reinspect)


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (replace(ENDS, target_id=OTHER), "target_gone"),
        (replace(ENDS, source_id=OTHER), "source_recreated"),
        (replace(ENDS, source_start=41), "source_expired"),
        (replace(ENDS, source_end=39, source_settled=True), "source_truncated"),
        (replace(ENDS, diverges_at=35), "source_truncated"),
    ],
)
def test_what_cannot_go_on_says_so_with_offsets(ends: InspectedRanges, state: str) -> None:
    found = find_transaction_recovery_point(KEY, KNOWN, ends, "earliest")
    assert isinstance(found, Halt)
    assert found.state == state
    spans = {
        "source_expired": OffsetSpan(40, 41),
        "source_truncated": OffsetSpan(ends.diverges_at or ends.source_end, 40),
    }
    if state in spans:
        assert found.source == spans[state]


def test_a_source_that_may_be_recovering_is_waited_for() -> None:
    assert isinstance(find_transaction_recovery_point(KEY, KNOWN, replace(ENDS, source_end=39), "earliest"), Reinspect)


def test_a_target_that_lost_what_was_committed_is_not_written_on() -> None:
    found = find_transaction_recovery_point(KEY, KNOWN, replace(ENDS, target_end=30), "earliest")
    assert isinstance(found, Reinspect)
    assert found.halts_as == "target_gone"


@pytest.mark.parametrize(("target_end", "begins"), [(0, True), (20, False)])
def test_a_reseed_is_obeyed_in_a_target_without_ids_that_is_empty_again(target_end: int, begins: bool) -> None:
    stand_in = build_stand_in_id("zk-cluster", "all-orders")
    known = replace(KNOWN, position=replace(KNOWN.position, target_id=stand_in))
    ends = replace(ENDS, target_id=stand_in, target_end=target_end)
    order = OperatorDecision(
        "reseed", "flow", "orders", 0, "target_gone", 1, "somebody", id="a", source_id=SOURCE, target_id=stand_in
    )
    before = find_transaction_recovery_point(KEY, known, ends, "earliest")
    found = apply_transaction_decision(order, before, known, ends, "earliest")
    assert isinstance(found, TransactionRecoveryPoint) == begins, found
    if isinstance(found, TransactionRecoveryPoint):
        assert (found.known.position.position, found.known.position.begin) == (10, OffsetRun(0, 10))
        other = replace(order, state="source_recreated")
        assert apply_transaction_decision(other, before, known, ends, "earliest") is before
        obeyed = replace(known, position=replace(known.position, order="a"))
        assert apply_transaction_decision(order, before, obeyed, ends, "earliest") is before
    else:
        assert isinstance(found, Halt)
        assert "the target still holds offsets 0 to 19; empty it first" in found.error


def accept(lost: OffsetSpan, generation: int = 1, name: str = "a") -> OperatorDecision:
    return OperatorDecision(
        "accept-gap", "flow", "orders", 0, "source_expired", generation, "somebody", lost=lost, id=name
    )


def test_a_gap_that_is_accepted_is_passed_once() -> None:
    ends = replace(ENDS, source_start=60)
    halt = find_transaction_recovery_point(KEY, KNOWN, ends, "earliest")
    goes = apply_transaction_decision(accept(OffsetSpan(40, 60)), halt, KNOWN, ends, "earliest")
    assert isinstance(goes, TransactionRecoveryPoint)
    assert goes.begins
    at = goes.known.position
    assert (at.position, at.generation, at.order, at.leader_epoch) == (60, 2, "a", -1)
    assert "given up" in at.note
    # The map: a reader inside the gap continues behind it.
    log, track = Log(), PositionTracker(goes.known)
    log.write(track.advance([ExplicitRun(600, 60, 5)], 65, 7))
    assert log.known().map.to_target(50, 1_000) == 600
    later = replace(ENDS, source_start=80)
    again = find_transaction_recovery_point(KEY, log.known(), later, "earliest")
    assert apply_transaction_decision(accept(OffsetSpan(40, 60)), again, log.known(), later, "earliest") is again


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (accept(OffsetSpan(40, 60), generation=3), "generation 3"),
        (accept(OffsetSpan(40, 55)), "give it again"),
        (replace(accept(OffsetSpan(40, 60)), state="source_truncated"), "it answers source_truncated"),
    ],
)
def test_an_order_that_does_not_fit_is_refused(order: OperatorDecision, why: str) -> None:
    ends = replace(ENDS, source_start=60)
    found = apply_transaction_decision(
        order, find_transaction_recovery_point(KEY, KNOWN, ends, "earliest"), KNOWN, ends, "earliest"
    )
    assert isinstance(found, Halt)
    assert "is refused" in found.error
    assert why in found.error


def test_reseeding_forgets_the_old_map_and_its_blocks() -> None:
    log, track = Log(), PositionTracker(PositionAndRuns(TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(0, 10), 10)))
    for number in range(200):
        log.write(track.advance([ExplicitRun(2 * number, 10 + number, 1)], 11 + number, 7))
        track.committed()
    before = log.known()
    assert len(before.blocks) == 1
    ends = replace(ENDS, target_id=OTHER, target_start=0, target_end=0, source_end=500)
    order = OperatorDecision("reseed", "flow", "orders", 0, "target_gone", 1, "somebody", target_id=OTHER, id="r")
    halt = find_transaction_recovery_point(KEY, before, ends, "earliest")
    assert isinstance(
        apply_transaction_decision(replace(order, target_id=TARGET), halt, before, ends, "earliest"), Halt
    )
    goes = apply_transaction_decision(order, halt, before, ends, "earliest")
    assert isinstance(goes, TransactionRecoveryPoint)
    track = PositionTracker(goes.known)
    log.write(track.advance([ExplicitRun(0, 10, 5)], 15, 7))
    track.committed()
    known = log.known()
    assert known.map.counted == (ExplicitRun(0, 10, 5),)
    assert (known.position.target_id, known.position.position) == (OTHER, 15)
    assert len(log.records) == 1  # the old blocks are deleted
    assert decode_positions(log.records.values())[KEY] == known


def test_stretches_that_contradict_themselves_stop_their_partition() -> None:
    overlapping = replace(KNOWN.position, stretches=(ExplicitRun(5, 10, 30), ExplicitRun(20, 60, 5)), position=70)
    found = find_transaction_recovery_point(KEY, PositionAndRuns(overlapping), ENDS, "earliest")
    assert isinstance(found, Halt)
    assert found.state == "duplicated"
    assert "contradicts itself" in found.error
