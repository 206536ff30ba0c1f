"""Copy decisions of one partition: what may be sent when, and what every answer means."""

from __future__ import annotations

import uuid

import pytest

from tests.replicator.build import abort, answer, commit, damaged, data, transactional
from watershed.clusters.record_batch import decode_batch_header
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import OutgoingBatch, PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.limits import TargetLimits
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, Reinspect

SOURCE, TARGET = uuid.uuid4(), uuid.uuid4()
ONE_BY_ONE = RepackTerms(small=0)  # batches stay as they are
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)


def copying(position: int = 0, acked: int = 0, depth: int = 5, base: int = 0, confirmed: int = 5) -> PartitionCopy:
    return PartitionCopy(
        KEY,
        SOURCE,
        TARGET,
        SourceCursor(position),
        TargetProgress(acked),
        producer=SequencedProducer(ProducerIdentity(7, 0, base), depth, confirmed),
    )


def taken(copy: PartitionCopy, *batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> list[OffsetRun]:
    return copy.accept(select_batches(answer(*batches), copy.source.position, aborted, terms=ONE_BY_ONE))


def sent(copy: PartitionCopy) -> list[OutgoingBatch]:
    found = []
    while (outgoing := copy.next_outgoing()) is not None:
        found.append(outgoing)
    return found


def answered(copy: PartitionCopy, offset: int, error: int = error_codes.NONE, message: str = "") -> None:
    copy.answered(ProducedPartition(TARGET, 0, error, offset, 0, message))


def test_sequence_numbers_and_places() -> None:
    copy = copying(position=100, acked=30, base=10)
    assert taken(copy, data(100, 3), data(103, 2)) == []
    outgoing = sent(copy)
    heads = [decode_batch_header(b"".join(one.pieces)) for one in outgoing]
    assert [(one.first, one.records, one.source_end) for one in outgoing] == [(30, 3, 103), (33, 2, 105)]
    assert [(head.producer_id, head.producer_epoch, head.base_sequence) for head in heads] == [(7, 0, 20), (7, 0, 23)]
    assert all(head.base_offset == 0 for head in heads)


def test_sequence_wraps() -> None:
    copy = copying(acked=2**31 - 2)
    taken(copy, data(0, 5), data(5, 1))
    assert [decode_batch_header(b"".join(one.pieces)).base_sequence for one in sent(copy)] == [2**31 - 2, 3]


def test_runs_stand_where_a_gap_is() -> None:
    copy = copying()
    runs = taken(copy, data(0, 3), commit(3, 1), data(4, 2), transactional(6, 2, 1), abort(8, 1), aborted=((1, 6),))
    assert runs == [OffsetRun(3, 4), OffsetRun(5, 9)]
    assert copy.source.position == 9
    assert taken(copy, data(9)) == []
    assert taken(copy, data(20)) == [OffsetRun(6, 20)]


def test_a_gap_alone_is_announced() -> None:
    copy = copying(position=10, acked=8)
    assert taken(copy, commit(10, 1), commit(11, 2)) == [OffsetRun(8, 12)]
    assert copy.progress.copied_through == 12
    assert taken(copy, data(12)) == []


def test_an_empty_answer_changes_nothing() -> None:
    copy = copying(position=10, acked=8)
    copy.source.leader_epoch = 4
    assert taken(copy) == []
    assert (copy.source.position, copy.source.leader_epoch, copy.progress.copied_through) == (10, 4, 10)


def test_blocked_until_the_ledger_holds_the_run() -> None:
    copy = copying()
    first = taken(copy, data(0), commit(1, 1), data(2))
    second = taken(copy, commit(3, 1), data(4))
    assert [one.first for one in sent(copy)] == [0]
    copy.durable(first)
    assert [one.first for one in sent(copy)] == [1]
    copy.durable(second)
    assert [one.first for one in sent(copy)] == [2]


def test_nothing_is_sent_before_the_generation_is_announced() -> None:
    copy = copying(position=5, acked=5)
    first = [OffsetRun(5, 5)]
    copy.announce(first)
    taken(copy, data(5), data(6))
    assert sent(copy) == []
    copy.durable(first)
    assert len(sent(copy)) == 2


def test_two_runs_at_one_place_must_both_be_durable() -> None:
    copy = copying()
    early, late = taken(copy, commit(0, 1)), taken(copy, commit(1, 1), data(2))
    assert (early, late) == ([OffsetRun(0, 1)], [OffsetRun(0, 2)])
    copy.durable(early)
    assert sent(copy) == []
    copy.durable(late)
    assert [one.first for one in sent(copy)] == [0]


def test_depth() -> None:
    copy = copying(depth=1)
    taken(copy, *(data(at) for at in range(9)))
    assert len(sent(copy)) == 1
    answered(copy, 0)
    assert len(sent(copy)) == 5
    answered(copy, 1)
    assert len(sent(copy)) == 1


def test_depth_that_stays_one() -> None:
    copy = copying(depth=1, confirmed=1)
    taken(copy, *(data(at) for at in range(3)))
    for at in range(3):
        assert [one.first for one in sent(copy)] == [at]
        answered(copy, at)


def test_progress_and_buffer() -> None:
    copy = copying()
    batches = [data(0, 3), data(3, 2), data(5, 4)]
    taken(copy, *batches, commit(9, 1))
    assert copy.queue.buffered == sum(map(len, batches))
    copy.durable([OffsetRun(9, 10)])
    for at, (place, through) in enumerate(((0, 3), (3, 5), (5, 10))):
        sent(copy)
        answered(copy, place)
        assert copy.progress.copied_through == through, at
    assert (copy.queue.buffered, copy.progress.acked, copy.is_idle, copy.trouble) == (0, 9, True, None)
    assert copy.progress.copied_bytes == sum(map(len, batches))


@pytest.mark.parametrize("found", [0, 4, 6, 5000])
def test_stored_elsewhere_is_duplicated(found: int) -> None:
    copy = copying(position=5, acked=5)
    taken(copy, data(5, 3), data(8))
    sent(copy)
    answered(copy, found)
    assert isinstance(copy.trouble, Halt)
    assert copy.trouble.state == "duplicated"
    assert "5 to 7" in copy.trouble.error
    assert str(found) in copy.trouble.error
    assert copy.progress.acked == 5


def test_a_producer_that_was_forgotten_begins_another_epoch() -> None:
    """Kafka 2.4 stores nothing then, so that nothing of this epoch is under way any more."""
    copy = copying(position=5, acked=5)
    taken(copy, data(5, 3))
    sent(copy)
    assert not copy.can_close_epoch
    answered(copy, -1, error_codes.UNKNOWN_PRODUCER_ID)
    assert (copy.producer.needs_epoch, copy.can_close_epoch) == (True, True)


JUDGED = {
    error_codes.UNKNOWN_TOPIC_ID: None,  # the inspection sees whether it is another topic
    error_codes.INCONSISTENT_TOPIC_ID: None,
    error_codes.MESSAGE_TOO_LARGE: None,  # the limit may have been lowered; the next active copy has the new one
    error_codes.INVALID_TIMESTAMP: "rejected",
    error_codes.INVALID_RECORD: "rejected",
    error_codes.RECORD_LIST_TOO_LARGE: None,
    error_codes.TOPIC_AUTHORIZATION_FAILED: "unauthorised",
    error_codes.CLUSTER_AUTHORIZATION_FAILED: "unauthorised",
    **dict.fromkeys(error_codes.REINSPECT_CODES, None),
    error_codes.CORRUPT_MESSAGE: None,
    error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER: None,
    error_codes.DUPLICATE_SEQUENCE_NUMBER: None,
    error_codes.UNKNOWN_PRODUCER_ID: None,
    -1: None,
    9999: None,
}


@pytest.mark.parametrize("code", JUDGED, ids=error_codes.describe_error_code)
def test_error_codes(code: int) -> None:
    copy = copying(position=5, acked=5)
    taken(copy, data(5, 3), data(8))
    sent(copy)
    answered(copy, -1, code, "because")
    state = JUDGED[code]
    if state is None:
        assert isinstance(copy.trouble, Reinspect)
    else:
        assert isinstance(copy.trouble, Halt)
        assert copy.trouble.state == state
        assert copy.trouble.remedy
    assert copy.progress.acked == 5
    assert next(iter(sent(copy)), None) is None


def test_a_target_that_stamps_records_is_told_by_its_answer() -> None:
    copy = copying(position=100, acked=30)
    taken(copy, data(100, 3), data(103, 2))
    first, second = sent(copy)
    copy.answered(ProducedPartition(TARGET, 0, error_codes.NONE, 30, 0, append_time=first.max_timestamp))
    assert copy.trouble is None, "a repeated batch is answered with its newest timestamp"
    copy.halt("handed over")
    copy.answered(ProducedPartition(TARGET, 0, error_codes.NONE, 33, 0, append_time=second.max_timestamp + 5_000))
    assert isinstance(copy.trouble, Halt)
    assert copy.trouble.state == "append_time"
    assert (copy.trouble.source, copy.trouble.target) == ((103, 105), (33, 35))
    assert (copy.progress.acked, copy.progress.copied_through) == (35, 105), "it is stored all the same"


def test_nothing_is_sent_in_trouble_and_answers_are_still_taken() -> None:
    copy = copying()
    taken(copy, *(data(at) for at in range(8)))
    sent(copy)
    copy.halt("handed over")
    assert sent(copy) == []
    for at in range(5):
        assert not copy.is_idle
        answered(copy, at)
    assert (copy.is_idle, copy.progress.acked, copy.trouble) == (True, 5, Reinspect("handed over"))


def test_the_rest_of_a_failed_pipeline() -> None:
    """One refused in the middle: what follows is out of order; only the first reason is kept."""
    copy = copying()
    taken(copy, *(data(at) for at in range(5)))
    sent(copy)
    answered(copy, 0)
    answered(copy, -1, error_codes.CORRUPT_MESSAGE)
    for _ in range(3):
        answered(copy, -1, error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(copy.trouble, Reinspect)
    assert "CORRUPT_MESSAGE" in copy.trouble.reason
    assert (copy.progress.acked, copy.is_idle) == (1, True)


def test_loud_beats_looking_again_and_is_never_taken_back() -> None:
    copy = copying()
    taken(copy, *(data(at) for at in range(4)))
    sent(copy)
    answered(copy, -1, error_codes.NOT_LEADER_OR_FOLLOWER)
    answered(copy, 77)
    halt = copy.trouble
    assert isinstance(halt, Halt)
    answered(copy, -1, error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    copy.halt("handed over")
    copy.connection_lost("cut")
    assert copy.trouble is halt


def test_connection_lost() -> None:
    copy = copying()
    taken(copy, data(0), data(1))
    sent(copy)
    copy.connection_lost("cut")
    assert (copy.is_idle, copy.trouble) == (True, Reinspect("cut"))
    assert sent(copy) == []


def test_a_batch_that_cannot_be_copied_stops_the_partition_once_what_stands_before_it_is_known() -> None:
    copy = copying()
    runs = taken(copy, data(0, 2), damaged(data(2, offsets=(0, 2))), data(5))
    assert runs == []
    assert copy.trouble is None, "what stands before it must be sent first"
    (before,) = sent(copy)
    assert before.first == 0
    answered(copy, 0)
    assert isinstance(copy.trouble, Reinspect), "it may have been damaged on its way here only"
    assert copy.trouble.halts_as == "rejected"
    assert "source offset 2" in copy.trouble.reason
    assert copy.source.position == 2


def test_too_large_for_the_target_is_loud_at_once() -> None:
    copy = copying()
    terms = RepackTerms(TargetLimits(300), small=0)
    copy.accept(select_batches(answer(data(0), data(1, 3, size=400)), 0, terms=terms))
    assert [one.first for one in sent(copy)] == [0]
    answered(copy, 0)
    assert isinstance(copy.trouble, Halt)
    assert copy.trouble.state == "rejected"
    assert "source offset 1 takes" in copy.trouble.error


def test_spans_become_runs_that_are_announced_before_the_batch_that_holds_them_is_sent() -> None:
    copy = copying()
    runs = taken(copy, data(0, 2), data(2, offsets=(0, 1, 3), span=6), data(8, 2))
    assert runs == [OffsetRun(4, 5), OffsetRun(5, 8)]
    assert [one.first for one in sent(copy)] == [0]
    copy.durable(runs[:1])
    assert [(one.first, one.records, one.source_end) for one in sent(copy)] == [(2, 3, 8)]
    copy.durable(runs[1:])
    assert [one.first for one in sent(copy)] == [5]


def test_a_hole_at_the_end_of_an_answer_moves_the_position() -> None:
    copy = copying()
    runs = taken(copy, data(0, offsets=(0, 1), span=4))
    assert (runs, copy.source.position) == ([OffsetRun(2, 4)], 4)
    sent(copy)
    answered(copy, 0)
    assert copy.progress.copied_through == 4


def test_merged_batches_are_one_on_the_way() -> None:
    copy = copying(position=10, acked=4, base=4)
    runs = copy.accept(select_batches(answer(data(10), data(11), commit(12, 1), data(13, 2)), 10))
    assert runs == [OffsetRun(6, 13)]
    copy.durable(runs)
    (only,) = sent(copy)
    head = decode_batch_header(b"".join(only.pieces))
    assert (only.first, only.records, only.source_end, head.count, head.base_sequence) == (4, 4, 15, 4, 0)


def refused(copy: PartitionCopy, code: int, *errors: tuple[int, str], message: str = "whole") -> Halt | Reinspect:
    """What becomes of a merged batch of the source offsets 10, 11, 13, 14 with these record errors."""
    copy.durable(copy.accept(select_batches(answer(data(10, 2), data(13, 2)), 10)))
    sent(copy)
    copy.answered(ProducedPartition(TARGET, 0, code, -1, 0, message, errors))
    assert copy.trouble is not None
    return copy.trouble


def test_records_that_the_target_does_not_take_are_named_by_their_source_offsets() -> None:
    copy = copying(position=10)
    found = refused(copy, error_codes.INVALID_RECORD, (1, "needs a key"), (2, "needs a key too"))
    assert isinstance(found, Halt)
    assert found.state == "rejected"
    assert "source topic orders, partition 0, offset 11 and 1 more up to offset 13" in found.error
    assert "needs a key" in found.error
    assert copy.refusals.records == {11: "INVALID_RECORD: needs a key", 13: "INVALID_RECORD: needs a key too"}


def test_with_quarantine_they_are_left_out_at_the_next_attempt() -> None:
    copy = copying(position=10)
    copy.refusals.quarantine = True
    found = refused(copy, error_codes.INVALID_TIMESTAMP, (3, ""))
    assert isinstance(found, Reinspect)
    assert found.halts_as == "rejected"
    assert copy.refusals.records == {14: "INVALID_TIMESTAMP: whole"}


@pytest.mark.parametrize("errors", [(), ((99, "no such record"),)])
def test_a_batch_refused_as_a_whole_is_named_by_its_range(errors: tuple[tuple[int, str], ...]) -> None:
    copy = copying(position=10)
    copy.refusals.quarantine = True
    found = refused(copy, error_codes.INVALID_RECORD, *errors)
    assert isinstance(found, Halt)
    assert "offsets 10 to 14: whole" in found.error
    assert copy.refusals.records == {}


def test_too_large_at_run_time_is_looked_at_again_and_named() -> None:
    found = refused(copying(position=10), error_codes.MESSAGE_TOO_LARGE)
    assert isinstance(found, Reinspect)
    assert found.halts_as == "rejected"
    assert "offsets 10 to 14" in found.reason


def test_position_given_by_sifted_counts() -> None:
    copy = copying()
    assert copy.accept(SelectedBatches([], 7, 2)) == [OffsetRun(0, 7)]
    assert (copy.source.position, copy.source.leader_epoch) == (7, 2)


@pytest.mark.parametrize(("age_ms", "halted"), [(0, False), (3 * 86_400_000, True)])
def test_a_worker_that_stood_still_looks_again_where_the_broker_may_have_forgotten(age_ms, halted):
    now = 1_790_000_000_000
    copy = copying()
    copy.producer.expiration_ms, copy.producer.remembered_by = 86_400_000, now - age_ms
    copy.note_stall(now)
    assert (copy.trouble is not None) == halted


def test_a_partition_that_was_idle_since_its_look_is_not_pipelined_once_the_broker_may_have_forgotten_it() -> None:
    """What the inspection saw ages as well: no answer since then says that the broker still has our sequence
    numbers."""
    written, day = 1_790_000_000_000, 86_400_000
    copy = copying(depth=5)
    copy.producer.expiration_ms, copy.producer.remembered_by = day, written
    taken(copy, *(data(at) for at in range(4)))
    assert copy.next_outgoing(written + day // 2) is not None
    assert copy.next_outgoing(written + day // 2) is not None
    assert copy.next_outgoing(written + day) is None
    copy.note_stall(written + day)
    assert isinstance(copy.trouble, Reinspect)
