"""A copy without a producer id: what is sent, what each answer means, and what the ledger is told."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.replicator.build import answer, batch_of, commit, data, transactional
from tests.replicator.repeating import ControlRecord
from watershed.clusters.errors import ClusterError
from watershed.clusters.record_batch import decode_batch_header
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, remove_producer
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.records import decode_records
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.repeatable_copy import RepeatableCopy
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.position_writer import PositionWriter, StoredProgress
from watershed.replicator.ledger.transaction_positions import (
    TAKEOVERS_KEPT,
    LogKnowledge,
    PositionAndRuns,
    PositionTracker,
    SourceSpan,
    TransactionPosition,
    build_takeover_entries,
    decode_positions,
    list_kept_repeats,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Reinspect

SOURCE, TARGET = uuid.UUID(int=1), uuid.UUID(int=2)
KEY = PartitionKey("a-to-b", "orders", "orders", 0)
ONE_BY_ONE = RepackTerms(small=0)


def copying(*batches: bytes, acked: int = 40) -> RepeatableCopy:
    copy = RepeatableCopy(KEY, SOURCE, TARGET, SourceCursor(0), TargetProgress(acked))
    assert copy.accept(select_batches(answer(*batches), 0, terms=ONE_BY_ONE)) == []
    return copy


def answered(copy: RepeatableCopy, offset: int, error: int = error_codes.NONE) -> None:
    copy.answered(ProducedPartition(TARGET, 0, error, offset, 0, ""))


def test_a_batch_without_its_producer_holds_the_same_records() -> None:
    stored = batch_of(transactional(5, 3, 9))
    header = remove_producer(stored.data[:BATCH_HEADER_BYTES])
    [sent] = decode_batches(memoryview(header + bytes(stored.data[BATCH_HEADER_BYTES:])))
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence, sent.transactional) == (-1, -1, -1, False)
    assert [each.rest for each in decode_records(sent)] == [each.rest for each in decode_records(stored)]


def test_one_batch_is_in_flight_and_its_answer_says_where_it_stands() -> None:
    copy = copying(data(0, 3), commit(3, 1), data(4, 2))
    first = copy.next_outgoing()
    assert first is not None
    head = decode_batch_header(b"".join(first.pieces))
    assert (first.first, head.producer_id, head.base_sequence) == (40, -1, -1)
    assert copy.next_outgoing() is None
    assert copy.take_progress() == StoredProgress((), 0, -1, 40, False)
    answered(copy, 40)
    assert copy.take_progress() == StoredProgress((ExplicitRun(40, 0, 3),), 3, 0, 43, True)
    second = copy.next_outgoing()
    assert second is not None
    assert second.first == 43
    answered(copy, 43)
    assert copy.take_progress() == StoredProgress((ExplicitRun(43, 4, 2),), 6, 0, 45, True)
    assert not copy.is_young
    assert not copy.can_close_epoch


@pytest.mark.parametrize("offset", [41, 39, -1])
def test_another_offset_than_was_meant_ends_the_copy_and_is_not_written_down(offset: int) -> None:
    copy = copying(data(0, 3), data(3, 1))
    assert copy.next_outgoing() is not None
    answered(copy, offset)
    assert isinstance(copy.trouble, Reinspect)
    assert f"meant for target offset 40 were stored at {offset}" in copy.trouble.reason
    assert copy.trouble.halts_as is None
    assert copy.next_outgoing() is None
    assert copy.take_progress() == StoredProgress((), 0, -1, 40, False)


@pytest.mark.parametrize(
    ("error", "settled"),
    [(error_codes.REQUEST_TIMED_OUT, False), (error_codes.NOT_LEADER_OR_FOLLOWER, True)],
)
def test_only_a_certain_refusal_leaves_nothing_under_way(error: int, settled: bool) -> None:
    copy = copying(data(0, 3))
    assert copy.next_outgoing() is not None
    answered(copy, -1, error)
    assert isinstance(copy.trouble, Reinspect)
    assert copy.take_progress().settled is settled


def test_a_lost_connection_leaves_something_under_way_and_a_stall_ends_the_copy() -> None:
    copy = copying(data(0, 3))
    assert copy.next_outgoing() is not None
    copy.connection_lost("reset")
    assert not copy.take_progress().settled
    still = copying(data(0, 3))
    still.note_stall(0)
    assert isinstance(still.trouble, Reinspect)


class Writer:
    """Keeps what is written until it is acknowledged."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Any, Callable[[ClusterError | None, int], None]]] = []
        self.ledger: dict[str, Any] = {}

    def put_nowait(self, topic: str, key: str, value: Any, slot: int, on_done: Callable[..., None]) -> None:
        self.waiting.append((key, value, on_done))

    def acknowledge(self, error: ClusterError | None = None) -> None:
        key, value, on_done = self.waiting.pop(0)
        if error is None:
            self.ledger[key] = value
        on_done(error, 0)

    def known(self) -> PositionAndRuns:
        return decode_positions([ControlRecord(0, at, 0, *each) for at, each in enumerate(self.ledger.items())])[KEY]


def writing(*progress: StoredProgress) -> tuple[PositionWriter, Writer, list[ClusterError]]:
    begun = TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(40, 0), 0, log=LogKnowledge(40))
    writer, failures, given = Writer(), [], iter(progress)
    position = PositionWriter(
        writer, PositionTracker(PositionAndRuns(begun)), lambda: next(given), failures.append, lambda todo: todo()
    )
    return position, writer, failures


