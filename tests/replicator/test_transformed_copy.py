"""A partition whose records are changed on their way: what the ledger may say of it, and when it stops."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.registry.record_schemas import RecordSchemas, SideSchemas, UnknownSchema, WriterSchema
from watershed.replicator.batch import untransformed_selection
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.replicator.batch.records import RawRecord, build_raw_batch, decode_records, encode_key_and_value
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.batch.untransformed_selection import PART_BYTES, UntransformedPart, select_untransformed
from watershed.replicator.copy.copy_state import Refusals, SourceCursor, TargetProgress
from watershed.replicator.copy.transactions.transformed_copy import TransformedCopy
from watershed.replicator.errors import BadBatch
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, PositionTracker, TransactionPosition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.transport.transform_thread import (
    TransformedPart,
    TransformFailed,
    TransformRequest,
    TransformThread,
)
from watershed.topology.record_transform import RecordTransform

KEY = PartitionKey("f", "orders", "orders", 0)
TRANSFORM = RecordTransform(where="true")


def build_batch(first: int, count: int, *, size: int = 4) -> RawBatch:
    rest = encode_key_and_value(b"k", b"v" * size)
    return build_raw_batch([RawRecord(first + n, 1000, rest) for n in range(count)], 0, first + count)


def build_answer(*batches: RawBatch) -> memoryview:
    return memoryview(b"".join(bytes(batch.data) for batch in batches))


def build_copy(position: int = 0) -> TransformedCopy:
    known = TransactionPosition(KEY, uuid.UUID(int=1), uuid.UUID(int=2), OffsetRun(position, 0), position)
    return TransformedCopy(
        key=KEY,
        source_id=uuid.UUID(int=1),
        target_id=uuid.UUID(int=2),
        source=SourceCursor(position),
        progress=TargetProgress(0),
        refusals=Refusals(),
        track=PositionTracker(PositionAndRuns(known, {})),
        path_of=lambda _batch: ("here",),
    )


def fetch(copy: TransformedCopy, *batches: RawBatch, left_out: bool = False) -> None:
    found = select_untransformed(
        build_answer(*batches), copy.source.position, (), lambda _batch: left_out, lambda _batch: None
    )
    copy.hold(found.parts, found.last_batch, found.refused)


def commit(copy: TransformedCopy) -> int:
    """Write what is ready in one transaction; the source position that the ledger gets."""
    target = copy.progress.acked
    while (batch := copy.take(("here",))) is not None:
        assert copy.landed(target, 0)
        target += batch.records
    entries = copy.entries()
    copy.committed()
    position: int = entries[-1][1]["position"]  # type: ignore[index]
    return position


def test_the_ledger_never_says_more_than_what_is_transformed() -> None:
    copy = build_copy()
    fetch(copy, build_batch(0, 10), build_batch(10, 10))
    assert copy.source.position == 20
    assert not copy.lagging
    assert copy.take(("here",)) is None
    [part] = copy.list_waiting(1 << 20)
    assert (part.start, part.end) == (0, 20)
    assert copy.take_transformed(part, [build_batch(3, 2)], None, 20)
    fetch(copy, build_batch(20, 5))
    assert commit(copy) == 20
    assert copy.lagging is False
    [part] = copy.list_waiting(1 << 20)
    assert copy.take_transformed(part, [], None, 25)
    assert copy.lagging
    assert commit(copy) == 25


def test_what_holds_no_record_needs_nobody() -> None:
    copy = build_copy()
    found = select_untransformed(build_answer(build_batch(0, 5)), 0, (), lambda _batch: True, lambda _batch: None)
    copy.hold(found.parts, found.last_batch, found.refused)
    assert copy.list_waiting(1 << 20) == []
    assert copy.lagging
    assert commit(copy) == 5


def test_parts_without_records_between_others_take_no_result_of_theirs() -> None:
    """Answers that hold nothing but markers, aborted records or what the loop guard leaves out come one by one."""
    copy = build_copy()
    for first in range(0, 60, 10):
        fetch(copy, build_batch(first, 10), left_out=first % 20 == 10)
    waiting = copy.list_waiting(1 << 20)
    assert [(part.start, part.end) for part in waiting] == [(0, 10), (20, 30), (40, 50)]
    for part in waiting:
        assert part.first is not None
        assert copy.take_transformed(part, [part.first], None, part.end)
    assert list_sources(copy) == [*range(10), *range(20, 30), *range(40, 50)]
    assert commit(copy) == 60


def test_small_parts_that_follow_one_another_become_one() -> None:
    """Each Fetch brings one, and each costs Spark the same whatever its size."""
    copy = build_copy()
    fetch(copy, build_batch(0, 10))
    fetch(copy, build_batch(10, 10))
    fetch(copy, build_batch(20, 10), left_out=True)
    fetch(copy, build_batch(30, 10))
    fetch(copy, build_batch(40, 10, size=PART_BYTES // 11))
    fetch(copy, build_batch(50, 10, size=PART_BYTES // 11))
    waiting = copy.list_waiting(1 << 30)
    assert [(part.start, part.end) for part in waiting] == [(0, 20), (30, 50), (50, 60)]
    assert copy.list_waiting(1 << 30) == waiting
    assert sum(part.size for part in waiting) == copy.queue.buffered
    for part in waiting:
        batches = list(decode_batches(memoryview(part.read())))
        assert sum(map(len, part.pieces)) == part.size
        assert copy.take_transformed(part, batches, None, part.end)
    assert list_sources(copy) == [*range(20), *range(30, 60)]
    assert commit(copy) == 60


@pytest.fixture
def each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part becomes a part of another one."""
    monkeypatch.setattr(untransformed_selection, "PART_BYTES", 1)


