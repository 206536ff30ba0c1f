"""Who may copy holes: what a copy tells the ledger, and when the next look begins a producer epoch of its own."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from clusters.wire import codes
from clusters.wire.messages import ProducedPartition
from replicator.announcing import PartitionLedger
from replicator.batches import Batch, sift
from replicator.fencing import LAST_EPOCH, as_landed, fenced
from replicator.ledger import CLAIM, Block, Generation, assembled
from replicator.offsetmap import OffsetMap, Run
from replicator.partition import Identity, PartitionCopy, PartitionKey
from replicator.repack import Terms
from replicator.resume import Remembered, Resume, Seen
from replicator.states import LookAgain, Loud
from tests.replicator.build import NOW, answer, commit, data, emptied

SOURCE, TARGET = uuid.uuid4(), uuid.uuid4()
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)
HOLED = data(3, offsets=(0, 2))


def copying(*, alone: bool = False) -> PartitionCopy:
    return PartitionCopy(KEY, SOURCE, TARGET, Identity(7, 0, 0), 0, 0, 5, 5, alone=alone)


def taken(copy: PartitionCopy, *batches: bytes) -> list[Run]:
    terms = Terms(small=0, holes=lambda: copy.alone)
    return copy.accept(sift(answer(*batches), copy.position, terms=terms))


@pytest.mark.parametrize("hole", [HOLED, data(4), emptied(3, 2), data(3, offsets=(0,), span=2)])
def test_under_a_shared_epoch_nothing_behind_a_hole_is_taken(hole: bytes) -> None:
    copy = copying()
    runs = taken(copy, data(0, 2), commit(2, 1), hole, data(9))
    assert runs == [Run(2, 3), Run(2, 3)]  # the gap, and once more so that the ledger hears of the hole
    assert (copy.position, copy.needs_epoch, len(copy.ready)) == (3, True, 1)
    copy.durable(runs)
    copy.next_outgoing()
    copy.answered(ProducedPartition(TARGET, 0, 0, 0, 0))
    assert isinstance(copy.trouble, LookAgain)
    assert "hole" in copy.trouble.reason


def test_alone_holes_are_copied() -> None:
    copy = copying(alone=True)
    runs = taken(copy, HOLED, data(6))
    assert (copy.position, copy.alone, copy.needs_epoch) == (7, True, True)
    assert runs == [Run(0, 3), Run(1, 5)]


def test_an_epoch_without_holes_at_its_beginning_is_shared_again() -> None:
    copy = copying(alone=True)
    assert copy.needs_epoch
    assert taken(copy, data(0, 3)) == [Run(3, 3)]
    assert (copy.alone, copy.needs_epoch) == (False, False)
    taken(copy, data(5))
    assert (copy.position, copy.needs_epoch) == (3, True)


def test_only_the_first_answer_decides() -> None:
    copy = copying(alone=True)
    taken(copy, HOLED)
    assert taken(copy, data(6)) == []
    assert copy.alone


@pytest.mark.parametrize(
    ("code", "unanswered"),
    [
        (codes.NOT_LEADER_OR_FOLLOWER, False),
        (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (codes.INVALID_RECORD, False),
        (codes.REQUEST_TIMED_OUT, True),
        (codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (-1, True),
    ],
)
def test_what_may_still_land(code: int, unanswered: bool) -> None:
    copy = copying()
    taken(copy, data(0, 3))
    copy.next_outgoing()
    copy.answered(ProducedPartition(TARGET, 0, code, -1, 0))
    assert copy.unanswered == unanswered


def test_a_lost_connection_with_something_on_it() -> None:
    idle, busy = copying(), copying()
    taken(busy, data(0))
    busy.next_outgoing()
    for copy in (idle, busy):
        copy.connection_lost("cut")
    assert (idle.unanswered, busy.unanswered) == (False, True)


def remembered(**more: object) -> Remembered:
    known = Remembered(OffsetMap((Run(0, 0),)), Identity(7, 2, 40), SOURCE, TARGET, last_epoch=2)
    return replace(known, **more)  # type: ignore[arg-type]


def tail(base: int, end: int, epoch: int) -> Batch:
    return Batch(base, end, 0, 0, NOW, 7, epoch, 0, end - base, memoryview(b""))


def seen(*, settled: bool, last: Batch | None = None) -> Seen:
    return Seen(SOURCE, 0, 900, TARGET, 0, 100, last or tail(90, 100, 2), None, NOW, 86_400_000, settled)


GOING_ON = Resume(Identity(7, 2, 40), 120, 100, 5, 5)


def test_an_epoch_that_may_be_shared_is_gone_on_with() -> None:
    assert fenced(GOING_ON, remembered(), seen(settled=True)) is GOING_ON
    assert fenced(GOING_ON, None, seen(settled=True)) is GOING_ON
    loud = Loud("duplicated", "")
    assert fenced(loud, remembered(needs_epoch=True), seen(settled=True)) is loud


@pytest.mark.parametrize(("settled", "closed"), [(True, False), (False, True)])
def test_the_next_epoch_begins_at_the_logs_end(settled: bool, closed: bool) -> None:
    decided = fenced(GOING_ON, remembered(needs_epoch=True, closed=closed, last_epoch=4), seen(settled=settled))
    assert decided == Resume(Identity(7, 5, 100), 120, 100, 1, 5, claims=True, alone=True, after=2)


def test_not_before_nothing_older_can_land() -> None:
    assert isinstance(fenced(GOING_ON, remembered(needs_epoch=True), seen(settled=False)), LookAgain)


def test_there_is_a_last_epoch() -> None:
    decided = fenced(GOING_ON, remembered(needs_epoch=True, last_epoch=LAST_EPOCH), seen(settled=True))
    assert isinstance(decided, Loud)


def block(number: int, epoch: int, base: int, *runs: tuple[int, int], after: int = -1, **more: object) -> Block:
    made = Block(
        KEY, Generation(number, "w"), CLAIM + 1, base, Identity(7, epoch, base), SOURCE, TARGET,
        tuple(Run(*run) for run in runs), after=after,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_claim_that_never_landed_is_disowned() -> None:
    """Epoch 1 was claimed at 100; epoch 0 went on to 105 all the same; epoch 2 follows epoch 0."""
    blocks = [
        block(1, 0, 0, (0, 0), (100, 200)),
        block(2, 1, 100, (100, 200), (102, 205), after=0, needs_epoch=True),
    ]
    (before, _) = assembled(blocks)[KEY]
    assert before.map.source_position(105) == 208
    landed = as_landed(before, seen(settled=True, last=tail(100, 105, 0)))
    assert landed is not None
    assert (landed.identity.epoch, landed.last_epoch, landed.needs_epoch, landed.closed) == (0, 1, True, False)
    assert landed.map.source_position(105) == 205
    (after, _) = assembled([*blocks, block(3, 2, 105, (105, 205), after=0)])[KEY]
    assert [after.map.to_source(at) for at in (99, 100, 104, 105)] == [99, 200, 204, 205]


def test_a_claim_that_landed_counts() -> None:
    (known, _) = assembled([block(1, 0, 0, (0, 0), (100, 200)), block(2, 1, 100, (100, 200), (102, 205), after=0)])[KEY]
    assert as_landed(known, seen(settled=True, last=tail(100, 105, 1))) is known
    assert as_landed(known, seen(settled=True, last=tail(90, 100, 0))) is known
    assert as_landed(None, seen(settled=True)) is None


def test_what_the_newest_block_of_each_generation_says() -> None:
    first, second = block(1, 0, 0, (0, 0), needs_epoch=True), block(2, 0, 0, (3, 3), closed=True)
    corrected = replace(first, number=CLAIM + 2, needs_epoch=False, closed=True)
    assert [assembled(found)[KEY][0].needs_epoch for found in ([first, second], [first, corrected, second])] == [
        True,
        False,
    ]
    assert [assembled(found)[KEY][0].closed for found in ([first, second], [first, corrected, second])] == [False, True]


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
    ledger = PartitionLedger(writer, block(1, 0, 0), durable.extend, print, later.append)  # type: ignore[arg-type]
    ledger.append([Run(0, 0)])
    if not under_way:
        writer.acknowledge.pop()(None, 0)
        later.pop()()
    ledger.append([Run(4, 5)])
    ledger.close()
    while writer.acknowledge:
        writer.acknowledge.pop()(None, 0)
        later.pop()()
    assert [value.get("closed", False) for value in writer.values][-1] is True
    assert [run for value in writer.values for run in value["runs"]] == [[0, 0], [4, 5]]
    assert durable == [Run(0, 0), Run(4, 5)]


def test_what_the_target_does_not_take_is_left_out_alone_only() -> None:
    """A worker that knows other limits writes the record: under one producer epoch two readings would differ."""
    copy, kept = copying(), []

    def taken_with_limits() -> None:
        terms = Terms(refused={4: "no key"}, small=0, isolate=True, holes=lambda: copy.alone)
        sifted = sift(answer(data(0, 3), data(3, 3)), copy.position, terms=terms)
        kept.extend(sifted.rejected)
        copy.accept(sifted)

    taken_with_limits()
    assert (copy.position, copy.needs_epoch, len(copy.ready), kept) == (3, True, 1, [])
    assert isinstance(copy.refused, LookAgain)
    assert "producer epoch of its own" in copy.refused.reason
    copy = copying(alone=True)
    taken_with_limits()
    assert (copy.position, copy.alone, copy.needs_epoch) == (6, True, True)
    assert [record.source_offset for record in kept] == [4]
