"""What is passed on of a Fetch answer, what becomes a gap, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.build import (
    abort,
    answer,
    batch_of,
    commit,
    damaged,
    data,
    emptied,
    old_format,
    transactional,
    with_attributes,
    with_crc,
)
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.wire.messages import FetchPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.errors import BadBatch

ONE_BY_ONE = RepackTerms(small=0)  # batches stay as they are


@dataclass(frozen=True)
class Case:
    """An answer to a Fetch at `position`, and the spans [first, end) that must be copied of it."""

    name: str
    batches: tuple[bytes, ...]
    copied: tuple[tuple[int, int], ...]
    position: int
    at: int = 0
    aborted: tuple[tuple[int, int], ...] = ()


CASES = [
    Case("nothing", (), (), 0),
    Case("nothing, later", (), (), 70, at=70),
    Case("plain batches", (data(0, 3), data(3, 1), data(4, 2)), ((0, 3), (3, 4), (4, 6)), 6),
    Case("a whole batch removed by compaction is a gap", (data(0, 3), data(7, 2)), ((0, 3), (7, 9)), 9),
    Case("a log that begins later", (data(5, 3),), ((5, 8),), 8),
    Case("committed", (transactional(0, 2, 7), transactional(2, 2, 7), commit(4, 7)), ((0, 2), (2, 4)), 5),
    Case("aborted", (transactional(0, 2, 7), abort(2, 7)), (), 3, aborted=((7, 0),)),
    Case(
        "aborted, then committed by the same producer",
        (transactional(0, 2, 7), abort(2, 7), transactional(3, 2, 7), commit(5, 7)),
        ((3, 5),),
        6,
        aborted=((7, 0),),
    ),
    Case(
        "committed, then aborted by the same producer",
        (transactional(0, 2, 7), commit(2, 7), transactional(3, 2, 7), abort(5, 7), data(6)),
        ((0, 2), (6, 7)),
        7,
        aborted=((7, 3),),
    ),
    Case(
        "interleaved: 7 aborted, 8 committed, 9 plain between them",
        (
            transactional(0, 1, 7),
            transactional(1, 1, 8),
            data(2, 2, producer_id=9),
            transactional(4, 1, 7),
            transactional(5, 1, 8),
            abort(6, 7),
            transactional(7, 1, 8),
            commit(8, 8),
        ),
        ((1, 2), (2, 4), (5, 6), (7, 8)),
        9,
        aborted=((7, 0),),
    ),
    Case(
        "two aborted transactions of one producer, listed in reverse",
        (
            transactional(0, 1, 7),
            abort(1, 7),
            transactional(2, 1, 7),
            commit(3, 7),
            transactional(4, 1, 7),
            abort(5, 7),
        ),
        ((2, 3),),
        6,
        aborted=((7, 4), (7, 0)),
    ),
    Case(
        "an aborted transaction that began before the answer",
        (transactional(10, 2, 7), data(12), abort(13, 7), transactional(14, 1, 7), commit(15, 7)),
        ((12, 13), (14, 15)),
        16,
        at=10,
        aborted=((7, 3),),
    ),
    Case(
        "an abort marker in front of the position still ends the transaction",
        (abort(9, 7), transactional(10, 1, 7), commit(11, 7)),
        ((10, 11),),
        12,
        at=10,
        aborted=((7, 3),),
    ),
    Case(
        "an idempotent producer is not transactional",
        (data(0, 2, producer_id=7), data(2, 1, producer_id=7)),
        ((0, 2), (2, 3)),
        3,
        aborted=((7, 0),),
    ),
    Case("markers only", (commit(0, 7), abort(1, 8), commit(2, 9)), (), 3),
    Case("emptied by the cleaner", (data(0), emptied(1, 4), data(5)), ((0, 1), (5, 6)), 6),
    Case("a marker emptied by the cleaner", (data(0), emptied(1, control=True), data(2)), ((0, 1), (2, 3)), 3),
    Case("before the position", (data(0, 4), data(4, 2)), ((4, 6),), 6, at=4),
    Case("all before the position", (data(0, 4),), (), 4, at=4),
    Case("a marker batch that holds the position", (commit(3, 7), data(4)), ((4, 5),), 5, at=3),
    Case("cut off in the payload", (data(0, 2), data(2, 2)[:-1]), ((0, 2),), 2),
    Case("cut off in the header", (data(0, 2), data(2, 2)[:40]), ((0, 2),), 2),
    Case("cut off at once", (data(2, 2)[:20],), (), 2, at=2),
    Case("cut off behind a gap", (commit(0, 7), data(1)[:-1]), (), 1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sift(case: Case) -> None:
    selected = select_batches(answer(*case.batches), case.at, case.aborted, terms=ONE_BY_ONE)
    assert tuple((batch.base, batch.end) for batch in selected.batches) == case.copied
    assert (selected.position, selected.refused) == (case.position, None)


@dataclass(frozen=True)
class Refused:
    """What is refused; the batches before it are copied, the position stays in front of it."""

    name: str
    batches: tuple[bytes, ...]
    reason: str
    position: int
    copied: int = 0
    at: int = 0
    state: str = "rejected"


REFUSED = [
    Refused("damaged, and to be opened", (data(0), damaged(data(1, offsets=(0, 2)))), "is damaged", 1, copied=1),
    Refused("damaged, first batch trimmed", (damaged(data(0, 5)), data(5)), "is damaged", 2, at=2),
    Refused("format v1, damaged", (data(0), old_format(1, 1)), "is damaged", 1, copied=1),
    Refused("format v0, a short message", (old_format(0, 0, 18),), "is damaged", 0),
    Refused("format v3", (data(0), old_format(1, 3)), "message format v3", 1, copied=1, state="unsupported"),
    Refused("a length that cannot be", (data(0), data(1)[:8] + bytes(4) + data(1)[12:]), "own header", 1, copied=1),
    Refused("behind a gap", (commit(0, 7), damaged(data(1, offsets=(0, 2)))), "is damaged", 1),
    Refused(
        "an unknown codec",
        (with_crc(with_attributes(data(0, offsets=(0, 2)), 0x07)),),
        "codec 7",
        0,
        state="unsupported",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused(case: Refused) -> None:
    selected = select_batches(answer(*case.batches), case.at)
    assert selected.refused is not None
    assert case.reason in str(selected.refused)
    assert f"source offset {case.batches[-1 if case.at == 0 else 0][7]}" in str(selected.refused)
    assert selected.refused.state == case.state
    assert (len(selected.batches), selected.position) == (case.copied, case.position)


@pytest.mark.parametrize(
    "gone",
    [
        emptied(1, 3),
        transactional(1, 3, 7),
        with_attributes(transactional(1, 3, 7), 0x08),
        data(1, offsets=(0, 2), producer_id=7, transactional=True),
    ],
    ids=["emptied", "aborted", "aborted with append time", "aborted with holes"],
)
def test_what_is_not_copied_anyway_is_not_refused(gone: bytes) -> None:
    selected = select_batches(answer(data(0), gone, data(4)), 0, ((7, 1),), terms=ONE_BY_ONE)
    assert [batch.base for batch in selected.batches] == [0, 4]
    assert (selected.position, selected.refused) == (5, None)


def test_left_out_batches_are_gaps() -> None:
    """Also those that could not be passed on."""
    ours, holes = data(1, 2, producer_id=44), data(3, offsets=(0, 2), producer_id=44)
    selected = select_batches(
        answer(data(0), ours, holes, data(6)), 0, leave_out=lambda batch: batch.producer_id == 44, terms=ONE_BY_ONE
    )
    assert [batch.base for batch in selected.batches] == [0, 6]
    assert (selected.position, selected.refused) == (7, None)


def test_nobody_asks_about_control_batches() -> None:
    asked: list[int] = []
    select_batches(answer(commit(0, 7), emptied(1), data(2)), 0, leave_out=lambda batch: bool(asked.append(batch.base)))
    assert asked == [2]


def test_leader_epoch_is_that_of_the_last_batch_passed() -> None:
    assert select_batches(answer(data(0, epoch=3), data(1, epoch=4)), 0).leader_epoch == 4
    assert select_batches(answer(data(0, epoch=3), damaged(data(1, offsets=(0, 2), epoch=4))), 0).leader_epoch == 3
    assert select_batches(answer(data(0, epoch=3)), 1).leader_epoch == -1
    assert select_batches(answer(), 0).leader_epoch == -1


def test_header_fields() -> None:
    stored = data(40, 3, producer_id=12, transactional=True, epoch=6, codec="gzip")
    batch = batch_of(stored)
    assert (batch.base, batch.end, batch.leader_epoch, batch.records) == (40, 43, 6, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (12, 0, 0)
    assert (batch.transactional, batch.control) == (True, False)
    assert bytes(batch.data) == stored


def test_a_format_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(BadBatch, match="offset 5"):
        list(decode_batches(memoryview(old_format(5, 4))))


@given(st.data())
@settings(max_examples=choose_examples(50, 150), deadline=None)
def test_any_log_in_any_pieces_is_what_a_consumer_reads(draw: st.DataObject) -> None:
    """Fetched in pieces of any size, every committed record is copied once, and nothing else."""
    source = FakeCluster(clock=lambda: 1_790_000_000_000)
    topic = source.create_topic("t", 1)
    waiting: list[int] = []
    for _ in range(draw.draw(st.integers(0, 12))):
        kind = draw.draw(st.sampled_from(("plain", "commit", "abort", "open", "end")))
        if kind == "plain":
            source.produce("t", 0, [b"v"] * draw.draw(st.integers(1, 4)))
        elif kind != "end":
            batches = [[b"t"] * draw.draw(st.integers(1, 3)) for _ in range(draw.draw(st.integers(1, 3)))]
            producer = source.produce_transaction("t", 0, batches, end=kind)
            waiting += [producer] if kind == "open" else []
        elif waiting:
            source.end_transaction("t", 0, waiting.pop(0), commit=draw.draw(st.booleans()))
    for producer in waiting:
        source.end_transaction("t", 0, producer, commit=draw.draw(st.booleans()))
    position, copied, wire, end = 0, [], source.wire(), source.log("t", 0).end
    while position < end:
        size = draw.draw(st.sampled_from((1, 90, 150, 300, 5000)))
        (got,) = wire.fetch((FetchPartition(topic.topic_id, 0, position, max_bytes=size),), max_wait_ms=0)
        selected = select_batches(got.records, position, got.aborted)
        assert selected.position > position
        copied += [
            offset
            for batch in selected.batches
            for first, records in batch.spans or ((batch.base, batch.records),)
            for offset in range(first, first + records)
        ]
        position = selected.position
    assert copied == [record.offset for record in source.records("t", 0)]