def test_a_part_whose_batch_begins_in_front_of_it_stays_alone() -> None:
    parts = [
        select_untransformed(build_answer(batch), at, (), lambda _b: False, lambda _b: None).parts[0]
        for at, batch in ((0, build_batch(0, 10)), (10, build_batch(5, 10)), (15, build_batch(15, 10)))
    ]
    assert [parts[0].can_take(parts[1]), parts[1].can_take(parts[2]), parts[0].can_take(parts[2])] == [
        False, True, False
    ]  # fmt: skip


def test_parts_of_compressed_batches_stay_alone() -> None:
    packed = [build_raw_batch([RawRecord(at, 1000, encode_key_and_value(b"k", b"v" * 99))], 4, at + 1) for at in (0, 1)]
    parts = [select_untransformed(build_answer(each), at, (), lambda _b: False, lambda _b: None).parts[0]
             for at, each in enumerate(packed)]  # fmt: skip
    assert not parts[0].can_take(parts[1])


def test_a_part_with_one_compressed_batch_stays_alone_too() -> None:
    """A topic whose producers write with several codecs: what the batch becomes has no bound by its size."""
    rest = encode_key_and_value(b"k", b"v" * 99)
    none, zstd, behind = (
        build_raw_batch([RawRecord(at, 1000, rest)], codec, at + 1) for at, codec in enumerate((0, 4, 0))
    )
    mixed = select_untransformed(build_answer(none, zstd), 0, (), lambda _b: False, lambda _b: None).parts[0]
    plain = select_untransformed(build_answer(behind), 2, (), lambda _b: False, lambda _b: None).parts[0]
    assert (mixed.end, len(mixed.pieces)) == (2, 2)
    assert not mixed.can_take(plain)
    before = select_untransformed(build_answer(none), 0, (), lambda _b: False, lambda _b: None).parts[0]
    assert not before.can_take(UntransformedPart(1, 3, -1, behind, is_plain=False))