def test_one_position_is_under_way_at_a_time_and_the_last_one_says_that_nothing_is() -> None:
    position, writer, failures = writing(
        StoredProgress((ExplicitRun(40, 0, 3),), 3, 7, 43, False),
        StoredProgress((ExplicitRun(43, 4, 2),), 6, 7, 45, True),
    )
    position.write()
    position.write()
    position.close()
    assert len(writer.waiting) == 1
    writer.acknowledge()
    assert writer.known().position.log == LogKnowledge(43)
    writer.acknowledge()
    known = writer.known()
    assert (known.position.position, known.position.leader_epoch, known.position.log) == (6, 7, LogKnowledge(45, True))
    assert list(known.map.stretches(99)) == [ExplicitRun(40, 0, 3), ExplicitRun(43, 4, 2)]
    assert not writer.waiting
    assert not failures


def test_nothing_new_is_not_written() -> None:
    position, writer, _ = writing(StoredProgress((), 0, -1, 40, False))
    position.write()
    assert not writer.waiting


def test_behind_a_failure_nothing_is_written_any_more() -> None:
    position, writer, failures = writing(StoredProgress((ExplicitRun(40, 0, 3),), 3, 7, 43, False))
    position.write()
    writer.acknowledge(ClusterError("no"))
    position.write()
    position.close()
    assert (len(failures), writer.waiting, writer.ledger) == (1, [], {})


def test_many_runs_go_into_blocks_that_stand_there_before_the_position() -> None:
    runs = tuple(ExplicitRun(40 + 2 * at, 3 * at, 2) for at in range(200))
    position, writer, _ = writing(StoredProgress(runs, 600, 0, 440, False))
    position.write()
    while writer.waiting:
        writer.acknowledge()
    assert [key.split("|")[3] for key in writer.ledger] == ["stretches", "position"]
    assert list(writer.known().map.stretches(999)) == list(runs)


def test_a_takeover_writes_the_last_block_under_a_name_of_its_own() -> None:
    runs = tuple(ExplicitRun(40 + 2 * at, 3 * at, 2) for at in range(200))
    position, writer, _ = writing(StoredProgress(runs, 600, 0, 440, False))
    position.write()
    while writer.waiting:
        writer.acknowledge()
    known = writer.known()
    track = PositionTracker(known, "b")
    writer.ledger |= dict(track.advance([ExplicitRun(440, 700, 1)], 701, 0, log=LogKnowledge(441)))
    prefix = "a-to-b|orders|0"
    assert sorted(writer.ledger) == [f"{prefix}|position", f"{prefix}|stretches|0", f"{prefix}|stretches|0-1.b"]
    of_the_first = list(writer.known().map.stretches(999))
    assert of_the_first == [*runs, ExplicitRun(440, 700, 1)]
    writer.ledger[f"{prefix}|stretches|0"] |= {"stretches": [[40, 0, 2]]}
    assert list(writer.known().map.stretches(999)) == of_the_first, "what another worker writes does not count"


def test_a_block_that_nobody_names_goes_when_no_worker_can_come_back_to_it() -> None:
    begun = TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(40, 0), 0, log=LogKnowledge(40))
    ledger: dict[str, Any] = {}
    landed = [ExplicitRun(40 + 2 * at, 3 * at, 2) for at in range(200)]
    track = PositionTracker(PositionAndRuns(begun), "first")
    for takeover in range(1, 21):
        for key, value in track.advance(landed, 600, 0, log=LogKnowledge(440)):
            if value is None:
                del ledger[key]
            else:
                ledger[key] = value
        blocks = [key.split("|")[4] for key in ledger if "|stretches|" in key]
        assert len(blocks) == min(takeover, TAKEOVERS_KEPT + 2)
        assert any(name.startswith(f"0-{takeover}.") for name in blocks)
        known = decode_positions([ControlRecord(0, at, 0, *each) for at, each in enumerate(ledger.items())])[KEY]
        assert len(known.map.runs) == 200
        track, landed = PositionTracker(known, f"w{takeover}"), []


def test_the_position_of_an_older_generation_does_not_overwrite_a_newer_one() -> None:
    old = TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(40, 0), 0, log=LogKnowledge(40))
    new = replace(old, generation=2, order="one", position=9)
    keys = [each.record_key for each in (new, old)]
    assert keys == ["a-to-b|orders|0|position|2", "a-to-b|orders|0|position"]
    records = [ControlRecord(0, at, 0, each.record_key, each.to_json()) for at, each in enumerate((new, old))]
    assert decode_positions(records)[KEY].position == new


def test_repeats_and_takeovers_have_records_of_their_own() -> None:
    begun = TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(0, 0), 50, log=LogKnowledge(60))
    spans = tuple(SourceSpan(at, at + 1) for at in range(16))
    gone, kept, behind = ExplicitRun(5, 0, 5), ExplicitRun(20, 5, 5), ExplicitRun(60, 1, 1)
    known = PositionAndRuns(begun, repeated=(gone, kept, behind), takeovers=spans)
    assert list_kept_repeats(known, 10) == [kept]
    entries = build_takeover_entries(known, [ExplicitRun(61, 3, 4)], SourceSpan(50, 55), 10)
    prefix = "a-to-b|orders|0"
    assert [(key, value is None) for key, value in entries] == [
        (f"{prefix}|repeated|5", True),
        (f"{prefix}|repeated|60", True),
        (f"{prefix}|takeover|0-1", True),
        (f"{prefix}|repeated|61", False),
        (f"{prefix}|takeover|50-55", False),
    ]
    value = begun.to_json()
    records = [*entries[3:], (f"{prefix}|position", value)]
    found = decode_positions([ControlRecord(0, at, 0, *each) for at, each in enumerate(records)])[KEY]
    assert (found.repeated, found.takeovers) == ((ExplicitRun(61, 3, 4),), (SourceSpan(50, 55),))
    assert found.position == begun
