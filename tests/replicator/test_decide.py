"""How a partition goes on that is copied in transactions: what the logs say, and what was ordered."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from replicator.offsetmap import Run, Stretch
from replicator.orders import Order
from replicator.partition import PartitionKey
from replicator.states import LookAgain, Loud, Span
from replicator.transactions.decide import Ends, Goes, decide, obeyed
from replicator.transactions.positions import Known, Position, Track, known_in
from tests.replicator.test_stretches import Log

KEY = PartitionKey("flow", "orders", "all-orders", 0)
SOURCE, TARGET, OTHER = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
ENDS = Ends(SOURCE, 10, 100, TARGET, 0, 500)
KNOWN = Known(Position(KEY, SOURCE, TARGET, Run(0, 0), 40, 7, stretches=(Stretch(5, 10, 30),)))


@pytest.mark.parametrize(("start", "position"), [("earliest", 10), ("latest", 100), (37, 37)])
def test_the_first_time_begins_at_the_targets_end_whoever_wrote_there(start, position) -> None:
    goes = decide(KEY, None, ENDS, start)
    assert goes == Goes(Known(Position(KEY, SOURCE, TARGET, Run(500, position), position)), begins=True)


def test_where_a_flow_was_told_to_begin_and_that_has_expired_is_loud_and_not_skipped() -> None:
    goes = decide(KEY, None, ENDS, 4)
    assert isinstance(goes, Goes)
    assert goes.known.position.position == 4
    assert decide(KEY, goes.known, ENDS, 4) == Loud(
        "source_expired",
        "source offsets 4 to 9 are gone, at most 6 records: the log now starts at 10",
        source=Span(4, 10),
    )


def test_what_is_known_goes_on() -> None:
    assert decide(KEY, KNOWN, ENDS, "latest") == Goes(KNOWN)


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
def test_what_cannot_go_on_says_so_with_offsets(ends: Ends, state: str) -> None:
    found = decide(KEY, KNOWN, ends, "earliest")
    assert isinstance(found, Loud)
    assert found.state == state
    spans = {"source_expired": Span(40, 41), "source_truncated": Span(ends.diverges_at or ends.source_end, 40)}
    if state in spans:
        assert found.source == spans[state]


def test_a_source_that_may_be_recovering_is_waited_for() -> None:
    assert isinstance(decide(KEY, KNOWN, replace(ENDS, source_end=39), "earliest"), LookAgain)


def test_a_target_that_lost_what_was_committed_is_not_written_on() -> None:
    found = decide(KEY, KNOWN, replace(ENDS, target_end=30), "earliest")
    assert isinstance(found, LookAgain)
    assert found.in_the_end == "target_gone"


def accept(lost: Span, generation: int = 1, name: str = "a") -> Order:
    return Order("accept-gap", "flow", "orders", 0, "source_expired", generation, "somebody", lost=lost, id=name)


def test_a_gap_that_is_accepted_is_passed_once() -> None:
    ends = replace(ENDS, source_start=60)
    loud = decide(KEY, KNOWN, ends, "earliest")
    goes = obeyed(accept(Span(40, 60)), loud, KNOWN, ends, "earliest")
    assert isinstance(goes, Goes)
    assert goes.begins
    at = goes.known.position
    assert (at.position, at.generation, at.order, at.leader_epoch) == (60, 2, "a", -1)
    assert "given up" in at.note
    # The map: a reader inside the gap continues behind it.
    log, track = Log(), Track(goes.known)
    log.write(track.advance([Stretch(600, 60, 5)], 65, 7))
    assert log.known().map.to_target(50, 1_000) == 600
    later = replace(ENDS, source_start=80)
    again = decide(KEY, log.known(), later, "earliest")
    assert obeyed(accept(Span(40, 60)), again, log.known(), later, "earliest") is again


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (accept(Span(40, 60), generation=3), "generation 3"),
        (accept(Span(40, 55)), "give it again"),
        (replace(accept(Span(40, 60)), state="source_truncated"), "it answers source_truncated"),
    ],
)
def test_an_order_that_does_not_fit_is_refused(order: Order, why: str) -> None:
    ends = replace(ENDS, source_start=60)
    found = obeyed(order, decide(KEY, KNOWN, ends, "earliest"), KNOWN, ends, "earliest")
    assert isinstance(found, Loud)
    assert "is refused" in found.error
    assert why in found.error


def test_reseeding_forgets_the_old_map_and_its_blocks() -> None:
    log, track = Log(), Track(Known(Position(KEY, SOURCE, TARGET, Run(0, 10), 10)))
    for number in range(200):
        log.write(track.advance([Stretch(2 * number, 10 + number, 1)], 11 + number, 7))
        track.committed()
    before = log.known()
    assert len(before.blocks) == 1
    ends = replace(ENDS, target_id=OTHER, target_start=0, target_end=0, source_end=500)
    order = Order("reseed", "flow", "orders", 0, "target_gone", 1, "somebody", target_id=OTHER, id="r")
    loud = decide(KEY, before, ends, "earliest")
    assert isinstance(obeyed(replace(order, target_id=TARGET), loud, before, ends, "earliest"), Loud)
    goes = obeyed(order, loud, before, ends, "earliest")
    assert isinstance(goes, Goes)
    track = Track(goes.known)
    log.write(track.advance([Stretch(0, 10, 5)], 15, 7))
    track.committed()
    known = log.known()
    assert known.map.counted == (Stretch(0, 10, 5),)
    assert (known.position.target_id, known.position.position) == (OTHER, 15)
    assert len(log.records) == 1  # the old blocks are deleted
    assert known_in(log.records.values())[KEY] == known


def test_stretches_that_contradict_themselves_stop_their_partition() -> None:
    overlapping = replace(KNOWN.position, stretches=(Stretch(5, 10, 30), Stretch(20, 60, 5)), position=70)
    found = decide(KEY, Known(overlapping), ENDS, "earliest")
    assert isinstance(found, Loud)
    assert found.state == "duplicated"
    assert "contradicts itself" in found.error
