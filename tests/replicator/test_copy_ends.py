"""A copy with an end: no record at it or behind it, everything in front of it, and then it stops by itself."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.build import NOW, abort, answer, commit, data, emptied, transactional
from tests.replicator.old_formats import Old, message, wrapper
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import PartitionEnd
from watershed.clusters.wire.messages import FetchPartition, ProducedPartition
from watershed.clusters.worker_heartbeats import SILENT_MS
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.batch.untransformed_selection import select_untransformed
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.repeatable_copy import RepeatableCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.errors import CompactionHole, EndPassed
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import COMPLETE, EndReached, Halt, Reinspect
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.worker.flow_state import is_halted, mark_if_silent, pick_worst_state
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import TopicSelection

KEY = PartitionKey("a-to-b", "orders", "orders", 0)
RECORD = FlowRecord(PlanFlow("a-to-b", "a", "b", TopicSelection(()), end="latest"), "sha256:0", "shop", end_revision=2)


def list_offsets(selected: SelectedBatches) -> list[int]:
    return [
        offset
        for batch in selected.batches
        for first, records in batch.spans or ((batch.base, batch.records),)
        for offset in range(first, first + records)
    ]


@pytest.mark.parametrize("small", [0, 8 << 10])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    ("batches", "end", "copied", "position"),
    [
        ((data(0, 5), data(5, 5)), 5, range(5), 5),
        ((data(0, 5), data(5, 5)), 7, range(7), 7),
        ((data(0, 5), data(5, 5)), 10, range(10), 10),
        ((data(0, 5), data(5, 5)), 11, range(10), 10),
        ((data(0, 5), data(9, 5)), 7, range(5), 7),  # compaction took the records around the end
        ((data(0, 5), commit(5, 9), data(6, 5)), 6, range(5), 6),
        ((transactional(0, 5, 9), abort(5, 9)), 3, (), 3),
        ((data(0, 5), emptied(5, 5), data(10, 5)), 7, range(5), 7),
        ((data(0, 1, offsets=(0, 2, 8), span=10),), 5, (0, 2), 5),
        ((data(0, 1, offsets=(0, 8), span=10),), 5, (0,), 5),
        ((data(0, 1, offsets=(6, 8), span=10),), 5, (), 5),
        (tuple(data(at) for at in range(100)), 70, range(70), 70),
        (tuple(data(3 * at, 3) for at in range(100)), 70, range(70), 70),
        (tuple(message(1, Old(at, b"k", b"v", NOW)) for at in range(4)), 2, range(2), 2),
        (
            (wrapper(1, 104, [Old(at, b"k", b"v", NOW) for at in range(5)], "gzip", timestamp=NOW),),
            103,
            (100, 101, 102),
            103,
        ),
    ],
)
def test_no_record_at_the_end_or_behind_it(batches, end, copied, position, dense, small) -> None:
    aborted = ((9, 0),) if any(batch == abort(5, 9) for batch in batches) else ()
    terms = RepackTerms(end=end, dense=dense, small=small, takes_all_of=lambda _id: True)
    selected = select_batches(answer(*batches), 0, aborted, terms=terms)
    assert (list_offsets(selected), selected.position, selected.refused) == ([*copied], position, None)
    assert all(batch.end <= end for batch in selected.batches)


def test_what_follows_the_batch_that_crosses_the_end_is_no_hole() -> None:
    terms = RepackTerms(end=7, holes=lambda: False)
    selected = select_batches(answer(data(0, 5), data(5, 5), data(10, 5)), 0, terms=terms)
    assert (list_offsets(selected), selected.position, selected.refused) == ([*range(7)], 7, None)


def test_a_hole_in_front_of_the_end_needs_a_producer_epoch_of_its_own() -> None:
    selected = select_batches(answer(data(0, 5), data(9, 5)), 0, terms=RepackTerms(end=7, holes=lambda: False))
    assert isinstance(selected.refused, CompactionHole)
    assert (list_offsets(selected), selected.position) == ([*range(5)], 5)


@given(st.data())
@settings(max_examples=choose_examples(50, 500), deadline=None)
def test_any_end_of_any_log_in_any_pieces(draw: st.DataObject) -> None:
    source = FakeCluster(clock=lambda: NOW)
    topic = source.create_topic("t", 1)
    for _ in range(draw.draw(st.integers(1, 12))):
        if draw.draw(st.booleans()):
            source.produce("t", 0, [b"v"] * draw.draw(st.integers(1, 4)))
        else:
            kind = draw.draw(st.sampled_from(("commit", "abort")))
            source.produce_transaction("t", 0, [[b"t"] * draw.draw(st.integers(1, 3))], end=kind)
    last = source.log("t", 0).end
    begin = draw.draw(st.integers(0, last))
    end = draw.draw(st.integers(begin, last))
    terms = RepackTerms(
        end=end, dense=draw.draw(st.booleans()), small=draw.draw(st.sampled_from((0, 8 << 10))),
        takes_all_of=lambda _id: True,
    )  # fmt: skip
    position, copied, wire = begin, [], source.wire()
    while position < end:
        size = draw.draw(st.sampled_from((1, 90, 300, 5000)))
        (got,) = wire.fetch((FetchPartition(topic.topic_id, 0, position, max_bytes=size),), max_wait_ms=0)
        selected = select_batches(got.records, position, got.aborted, terms=terms)
        assert position < selected.position <= end
        copied += list_offsets(selected)
        position = selected.position
    assert copied == [record.offset for record in source.records("t", 0) if begin <= record.offset < end]


def test_a_batch_with_a_record_of_the_time_is_refused_and_nothing_of_it_is_taken() -> None:
    batches = answer(data(0, 5), data(5, 5), data(10, 5))  # timestamps are NOW and as many ms as records
    selected = select_batches(batches, 0, terms=RepackTerms(before_ms=NOW + 5))
    assert (list_offsets(selected), selected.refused) == ([*range(15)], None)
    late = answer(data(0, 5), data(5, 9), data(14, 5))
    selected = select_batches(late, 0, terms=RepackTerms(before_ms=NOW + 5))
    assert isinstance(selected.refused, EndPassed)
    assert (list_offsets(selected), selected.position) == ([*range(5)], 5)


def sequenced(position: int, limit: CopyLimit) -> PartitionCopy:
    producer = SequencedProducer(ProducerIdentity(7, 0, 0), 5, 5)
    source = SourceCursor(position, limit=limit)
    return PartitionCopy(KEY, uuid.uuid4(), uuid.uuid4(), source, TargetProgress(0), producer=producer)


def repeatable(position: int, limit: CopyLimit) -> RepeatableCopy:
    return RepeatableCopy(KEY, uuid.uuid4(), uuid.uuid4(), SourceCursor(position, limit=limit), TargetProgress(0))


@pytest.mark.parametrize("build", [sequenced, repeatable])
def test_a_copy_ends_when_the_target_has_everything(build) -> None:
    copy = build(0, CopyLimit(7))
    copy.accept(select_batches(answer(data(0, 5), data(5, 5)), 0, terms=RepackTerms(small=0, end=7)))
    assert copy.source.is_at_limit
    for first in (0, 5):
        assert copy.trouble is None
        sent = copy.next_outgoing()
        assert sent is not None
        assert sent.first == first
        copy.answered(ProducedPartition(copy.target_id, 0, 0, first, 0, ""))
    assert isinstance(copy.trouble, EndReached)
    assert (copy.progress.copied_through, copy.progress.acked, copy.is_idle) == (7, 7, True)


@pytest.mark.parametrize("build", [sequenced, repeatable])
def test_a_copy_whose_rest_holds_no_records_ends_as_well(build) -> None:
    copy = build(5, CopyLimit(7))
    copy.accept(select_batches(answer(commit(5, 9), commit(6, 9), data(7, 5)), 5, terms=RepackTerms(end=7)))
    assert isinstance(copy.trouble, EndReached)


def test_a_halt_replaces_the_end() -> None:
    copy = sequenced(5, CopyLimit(7))
    copy.accept(select_batches(answer(commit(5, 9), commit(6, 9)), 5, terms=RepackTerms(end=7)))
    copy.stop(Halt("target_gone", "the target topic was deleted"))
    assert isinstance(copy.trouble, Halt)


def test_what_lies_behind_the_end_is_no_lag() -> None:
    cursor = SourceCursor(0, limit=CopyLimit(7))
    cursor.note_log_end(100, 120)
    assert (cursor.end, cursor.high_watermark) == (7, 7)
    cursor.note_log_end(5, 6)
    assert (cursor.end, cursor.high_watermark) == (5, 6)
    unknown = SourceCursor(0, limit=CopyLimit(None, NOW))
    unknown.note_log_end(100, 120)
    assert (unknown.end, unknown.high_watermark, unknown.is_at_limit) == (100, 120, False)


END = PartitionEnd("a-to-b", "orders", 0, 2, 400, 402, 90, "one", "w1", NOW)


def test_a_complete_partition_is_reported_once_and_left_alone() -> None:
    task = PartitionTask(KEY, RECORD)
    assert task.is_ready_to_inspect(0.0)
    task.record_trouble(Reinspect("a broker does not answer"), 0.0)
    task.complete(END)
    assert not task.is_ready_to_inspect(1e9)
    assert task.is_at_rest
    report = task.published = task.report("w1", 1)
    assert (report.state, report.error, report.remedy) == (COMPLETE, None, None)
    assert (report.source_position, report.source_end, report.target_end) == (402, 402, 90)
    assert (report.lag_records, report.lag_ms, report.lag_bytes) == (0, 0, 0)
    assert task.is_quiet(task._at)


def test_a_complete_partition_needs_no_worker() -> None:
    task = PartitionTask(KEY, RECORD)
    task.complete(END)
    report = task.report("w1", 1)
    assert mark_if_silent(report, report.at_ms + 10 * SILENT_MS, flow_state="running") == report
    assert not is_halted(COMPLETE)
    assert [pick_worst_state(states) for states in (("complete",), ("complete", "running"))] == ["complete", "running"]


def test_an_order_that_was_obeyed_before_the_end_wakes_nobody_and_another_does() -> None:
    def build(order: str) -> OperatorDecision:
        return OperatorDecision("reseed", "a-to-b", "orders", 0, "target_gone", 3, "ann", None, None, order, NOW)

    task = PartitionTask(KEY, RECORD)
    task.complete(END)
    task.take_decision(build("one"))
    assert task.is_at_rest
    task.take_decision(build("two"))
    assert task.is_ready_to_inspect(1e9)


def test_an_end_is_that_of_the_flow_as_long_as_the_flow_has_the_same_one() -> None:
    assert END.is_of(RECORD)
    assert not END.is_of(FlowRecord(RECORD.flow, "sha256:0", "shop", end_revision=3))


@pytest.mark.parametrize(
    ("batches", "end", "parts"),
    [
        ((data(0, 5), data(5, 5), data(10, 5)), 5, [(0, 5, 1)]),
        ((data(0, 5), data(5, 5), data(10, 5)), 7, [(0, 7, 2)]),  # whoever opens them counts what is in front of 7
        ((data(0, 5), data(9, 5)), 7, [(0, 7, 1)]),
        ((commit(0, 9), data(1, 5)), 1, [(0, 1, 0)]),
        ((data(0, 5),), 9, [(0, 5, 1)]),
    ],
)
def test_what_is_to_be_transformed_ends_as_well(batches, end, parts) -> None:
    nothing = RepackTerms(end=end)
    found = select_untransformed(answer(*batches), 0, (), lambda _batch: False, lambda _batch: None, nothing)
    assert [(part.start, part.end, len(part.pieces)) for part in found.parts] == parts
    assert found.refused is None


def test_what_is_to_be_transformed_ends_in_front_of_the_time() -> None:
    terms = RepackTerms(before_ms=NOW + 5)
    late = answer(data(0, 5), data(5, 9), data(14, 5))
    found = select_untransformed(late, 0, (), lambda _batch: False, lambda _batch: None, terms)
    assert [(part.start, part.end) for part in found.parts] == [(0, 5)]
    assert isinstance(found.refused, EndPassed)