def test_parts_are_cut_by_bytes_and_by_the_way_that_records_came() -> None:
    batches = [build_batch(n * 10, 10, size=PART_BYTES // 30) for n in range(9)]
    found = select_untransformed(build_answer(*batches), 0, (), lambda _b: False, lambda batch: batch.base >= 80)
    assert [part.end for part in found.parts][-2:] == [80, 90]
    assert [part.start for part in found.parts] == [0, *(part.end for part in found.parts[:-1])]
    assert all(part.size <= PART_BYTES for part in found.parts)


def test_records_below_the_position_do_not_count_although_their_batch_is_there() -> None:
    found = select_untransformed(build_answer(build_batch(0, 10)), 4, (), lambda _b: False, lambda _b: None)
    [part] = found.parts
    assert (part.start, part.end) == (4, 10)
    assert len(decode_records(next(decode_batches(memoryview(part.read()))))) == 10


def test_a_damaged_batch_is_not_handed_on_and_what_stands_before_it_is_copied() -> None:
    broken = bytearray(build_batch(10, 10).data)
    broken[-1] ^= 1
    answer = memoryview(bytes(build_batch(0, 10).data) + bytes(broken))
    found = select_untransformed(answer, 0, (), lambda _b: False, lambda _b: None)
    assert [part.end for part in found.parts] == [10]
    assert isinstance(found.refused, BadBatch)
    copy = build_copy()
    copy.hold(found.parts, found.last_batch, found.refused)
    assert copy.trouble is None
    [part] = copy.list_waiting(1 << 20)
    copy.take_transformed(part, [build_batch(0, 10)], None, 10)
    assert copy.trouble is None
    assert commit(copy) == 10
    assert copy.trouble is not None


class PlayedEngine:
    """Drops odd offsets; rejects the offsets it is told."""

    def __init__(self, rejects: Sequence[int] = (), fails: TransformFailed | None = None) -> None:
        self.rejects, self.fails = rejects, fails

    def transform(self, _transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        if self.fails is not None:
            raise self.fails
        return [self._transform(request.part) for request in requests]

    def _transform(self, part: UntransformedPart) -> TransformedPart:
        records = [
            record
            for batch in decode_batches(memoryview(part.read()))
            for record in decode_records(batch)
            if part.start <= record.offset < part.end
        ]
        rejected = [
            RejectedRecord(record.offset, 0, None, None, (), "no JSON")
            for record in records
            if record.offset in self.rejects
        ]
        batches: list[RawBatch] = []
        together: list[RawRecord] = []
        for record in records:
            if record.offset in self.rejects and together:
                batches.append(build_raw_batch(together, 0, record.offset))
                together = []
            elif record.offset % 2 == 0 and record.offset not in self.rejects:
                together.append(record)
        if together:
            batches.append(build_raw_batch(together, 0, part.end))
        return TransformedPart(batches, rejected)


class Active:
    """What the thread uses of an active copy."""

    def __init__(self, copy: TransformedCopy, quarantine: Any = None) -> None:
        self.copy, self.quarantine, self.woken, self.hindrance = copy, quarantine, 0, ""
        self.terms = type("Terms", (), {"refused": {}, "compression": None})()

    def wake(self) -> None:
        self.woken += 1

    def room(self) -> None: ...


class Kept:
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def keep(self, _key: PartitionKey, rejected: Sequence[RejectedRecord]) -> None:
        self.offsets += [record.source_offset for record in rejected]


def serve(engine: PlayedEngine, active: Active) -> TransformThread:
    thread = TransformThread(engine)
    thread._thread = object()  # type: ignore[assignment]  # steps are called here
    thread.add(active, TRANSFORM, 1 << 19)  # type: ignore[arg-type]
    return thread


def list_sources(copy: TransformedCopy) -> list[int]:
    return [
        waiting.batch.source_offset(index) for waiting in copy.queue.ready for index in range(waiting.batch.records)
    ]


def test_a_step_transforms_what_waits_and_wakes_the_sender() -> None:
    copy = build_copy()
    active = Active(copy)
    thread = serve(PlayedEngine(), active)
    assert not thread.step()
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert list_sources(copy) == [0, 2, 4, 6, 8]
    assert active.woken == 1
    assert commit(copy) == 10


def test_without_quarantine_a_partition_copies_up_to_the_record_and_halts() -> None:
    copy = build_copy()
    thread = serve(PlayedEngine([6, 9]), Active(copy))
    fetch(copy, build_batch(0, 10), build_batch(10, 10))
    assert thread.step()
    assert list_sources(copy) == [0, 2, 4]
    assert copy.trouble is None
    assert commit(copy) == 6
    assert isinstance(copy.trouble, Halt)
    assert copy.trouble.state == "untransformed"
    assert "offset 6 (and 1 more near it): no JSON" in copy.trouble.error
    assert not thread.step()


def test_with_quarantine_the_record_is_kept_first_and_the_partition_goes_on() -> None:
    copy, kept = build_copy(), Kept()
    thread = serve(PlayedEngine([6, 9]), Active(copy, kept))
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert kept.offsets == [6, 9]
    assert list_sources(copy) == [0, 2, 4, 8]
    assert commit(copy) == 10


def test_while_an_engine_fails_records_wait_and_the_partition_says_why() -> None:
    copy, engine = build_copy(), PlayedEngine(fails=TransformFailed("the cluster is away"))
    active = Active(copy)
    thread = serve(engine, active)
    thread._pause_s = 0.01
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert thread.step()
    assert (copy.trouble, active.hindrance) == (None, "the cluster is away")
    assert list_sources(copy) == []
    assert not copy.lagging
    engine.fails = None
    assert thread.step()
    assert (list_sources(copy), active.hindrance) == ([0, 2, 4, 6, 8], "")


def test_what_only_a_person_can_change_halts_the_partition() -> None:
    copy = build_copy()
    thread = serve(PlayedEngine(fails=TransformFailed("no secret", is_lasting=True)), Active(copy))
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert isinstance(copy.trouble, Halt)
    assert (copy.trouble.state, copy.trouble.error) == ("untransformed", "no secret")


@pytest.mark.parametrize("ended", ["halted", "removed"])
def test_what_comes_after_the_copy_has_ended_is_dropped(ended: str) -> None:
    copy = build_copy()
    fetch(copy, build_batch(0, 10))
    [part] = copy.list_waiting(1 << 20)
    if ended == "halted":
        copy.halt("handed over")
    else:
        copy.waiting.clear()
    assert not copy.take_transformed(part, [build_batch(0, 10)], None, 10)
    assert list_sources(copy) == []


class PlayedSchemas:
    """Knows an id from the second time on that it is asked for; says what `waits` says."""

    def __init__(self, waits: str = "", fails: ClusterError | None = None) -> None:
        self.known: set[int] = set()
        self.waits, self.fails, self.settled = waits, fails, 0

    def list_known(self, _topic: str) -> RecordSchemas:
        writers = {id: WriterSchema(id, "AVRO", "") for id in self.known}
        return RecordSchemas(value=SideSchemas(writers))

    def learn(self, _key: PartitionKey, unknown: Iterable[UnknownSchema], offset: int) -> str:
        if self.fails is not None:
            raise self.fails
        self.known |= {each.id for each in unknown}
        return self.waits

    def settle(self, _topic: str) -> None:
        self.settled += 1


class EngineWithSchemas(PlayedEngine):
    """Needs schema 7 for whatever it transforms."""

    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        found = super().transform(transform, requests)
        return [
            result if 7 in request.schemas.value.writers else result._replace(unknown=SEVEN)
            for result, request in zip(found, requests, strict=True)
        ]


SEVEN = frozenset({UnknownSchema("value", 7)})


def serve_schemas(schemas: PlayedSchemas, copy: TransformedCopy) -> tuple[TransformThread, Active]:
    active = Active(copy)
    thread = TransformThread(EngineWithSchemas())
    thread._thread = object()  # type: ignore[assignment]  # steps are called here
    thread._ending = True  # nothing is waited for
    thread.add(active, TRANSFORM, 1 << 19, schemas)  # type: ignore[arg-type]
    return thread, active


def test_a_schema_that_is_not_known_is_asked_for_and_the_part_is_transformed_then() -> None:
    copy, schemas = build_copy(), PlayedSchemas()
    thread, _ = serve_schemas(schemas, copy)
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert (list_sources(copy), schemas.settled) == ([], 0)
    assert thread.step()
    assert (list_sources(copy), schemas.settled) == ([0, 2, 4, 6, 8], 1)
    assert commit(copy) == 10


class FirstIsUnknown(PlayedEngine):
    """Needs schema 7 for the part that begins at offset 0."""

    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        found = super().transform(transform, requests)
        return [
            result._replace(unknown=SEVEN)
            if request.part.start == 0 and 7 not in request.schemas.value.writers
            else result
            for result, request in zip(found, requests, strict=True)
        ]


@pytest.mark.usefixtures("each_alone")
def test_parts_behind_one_that_waits_for_a_schema_wait_too() -> None:
    """Their results are not those of the part in front of them."""
    copy, schemas = build_copy(), PlayedSchemas()
    thread, _ = serve_schemas(schemas, copy)
    thread.engine = FirstIsUnknown([12])
    fetch(copy, build_batch(0, 10))
    fetch(copy, build_batch(10, 10))
    assert len(copy.list_waiting(1 << 20)) == 2
    assert thread.step()
    assert (list_sources(copy), schemas.settled, copy.refusals.batch) == ([], 0, None)
    assert thread.step()
    assert list_sources(copy) == [0, 2, 4, 6, 8, 10]
    assert commit(copy) == 12


@pytest.mark.usefixtures("each_alone")
def test_a_result_is_only_taken_for_the_part_that_it_is_of() -> None:
    """A refused record has cleared what waited, and an answer under way has brought something else."""
    copy = build_copy()
    fetch(copy, build_batch(0, 10))
    fetch(copy, build_batch(10, 10))
    first, second = copy.list_waiting(1 << 20)
    assert not copy.take_transformed(second, [build_batch(10, 10)], None, 20)
    assert copy.take_transformed(first, [build_batch(0, 10)], None, 10)
    assert commit(copy) == 10
    assert copy.take_transformed(second, [build_batch(10, 10)], None, 20)
    assert commit(copy) == 20


def test_an_error_that_nobody_thought_of_leaves_the_thread_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = build_copy()
    thread = serve(PlayedEngine(), Active(copy))
    fetch(copy, build_batch(0, 10))
    monkeypatch.setattr(TransformThread, "_take", lambda *_: 1 / 0)
    assert thread.step()
    assert isinstance(copy.trouble, Reinspect)
    assert "ZeroDivisionError" in copy.trouble.reason


class SecondCannotBeUsed(PlayedEngine):
    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        found = super().transform(transform, requests)
        return [
            TransformedPart([], [], failed="holds too much") if request.part.start == 10 else result
            for result, request in zip(found, requests, strict=True)
        ]


@pytest.mark.usefixtures("each_alone")
def test_a_part_that_cannot_be_used_halts_its_partition_behind_what_stands_before_it() -> None:
    copy = build_copy()
    thread = serve(SecondCannotBeUsed(), Active(copy, Kept()))
    for first in range(0, 30, 10):
        fetch(copy, build_batch(first, 10))
    assert thread.step()
    assert list_sources(copy) == [0, 2, 4, 6, 8]
    assert commit(copy) == 10
    assert isinstance(copy.trouble, Halt)
    assert "some batch of offsets 10 to 19: holds too much" in copy.trouble.error
    assert not thread.step()


def test_another_partition_comes_first_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for few at a time, and a backlog fills it."""
    monkeypatch.setattr("watershed.replicator.transport.transform_thread._MICRO_BATCH_BYTES", 1)
    copies = [build_copy() for _ in range(3)]
    thread = serve(PlayedEngine(), Active(copies[0]))
    for copy in copies[1:]:
        thread.add(Active(copy), TRANSFORM, 1 << 19)  # type: ignore[arg-type]
    for copy in copies:
        for first in range(0, 50, 10):
            fetch(copy, build_batch(first, 10))
    for _ in copies:
        assert thread.step()
    assert all(copy.queue.ready for copy in copies)


def test_a_schema_that_the_target_lacks_sends_the_partition_back_to_the_inspections() -> None:
    copy = build_copy()
    thread, _ = serve_schemas(PlayedSchemas("schema id 7 is not at the target yet"), copy)
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert copy.trouble == Reinspect("schema id 7 is not at the target yet")
    assert not thread.step()


def test_a_registry_that_does_not_answer_is_told_and_asked_again() -> None:
    copy, schemas = build_copy(), PlayedSchemas(fails=Unreachable("the registry does not answer"))
    thread, active = serve_schemas(schemas, copy)
    fetch(copy, build_batch(0, 10))
    assert thread.step()
    assert (copy.trouble, active.hindrance) == (None, "the registry does not answer")
    schemas.fails = None
    assert thread.step()
    assert thread.step()
    assert (list_sources(copy), active.hindrance) == ([0, 2, 4, 6, 8], "")
