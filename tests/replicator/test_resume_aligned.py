"""Where an aligned partition goes on, as one inspection of its logs says."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.replicator.build import batch_of, data
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.batch.filler_batch import build_filler_batch
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.replicator.copy.aligned.aligned_copy import AlignedCopy, OffsetGap
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery import takeover
from watershed.replicator.recovery.aligned_recovery_point import begin_with_filling, find_aligned_recovery_point
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

SOURCE, TARGET = uuid.UUID(int=1), uuid.UUID(int=2)
NOW, DAY = 1_790_000_000_000, 86_400_000
EMPTY = LogInspection(SOURCE, 5, 20, TARGET, 0, 0, None, None, NOW, DAY, settled=False)
FILLED = replace(EMPTY, target_start=5, target_end=5)
FILLING = LedgerState(OffsetMap((OffsetRun(0, 0),)), ProducerIdentity(7, 0, 0), SOURCE, TARGET, filling=True)
COPYING = LedgerState(OffsetMap((OffsetRun(5, 5),)), ProducerIdentity(7, 1, 5), SOURCE, TARGET, since=1, last_epoch=1)


def ours(base: int, records: int, sequence: int, *, producer: int = 7, epoch: int = 1) -> RawBatch:
    return RawBatch(base, base + records, 0, 0, NOW, producer, epoch, sequence, records, memoryview(b""))


def went(found: RecoveryPoint | Halt | Reinspect) -> RecoveryPoint:
    assert isinstance(found, RecoveryPoint), found
    return found


def stopped(found: RecoveryPoint | Halt | Reinspect) -> str:
    assert isinstance(found, Halt), found
    return found.state


def test_an_empty_log_is_filled_first_and_that_is_claimed() -> None:
    found = went(find_aligned_recovery_point(None, EMPTY, 7))
    assert (found.filling, found.goal, found.position, found.claims) == (True, 5, 0, True)


def test_a_source_that_begins_at_0_is_copied_at_once() -> None:
    found = went(find_aligned_recovery_point(None, replace(EMPTY, source_start=0), 7))
    assert (found.filling, found.position, found.identity) == (False, 0, ProducerIdentity(7, 0, 0))


@pytest.mark.parametrize(("start", "end"), [(0, 3), (9, 9)])
def test_a_target_that_holds_something_or_goes_on_elsewhere_is_not_begun(start: int, end: int) -> None:
    assert stopped(find_aligned_recovery_point(None, replace(EMPTY, target_start=start, target_end=end), 7)) == (
        "target_foreign_write"
    )


def test_the_fill_follows_the_sources_log_start() -> None:
    filler = next(decode_batches(memoryview(b"".join(build_filler_batch(3, 9, 0, 0)))))
    seen = replace(EMPTY, source_start=8, target_end=3, tail=filler)
    found = went(find_aligned_recovery_point(FILLING, seen, 7))
    assert (found.filling, found.goal, found.position, found.claims) == (True, 8, 3, False)


def test_what_is_no_filler_stops_the_fill() -> None:
    seen = replace(EMPTY, target_end=3, tail=ours(0, 3, 0, producer=99))
    assert stopped(find_aligned_recovery_point(FILLING, seen, 7)) == "target_foreign_write"


def test_a_full_log_is_emptied_before_the_copy_begins() -> None:
    found = went(find_aligned_recovery_point(FILLING, replace(EMPTY, target_end=5), 7))
    assert (found.filling, found.goal) == (True, 5)


def test_the_copy_begins_under_the_next_producer_epoch() -> None:
    found = went(find_aligned_recovery_point(FILLING, FILLED, 7))
    assert (found.identity, found.since, found.claims, found.filling) == (ProducerIdentity(7, 1, 5), 1, True, False)


def test_sequence_numbers_follow_from_the_newest_batch_however_many_gaps_there_were() -> None:
    """Records 5 to 7, a gap of 2, records 10 and 11, a gap of 3."""
    seen = replace(FILLED, target_end=15, tail=ours(10, 2, 3), producer=(1, 4, NOW))
    found = went(find_aligned_recovery_point(COPYING, seen, 7))
    assert (found.position, found.target_end, found.depth) == (15, 15, MAX_BATCHES_IN_FLIGHT)
    assert found.numbering.sequence(15) == 5
    assert found.identity == COPYING.identity


def test_records_that_are_not_replicated_yet_are_waited_for() -> None:
    seen = replace(FILLED, target_end=15, tail=ours(10, 2, 3), producer=(1, 9, NOW))
    assert isinstance(find_aligned_recovery_point(COPYING, seen, 7), Reinspect)


@pytest.mark.parametrize(
    ("tail", "state"),
    [
        (ours(10, 2, 3, producer=99), "target_foreign_write"),
        (ours(10, 2, 3, epoch=2), "target_foreign_write"),
        (ours(10, 2, 8), "duplicated"),  # more records than there is room for
        (ours(4, 2, 0, epoch=0), "duplicated"),  # of an older producer epoch, behind where this one began
    ],
)
def test_a_tail_that_cannot_be(tail: RawBatch, state: str) -> None:
    assert stopped(find_aligned_recovery_point(COPYING, replace(FILLED, target_end=15, tail=tail), 7)) == state


def test_markers_where_the_source_has_a_record_are_somebody_elses() -> None:
    seen = replace(FILLED, target_end=15, tail=ours(10, 2, 3), missed=13)
    assert stopped(find_aligned_recovery_point(COPYING, seen, 7)) == "target_foreign_write"


def test_a_look_that_is_older_than_the_ledger_is_made_again() -> None:
    assert isinstance(find_aligned_recovery_point(COPYING, replace(EMPTY, target_end=3), 7), Reinspect)


def test_where_all_of_ours_has_expired_the_broker_says_how_many_there_were() -> None:
    seen = replace(FILLED, target_start=15, target_end=15, producer=(1, 4, NOW))
    assert isinstance(find_aligned_recovery_point(COPYING, seen, 7), Reinspect)
    assert went(find_aligned_recovery_point(COPYING, replace(seen, settled=True), 7)).numbering.sequence(15) == 5


def test_what_expired_on_the_source_is_loud_and_a_gap_once_it_is_given_up() -> None:
    seen = replace(FILLED, source_start=12, target_end=8, tail=ours(5, 3, 0), producer=(1, 2, NOW))
    assert stopped(find_aligned_recovery_point(COPYING, seen, 7)) == "source_expired"
    found = went(find_aligned_recovery_point(replace(COPYING, given_up=12), seen, 7))
    assert (found.position, found.target_end) == (12, 8)


def test_a_reseed_fills_anew_or_says_that_the_topic_has_to_be_made_anew() -> None:
    ordered = RecoveryPoint(ProducerIdentity(7, 2, 0), 5, 0, 1, MAX_BATCHES_IN_FLIGHT, since=2, claims=True)
    found = went(begin_with_filling(ordered, EMPTY))
    assert (found.filling, found.goal, found.position, found.since) == (True, 5, 0, 2)
    late = begin_with_filling(replace(ordered, target_end=9), replace(EMPTY, target_start=9, target_end=9))
    assert isinstance(late, Halt)
    assert "create it again" in late.error


# -- the copy itself -------------------------------------------------------------------------------------------


def copy(position: int = 0) -> AlignedCopy:
    return AlignedCopy(
        PartitionKey("f", "t", "t", 0),
        SOURCE,
        TARGET,
        SourceCursor(position),
        TargetProgress(0),
        producer=SequencedProducer(ProducerIdentity(7, 0, 0), 5, 5),
    )


def test_what_was_given_up_is_a_gap_at_once() -> None:
    assert list(copy(position=4).alignment.gaps) == [OffsetGap(0, 4)]


def test_gaps_beside_each_other_are_one_and_close_when_all_before_is_acknowledged() -> None:
    aligned = copy()
    first, second = batch_of(data(0, 2)), batch_of(data(5))
    assert aligned.accept(SelectedBatches([first], 3, -1)) == []
    assert aligned.accept(SelectedBatches([], 5, -1)) == []
    aligned.accept(SelectedBatches([second], 6, -1))
    assert list(aligned.alignment.gaps) == [OffsetGap(2, 5)]
    sent = aligned.next_outgoing()
    assert sent is not None
    assert (sent.first, aligned.due()) == (0, None)  # something is in flight
    aligned.queue.in_flight.clear()
    gap = aligned.due()
    assert gap == OffsetGap(2, 5)
    assert (aligned.next_outgoing(), aligned.due(), aligned.is_idle) == (None, None, False)
    aligned.closed(OffsetGap(2, 5))
    assert aligned.progress.acked == 5
    behind = aligned.next_outgoing()
    assert behind is not None
    assert behind.first == 5
    assert int.from_bytes(bytes(behind.pieces[0])[53:57], "big") == 2  # a gap takes no sequence numbers


@pytest.mark.parametrize(("end", "right"), [(8, True), (10, True), (11, False)])
def test_a_copy_of_a_version_that_knows_no_equal_offsets_is_not_gone_on_with(end: int, right: bool) -> None:
    """It left a marker of the source out: target offset 10 holds source offset 11."""
    copied = LedgerState(OffsetMap((OffsetRun(0, 0), OffsetRun(10, 11))), ProducerIdentity(7, 0, 0), SOURCE, TARGET)
    seen = replace(EMPTY, source_start=0, target_end=end, tail=ours(0, end, 0, epoch=0), settled=True)
    found = find_aligned_recovery_point(copied, seen, 7)
    if right:
        assert went(found).position == end
    else:
        assert stopped(found) == "duplicated"
        assert "target offset 10 holds source offset 11" in str(found)


def test_an_order_to_adopt_changes_no_topic_that_gets_equal_offsets() -> None:
    """It says which source offset follows; here the log's end says that, and the map is the identity."""
    key = PartitionKey("f", "orders", "orders", 0)
    seen = replace(EMPTY, source_start=0, target_end=8, tail=ours(0, 8, 0, producer=99), settled=True)
    order = OperatorDecision("adopt", "f", "orders", 0, "target_foreign_write", 0, "ann", id="mm2", target_id=TARGET,
                  source_id=SOURCE, base=8, position=12, tool="MirrorMaker 2")  # fmt: skip
    topics = TopicSelection(include=(Selector("literal", "orders"),))
    flow = PlanFlow(id="f", source="onprem", target="cloud", topics=topics)
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    writer: Any = None  # nothing is journaled
    onprem = ConnectionSettings("onprem", ("127.0.0.1:1",))
    judged = {
        aligned: takeover._Takeover(record, onprem, writer, {key: order}, "w", aligned, Ledger({})).decide(
            key, None, 0, seen
        )
        for aligned in (frozenset[PartitionKey](), frozenset({key}))
    }
    assert went(judged[frozenset()]).position == 12
    assert stopped(judged[frozenset({key})]) == "target_foreign_write"
    assert "adopt mm2 of ann is refused" in str(judged[frozenset({key})])


