"""Workers that copy without a producer id, in memory: real copies, real ledger records, logs as lists of batches.

The network may keep a request for as long as it likes, and hand it over long after its worker is gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.replicator.build import GZIP, abort, answer, commit, data, transactional
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.replicator.batch.records import decode_records
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import OutgoingBatch
from watershed.replicator.copy.repeatable_copy import RepeatableCopy
from watershed.replicator.ledger.claims_follower import ClaimsView
from watershed.replicator.ledger.explicit_runs import RepeatedRunMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.position_writer import PositionWriter
from watershed.replicator.ledger.transaction_positions import (
    LogKnowledge,
    PositionAndRuns,
    PositionTracker,
    SourceSpan,
    TransactionPosition,
    build_takeover_entries,
    decode_positions,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.tail_comparison import PlacedContent, TailBatch, compare_tail, digest_raw_record

KEY = PartitionKey("a-to-b", "orders", "orders", 0)
IDS = uuid.UUID(int=1), uuid.UUID(int=2)
ONE_BY_ONE = RepackTerms(small=0)
GZIPPED = RepackTerms(small=0, compression=GZIP)


def build_source(shape: Sequence[int], every: int = 4) -> list[bytes]:
    """Batches of so many records; every fourth (or so) one is a transaction, every other of those is aborted."""
    found: list[bytes] = []
    at = 0
    for number, count in enumerate(shape):
        if number % every == every - 1:
            gone = number % (2 * every) == 2 * every - 1
            producer = 9 + number
            found += [transactional(at, count, producer), (abort if gone else commit)(at + count, producer)]
            at += count + 1
        else:
            found.append(data(at, count))
            at += count
    return found


@dataclass
class Source:
    """The source's log, and its records as a flow copies them."""

    batches: list[bytes]
    records: list[PlacedContent] = field(init=False)
    aborted: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        raw = list(decode_batches(answer(*self.batches)))
        markers = {batch.base for batch in raw if batch.control}
        gone = [each for at, each in enumerate(raw) if each.transactional and not each.control and _is_abort(raw, at)]
        self.aborted = tuple((each.producer_id, each.base) for each in gone)
        dropped = {each.base for each in gone} | markers
        self.records = [
            PlacedContent(record.offset, digest_raw_record(record))
            for batch in raw
            if batch.base not in dropped
            for record in decode_records(batch)
        ]

    @property
    def end(self) -> int:
        return list(decode_batches(answer(*self.batches)))[-1].end

    def read(self, first: int, most: int) -> Sequence[PlacedContent]:
        return [record for record in self.records if record.offset >= first][:most]

    def fetch(self, position: int, batches: int) -> memoryview:
        """So many batches, from the one that holds `position` on."""
        wanted = [each for each in self.batches if next(iter(decode_batches(answer(each)))).end > position]
        return answer(*wanted[:batches])


def _is_abort(raw: list[RawBatch], at: int) -> bool:
    marker = raw[at + 1]
    return marker.control and bytes(marker.data) == abort(marker.base, marker.producer_id)


@dataclass
class Sent:
    """A request on its way; `worker` hears its answer while it lives."""

    worker: Worker
    outgoing: OutgoingBatch
    copy: RepeatableCopy


@dataclass
class World:
    """The target's log as contents by batch, the ledger's newest records, and what is on its way."""

    source: Source
    target: list[TailBatch] = field(default_factory=list)
    ledger: dict[str, tuple[int, Any]] = field(default_factory=dict)  # offset and value by key
    written: int = 0
    network: list[Sent] = field(default_factory=list)
    halted: Halt | None = None
    takeovers: int = 0
    claims: ClaimsView = field(default_factory=ClaimsView)

    @property
    def end(self) -> int:
        return self.target[-1].end if self.target else 0

    def known(self) -> PositionAndRuns | None:
        records = [ControlRecord(0, at, 0, key, value) for key, (at, value) in self.ledger.items()]
        return decode_positions(records).get(KEY)

    def put(self, key: str, value: Any) -> None:
        self.claims.take(ControlRecord(0, self.written, 0, key, value))
        self.claims.settle(())
        assert not self.claims.unreadable_partitions
        if value is None:
            self.ledger.pop(key, None)
        else:
            self.written += 1
            self.ledger[key] = self.written, value

    def land(self, request: Sent, *, heard: bool = True) -> None:
        """The target stores the batch; its worker hears of it, or loses the connection."""
        self.network.remove(request)
        base, stored = self.end, next(iter(decode_batches(memoryview(b"".join(request.outgoing.pieces)))))
        assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (-1, -1, -1)
        assert not stored.transactional
        contents = tuple(map(digest_raw_record, decode_records(stored)))
        self.target.append(TailBatch(base, base + len(contents), contents))
        if request.worker.copy is request.copy and request.copy.queue.in_flight:
            if heard:
                request.copy.answered(ProducedPartition(IDS[1], 0, error_codes.NONE, base, 0, ""))
            else:
                request.copy.connection_lost("the connection was lost")

    def lose(self, request: Sent) -> None:
        """The connection ends; the request stays on its way."""
        request.copy.connection_lost("the connection was lost")

    def is_claimed(self, run: ExplicitRun) -> bool:
        """Whether the loop guard of a flow onwards finds these target offsets in the ledger, which it reads piece by
        piece."""
        one = next(iter(decode_batches(memoryview(data(run.target, run.records)))))
        return self.claims.covers(ClaimedPartition(KEY.target_topic, IDS[1], 0), one)

    def check(self) -> int:
        """Every record is there, in order but for repeats; the ledger says where each of them stands. Returns how many
        are repeated."""
        assert self.halted is None, self.halted
        known = self.known()
        assert known is not None
        offsets = known.map
        assert isinstance(offsets, RepeatedRunMap)
        stored = {batch.base + at: content for batch in self.target for at, content in enumerate(batch.contents or ())}
        place = {run.source + at: run.target + at for run in offsets.counted for at in range(run.records)}
        assert all(self.is_claimed(run) for run in offsets.counted), "the loop guard knows what is ours"
        repeats = {run.target + at: run.source + at for run in offsets.repeated for at in range(run.records)}
        assert sorted([*place.values(), *repeats]) == sorted(stored), "each target offset is known as one or the other"
        contents = {record.offset: record.content for record in self.source.records}
        assert sorted(place) == sorted(contents), "each record is there"
        assert [place[offset] for offset in sorted(place)] == sorted(place.values()), "in order"
        assert {offset: stored[at] for offset, at in place.items()} == contents
        for at, offset in repeats.items():
            assert stored[at] == contents[offset]
            assert place[offset] < at, "a repeat stands behind the record that it repeats"
        for offset in range(self.source.end):
            reached = offsets.to_target(offset, self.end)
            behind = [there for here, there in place.items() if here >= offset]
            assert reached <= min(behind, default=self.end), "a translated position never skips a record"
        return len(repeats)


