"""Who may copy holes: what a copy tells the ledger, and when the next inspection begins a producer epoch of its own."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.replicator.build import NOW, answer, commit, data, emptied
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.ledger import assemble_partitions
from watershed.replicator.ledger.ledger_block import CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.producer_epochs import (
    MAX_PRODUCER_EPOCH,
    begin_exclusive_epoch,
    drop_overtaken_epochs,
)
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint

SOURCE, TARGET = uuid.uuid4(), uuid.uuid4()
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)
HOLED = data(3, offsets=(0, 2))


def copying(*, alone: bool = False) -> PartitionCopy:
    return PartitionCopy(
        KEY,
        SOURCE,
        TARGET,
        SourceCursor(0),
        TargetProgress(0),
        producer=SequencedProducer(ProducerIdentity(7, 0, 0), 5, 5, alone=alone),
    )


def taken(copy: PartitionCopy, *batches: bytes) -> list[OffsetRun]:
    terms = RepackTerms(small=0, holes=lambda: copy.producer.alone)
    return copy.accept(select_batches(answer(*batches), copy.source.position, terms=terms))


@pytest.mark.parametrize("hole", [HOLED, data(4), emptied(3, 2), data(3, offsets=(0,), span=2)])
def test_under_a_shared_epoch_nothing_behind_a_hole_is_taken(hole: bytes) -> None:
    copy = copying()
    runs = taken(copy, data(0, 2), commit(2, 1), hole, data(9))
    assert runs == [OffsetRun(2, 3), OffsetRun(2, 3)]  # the gap, and once more so that the ledger hears of the hole
    assert (copy.source.position, copy.producer.needs_epoch, len(copy.queue.ready)) == (3, True, 1)
    copy.durable(runs)
    copy.next_outgoing()
    copy.answered(ProducedPartition(TARGET, 0, 0, 0, 0))
    assert isinstance(copy.trouble, Reinspect)
    assert "hole" in copy.trouble.reason


def test_alone_holes_are_copied() -> None:
    copy = copying(alone=True)
    runs = taken(copy, HOLED, data(6))
    assert (copy.source.position, copy.producer.alone, copy.producer.needs_epoch) == (7, True, True)
    assert runs == [OffsetRun(0, 3), OffsetRun(1, 5)]


def test_an_epoch_without_holes_at_its_beginning_is_shared_again() -> None:
    copy = copying(alone=True)
    assert copy.producer.needs_epoch
    assert taken(copy, data(0, 3)) == [OffsetRun(3, 3)]
    assert (copy.producer.alone, copy.producer.needs_epoch) == (False, False)
    taken(copy, data(5))
    assert (copy.source.position, copy.producer.needs_epoch) == (3, True)


def test_only_the_first_answer_decides() -> None:
    copy = copying(alone=True)
    taken(copy, HOLED)
    assert taken(copy, data(6)) == []
    assert copy.producer.alone


@pytest.mark.parametrize(
    ("code", "unanswered"),
    [
        (error_codes.NOT_LEADER_OR_FOLLOWER, False),
        (error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (error_codes.INVALID_RECORD, False),
        (error_codes.REQUEST_TIMED_OUT, True),
        (error_codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (-1, True),
    ],
)
def test_what_may_still_land(code: int, unanswered: bool) -> None:
    copy = copying()
    taken(copy, data(0, 3))
    copy.next_outgoing()
    copy.answered(ProducedPartition(TARGET, 0, code, -1, 0))
    assert copy.producer.unanswered == unanswered


def test_a_lost_connection_with_something_on_it() -> None:
    idle, busy = copying(), copying()
    taken(busy, data(0))
    busy.next_outgoing()
    for copy in (idle, busy):
        copy.connection_lost("cut")
    assert (idle.producer.unanswered, busy.producer.unanswered) == (False, True)


def remembered(**more: object) -> LedgerState:
    known = LedgerState(OffsetMap((OffsetRun(0, 0),)), ProducerIdentity(7, 2, 40), SOURCE, TARGET, last_epoch=2)
    return replace(known, **more)  # type: ignore[arg-type]


def tail(base: int, end: int, epoch: int) -> RawBatch:
    return RawBatch(base, end, 0, 0, NOW, 7, epoch, 0, end - base, memoryview(b""))


def seen(*, settled: bool, last: RawBatch | None = None) -> LogInspection:
    return LogInspection(SOURCE, 0, 900, TARGET, 0, 100, last or tail(90, 100, 2), None, NOW, 86_400_000, settled)


GOING_ON = RecoveryPoint(ProducerIdentity(7, 2, 40), 120, 100, 5, 5)


def test_an_epoch_that_may_be_shared_is_gone_on_with() -> None:
    assert begin_exclusive_epoch(GOING_ON, remembered(), seen(settled=True)) is GOING_ON
    assert begin_exclusive_epoch(GOING_ON, None, seen(settled=True)) is GOING_ON
    halt = Halt("duplicated", "")
    assert begin_exclusive_epoch(halt, remembered(needs_epoch=True), seen(settled=True)) is halt


@pytest.mark.parametrize(("settled", "closed"), [(True, False), (False, True)])
def test_the_next_epoch_begins_at_the_logs_end(settled: bool, closed: bool) -> None:
    decided = begin_exclusive_epoch(
        GOING_ON, remembered(needs_epoch=True, closed=closed, last_epoch=4), seen(settled=settled)
    )
    assert decided == RecoveryPoint(ProducerIdentity(7, 5, 100), 120, 100, 1, 5, claims=True, alone=True, after=2)


def test_not_before_nothing_older_can_land() -> None:
    assert isinstance(begin_exclusive_epoch(GOING_ON, remembered(needs_epoch=True), seen(settled=False)), Reinspect)


def test_there_is_a_last_epoch() -> None:
    decided = begin_exclusive_epoch(
        GOING_ON, remembered(needs_epoch=True, last_epoch=MAX_PRODUCER_EPOCH), seen(settled=True)
    )
    assert isinstance(decided, Halt)


def block(number: int, epoch: int, base: int, *runs: tuple[int, int], after: int = -1, **more: object) -> LedgerBlock:
    made = LedgerBlock(
        KEY, Generation(number, "w"), CLAIM_NUMBER + 1, base, ProducerIdentity(7, epoch, base), SOURCE, TARGET,
        tuple(OffsetRun(*run) for run in runs), after=after,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_claim_that_never_landed_is_disowned() -> None:
    """Epoch 1 was claimed at 100; epoch 0 went on to 105 all the same; epoch 2 follows epoch 0."""
    blocks = [
        block(1, 0, 0, (0, 0), (100, 200)),
        block(2, 1, 100, (100, 200), (102, 205), after=0, needs_epoch=True),
    ]
    (before, _) = assemble_partitions(blocks)[KEY]
    assert before.map.source_position(105) == 208
    landed = drop_overtaken_epochs(before, seen(settled=True, last=tail(100, 105, 0)))
    assert landed is not None
    assert (landed.identity.epoch, landed.last_epoch, landed.needs_epoch, landed.closed) == (0, 1, True, False)
    assert landed.map.source_position(105) == 205
    (after, _) = assemble_partitions([*blocks, block(3, 2, 105, (105, 205), after=0)])[KEY]
    assert [after.map.to_source(at) for at in (99, 100, 104, 105)] == [99, 200, 204, 205]


def test_a_claim_that_landed_counts() -> None:
    (known, _) = assemble_partitions(
        [block(1, 0, 0, (0, 0), (100, 200)), block(2, 1, 100, (100, 200), (102, 205), after=0)]
    )[KEY]
    assert drop_overtaken_epochs(known, seen(settled=True, last=tail(100, 105, 1))) is known
    assert drop_overtaken_epochs(known, seen(settled=True, last=tail(90, 100, 0))) is known
    assert drop_overtaken_epochs(None, seen(settled=True)) is None


def test_what_the_newest_block_of_each_generation_says() -> None:
    first, second = block(1, 0, 0, (0, 0), needs_epoch=True), block(2, 0, 0, (3, 3), closed=True)
    corrected = replace(first, number=CLAIM_NUMBER + 2, needs_epoch=False, closed=True)
    assert [
        assemble_partitions(found)[KEY][0].needs_epoch for found in ([first, second], [first, corrected, second])
    ] == [
        True,
        False,
    ]
    assert [assemble_partitions(found)[KEY][0].closed for found in ([first, second], [first, corrected, second])] == [
        False,
        True,
    ]


class Written:
    def __init__(self) -> None:
        self.values: list[dict] = []
        self.acknowledge: list = []

    def put_nowait(self, _topic, _key, value, _partition, on_done) -> None:
        self.values.append(value)
        self.acknowledge.append(on_done)


@pytest.mark.parametrize("under_way", [False, True])
def test_closing_is_written_behind_everything_else(under_way: bool) -> None:
    writer, later, durable = Written(), [], []
    ledger = PartitionLedgerWriter(writer, block(1, 0, 0), durable.extend, print, later.append)  # type: ignore[arg-type]
    ledger.append([OffsetRun(0, 0)])
    if not under_way:
        writer.acknowledge.pop()(None, 0)
        later.pop()()
    ledger.append([OffsetRun(4, 5)])
    ledger.close()
    while writer.acknowledge:
        writer.acknowledge.pop()(None, 0)
        later.pop()()
    assert [value.get("closed", False) for value in writer.values][-1] is True
    assert [run for value in writer.values for run in value["runs"]] == [[0, 0], [4, 5]]
    assert durable == [OffsetRun(0, 0), OffsetRun(4, 5)]


def test_what_the_target_does_not_take_is_left_out_alone_only() -> None:
    """A worker that knows other limits writes the record: under one producer epoch two readings would differ."""
    copy, kept = copying(), []

    def taken_with_limits() -> None:
        terms = RepackTerms(refused={4: "no key"}, small=0, isolate=True, holes=lambda: copy.producer.alone)
        selected = select_batches(answer(data(0, 3), data(3, 3)), copy.source.position, terms=terms)
        kept.extend(selected.rejected)
        copy.accept(selected)

    taken_with_limits()
    assert (copy.source.position, copy.producer.needs_epoch, len(copy.queue.ready), kept) == (3, True, 1, [])
    assert isinstance(copy.refusals.batch, Reinspect)
    assert "producer epoch of its own" in copy.refusals.batch.reason
    copy = copying(alone=True)
    taken_with_limits()
    assert (copy.source.position, copy.producer.alone, copy.producer.needs_epoch) == (6, True, True)
    assert [record.source_offset for record in kept] == [4]