@pytest.mark.parametrize(("policy", "state"), [("quarantine", ""), ("stop", "target_foreign_write")])
def test_a_record_that_was_quarantined_is_no_loss(
    policy: Literal["stop", "quarantine"], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offset 9 was left out: at the target a marker stands there, and the source still has the record."""
    seen = replace(FILLED, target_end=10, tail=ours(5, 4, 0), missed=9, settled=True)
    key = PartitionKey("f", "orders", "orders", 0)
    here, there = (LeaderLog(topic, BrokerAddress("127.0.0.1", 1), 5, 20) for topic in (SOURCE, TARGET))
    ledger = Ledger({key: (replace(COPYING, needs_epoch=True), 3)})
    monkeypatch.setattr(takeover, "find_leaderless_partitions", lambda *_: set())
    monkeypatch.setattr(takeover, "inspect_logs", lambda *_: {key: (seen, here, there)})
    monkeypatch.setattr(takeover, "SharedLedger", lambda _target: SimpleNamespace(read=lambda *_: ledger))
    monkeypatch.setattr(takeover, "read_leader_logs", lambda *_: {("orders", 0): there})
    monkeypatch.setattr(takeover, "claim_partitions", lambda taken, *_: {found.block.key: found for found in taken})
    topics = TopicSelection(include=(Selector("literal", "orders"),))
    flow = PlanFlow(id="f", source="onprem", target="cloud", topics=topics, rejected=policy)
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    onprem, cloud = (ConnectionSettings(alias, ("127.0.0.1:1",)) for alias in ("onprem", "cloud"))
    writer: Any = None
    (taken,) = takeover.take_over_partitions(
        record, {key: 3}, onprem, cloud, DAY, SettledLogEnds(), "w1", writer, aligned=[key]
    ).values()
    if state:
        assert isinstance(taken, Halt)
        assert taken.state == state
    else:
        assert isinstance(taken, takeover.TakenPartition)
        assert (taken.resume.position, taken.resume.alone, taken.resume.identity) == (
            10,
            True,
            ProducerIdentity(7, 2, 10),
        )