class Writer:
    """A control writer whose records wait until they are let through."""

    def __init__(self, world: World) -> None:
        self.world, self.waiting = world, []

    def put_nowait(self, topic: str, key: str, value: Any, slot: int, on_done: Callable[[Any, int], None]) -> None:
        self.waiting.append((key, value, on_done))

    def let_through(self) -> bool:
        """One record; False if none waits."""
        if not self.waiting:
            return False
        key, value, on_done = self.waiting.pop(0)
        self.world.put(key, value)
        on_done(None, 0)
        return True


@dataclass
class Worker:
    """One worker process."""

    world: World
    copy: RepeatableCopy | None = None
    positions: PositionWriter | None = None
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(self.world)

    def take_over(self) -> None:
        """As `RepeatTakeover` does, when the target's log has stood still."""
        world, known = self.world, self.world.known()
        if known is None:
            assert not world.target, "nothing is sent before the ledger has a position"
            begun = TransactionPosition(KEY, *IDS, OffsetRun(0, 0), 0)
            known = PositionAndRuns(begun)
            landed, repeated, position = (), (), 0
        else:
            at = known.position
            assert at.log is not None
            tail = [batch for batch in world.target if batch.base >= at.log.known_end]
            found = compare_tail(at.position, at.log.known_end, known.takeovers, tail, world.source)
            if isinstance(found, Halt):
                world.halted = found
                return
            landed, repeated, position = found.landed, found.repeated, found.position
        world.takeovers += 1
        track = PositionTracker(known, f"w{world.takeovers}")
        for key, value in (
            *build_takeover_entries(known, repeated, SourceSpan(known.position.position, position), 0),
            *track.advance(landed, position, -1, 0, LogKnowledge(world.end)),
        ):
            world.put(key, value)
        track.committed()
        self.copy = copy = RepeatableCopy(KEY, *IDS, SourceCursor(position), TargetProgress(world.end))
        self.positions = PositionWriter(
            self.writer, track, copy.take_progress, lambda error: copy.halt(str(error)), lambda todo: todo()
        )

    def fetch(self, batches: int = 3) -> None:
        if self.copy is not None and self.copy.trouble is None:
            at = self.copy.source.position
            fetched = self.world.source.fetch(at, batches)
            terms = GZIPPED if at % 2 else ONE_BY_ONE
            self.copy.accept(select_batches(fetched, at, self.world.source.aborted, terms=terms))

    def send(self) -> Sent | None:
        outgoing = None if self.copy is None else self.copy.next_outgoing()
        if outgoing is None:
            return None
        request = Sent(self, outgoing, self.copy)
        self.world.network.append(request)
        return request

    def retire(self) -> bool:
        """End a copy that is in trouble; True if it ended."""
        if self.copy is None or self.copy.trouble is None or not self.copy.is_idle:
            return False
        assert isinstance(self.copy.trouble, Reinspect), self.copy.trouble
        self.positions.close()
        self.copy = self.positions = None
        return True

    def kill(self) -> None:
        """kill -9: what it sent stays on its way."""
        self.copy = self.positions = None
        self.writer.waiting.clear()

    def finish(self) -> None:
        """Copy everything, undisturbed, and tell the ledger."""
        while self.world.halted is None:
            if self.copy is None:
                self.take_over()
                continue
            self.fetch()
            while (request := self.send()) is not None:
                self.world.land(request)
            if self.retire():
                continue
            if self.copy.source.position >= self.world.source.end and self.copy.queue.is_empty:
                break
        if self.positions is not None:
            self.positions.close()
        while self.writer.let_through():
            pass
