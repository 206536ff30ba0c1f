"""Taking partitions over that are copied without a producer id (`at_least_once, proven`).

The ledger's position may be older than the log, because it is written behind the answers. So the rest of the target's
log is read and compared with the source (`replicator.recovery.tail_comparison`), once nothing can be under way any
more: its end has stood still for longer than a Produce may take. What landed is copied; what stands there once more is
written down as repeated. A batch that lands later than that is found by the next answer, by the next takeover, or by a
proof.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.control_topics import LEDGER_TOPIC, compute_slot
from watershed.clusters.errors import ClusterError, Unauthorised
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED, FetchPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import BatchChecksum, RawBatch, decode_batches
from watershed.replicator.batch.records import decode_records
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.ledger.transaction_positions import (
    LogKnowledge,
    PositionAndRuns,
    PositionTracker,
    SourceSpan,
    build_takeover_entries,
    list_kept_repeats,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.log_inspection import LeaderLog, build_refusal
from watershed.replicator.recovery.position_takeover import InspectedPartition, PositionTakeover, classify_trouble
from watershed.replicator.recovery.tail_comparison import (
    PlacedContent,
    TailBatch,
    TailFindings,
    UnreadRecords,
    compare_tail,
    digest_raw_record,
)
from watershed.replicator.recovery.transaction_recovery_point import RecoveryTrouble, TransactionRecoveryPoint

_FETCH_BYTES: Final = 4 << 20
_PATIENCE_S: Final = 30.0  # for a quota that is used up

LeaveOut = Callable[[ClaimedPartition], Callable[[RawBatch], bool]]


@dataclass(frozen=True, slots=True)
class TakenRepeatablePartition:
    """A partition that can go on: `track` holds its position, which the ledger holds, too. repeated: how many records
    stand at the target once more, as far as the ledger knows."""

    track: PositionTracker
    source: LeaderLog
    target: LeaderLog
    last_batch: BatchChecksum | None = None
    repeated: int = 0

    @property
    def position(self) -> int:
        """The source offset at which copying goes on."""
        return self.track.position.position

    @property
    def target_end(self) -> int:
        """The target offset behind what was copied."""
        return self.track.position.target_end


@dataclass(slots=True)
class RepeatTakeover(PositionTakeover):
    """Decides for partitions of one flow how they go on. leave_out: the flow's loop guard."""

    leave_out: LeaveOut
    ledger: SharedLedger

    def take(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, TakenRepeatablePartition | RecoveryTrouble]:
        """Never raises ClusterError."""
        slots = sorted({_slot(key) for key in keys})
        try:
            ledger = self.ledger.read([self.record.flow.id], slots)
            inspected = self.inspect(list(keys), ledger)
            there = [key for key, seen in inspected.items() if not isinstance(seen, ClusterError)]
            compacted = _find_compacted(there, self.source, self.target)
        except (ClusterError, ReplicatorError) as error:
            return {key: Reinspect(str(error)) for key in keys}
        found: dict[PartitionKey, TakenRepeatablePartition | RecoveryTrouble] = {}
        for key, seen in inspected.items():
            if isinstance(seen, ClusterError):
                found[key] = classify_trouble(seen, self.source.alias)
            elif (halted := ledger.halted(key) or compacted.get(key)) is not None:
                found[key] = halted
            else:
                try:
                    found[key] = self._take_one(key, ledger, seen)
                except (ClusterError, ReplicatorError) as error:
                    found[key] = Reinspect(str(error))
        return found

    def _take_one(
        self, key: PartitionKey, ledger: Ledger, seen: InspectedPartition
    ) -> TakenRepeatablePartition | RecoveryTrouble:
        """Raises ClusterError, ReplicatorError."""
        before = ledger.positions.get(key)
        still = self.stillness.settled(key, "target", seen.ends.target_end, time.monotonic(), seen.target.asked_at)
        ends = replace(seen.ends, target_settled=still)
        if before is None and ends.target_end != ends.target_start:
            return Halt(
                "target_foreign_write",
                f"the target partition already holds offsets {ends.target_start} to {ends.target_end - 1}, "
                "and the ledger knows nothing of them",
                target=OffsetSpan(ends.target_start, ends.target_end),
            )
        outcome = self.judge(key, ledger, ends)
        if before is None:
            if isinstance(outcome, TransactionRecoveryPoint):
                return self._write(key, outcome.known, _find_nothing(outcome.known), seen)
            return outcome
        if before.position.log is None:
            return Reinspect("the ledger knows this partition as copied in transactions")
        if isinstance(outcome, TransactionRecoveryPoint):
            tail = self._find_tail(key, outcome.known, seen, still)
            if isinstance(tail, TailFindings):
                return self._write(key, outcome.known, tail, seen)
            outcome = tail
        return self._obey(key, before, outcome, seen._replace(ends=ends)) if isinstance(outcome, Halt) else outcome

    def _obey(
        self, key: PartitionKey, before: PositionAndRuns, halt: Halt, seen: InspectedPartition
    ) -> TakenRepeatablePartition | RecoveryTrouble:
        """Go on as a person or the flow's policy has decided about a halt; the halt, if nobody has. Raises
        ClusterError, ReplicatorError."""
        answered = self.answer(key, before, halt, seen.ends)
        goes = answered.outcome
        if not isinstance(goes, TransactionRecoveryPoint):
            return goes
        log = before.position.log
        if not seen.ends.target_settled and (log is None or not _is_quiet(log, seen.target)):
            return Reinspect("a halt is answered; waiting until nothing can be under way to the target")
        given_up = goes.known.position.position - before.position.position
        if goes.known.position.since != before.position.since:
            tail: TailFindings | Halt = _find_nothing(goes.known)  # it is copied again, from the beginning
        else:
            tail = self._read_tail(key, goes.known, seen, max(given_up, 0))
        if isinstance(tail, Halt):
            return tail
        return self.journal(answered) or self._write(key, goes.known, tail, seen)

    def _find_tail(
        self, key: PartitionKey, known: PositionAndRuns, seen: InspectedPartition, still: bool
    ) -> TailFindings | RecoveryTrouble:
        """What stands behind the ledger's position. Raises ClusterError, ReplicatorError."""
        log, there, decision = known.position.log, seen.target, self.decisions.get(key)
        if log is None:
            return Reinspect("the ledger knows this partition as copied in transactions")
        if not still and not _is_quiet(log, there):
            # What stands there already stays there, whatever lands behind it: a halt that it shows can be told now.
            found = self._read_tail(key, known, seen)
            return Reinspect(
                "a batch may still be under way to the target; waiting until its log stands still",
                pending=found if isinstance(found, Halt) else None,
            )
        if decision is not None and decision.kind == "reseed" and log.known_end < there.start == there.end:
            deleted = OffsetSpan(log.known_end, there.end)
            halt = Halt(
                "target_foreign_write", f"target offsets {deleted} were deleted before they were read", target=deleted
            )
            if isinstance(self.answer(key, known, halt, seen.ends).outcome, TransactionRecoveryPoint):
                return halt  # it is what the order asked for; one that was obeyed before, or is refused, keeps nobody
        return self._read_tail(key, known, seen)

    def _read_tail(
        self, key: PartitionKey, known: PositionAndRuns, seen: InspectedPartition, given_up: int = 0
    ) -> TailFindings | Halt:
        """given_up: source offsets before the position that an order gave up. Raises ClusterError, ReplicatorError."""
        at, there, here = known.position, seen.target, seen.source
        known_end = at.begin.target if at.log is None else at.log.known_end
        first = max(known_end, there.start)
        if first >= there.end:
            return _find_nothing(known)
        with (
            closing(open_connection(self.source, here.leader)) as at_source,
            closing(open_connection(self.target, there.leader)) as at_target,
        ):
            leave_out = self.leave_out(ClaimedPartition(key.topic, here.topic_id, key.partition))
            source = SourceReader(at_source, key, here, leave_out)
            tail = _read_target(at_target, key, there, first)
            unread = UnreadRecords(first - known_end, given_up)
            return compare_tail(at.position, first, known.takeovers, tail, source, unread)

    def _write(
        self, key: PartitionKey, known: PositionAndRuns, tail: TailFindings, seen: InspectedPartition
    ) -> TakenRepeatablePartition:
        """Tell the ledger before anything is sent. Repeats first: a position that is read has all that it counts.
        Raises ClusterError."""
        at, track = known.position, PositionTracker(known, uuid.uuid4().hex[:8])
        # Behind records of unknown epochs a truncation of the source shows only in its log end, until the next answer.
        epoch = at.leader_epoch if tail.position == at.position else -1
        start = seen.target.start
        entries = build_takeover_entries(known, tail.repeated, SourceSpan(at.position, tail.position), start)
        entries += track.advance(tail.landed, tail.position, epoch, start, LogKnowledge(seen.target.end))
        for name, value in entries:
            self.control.put(LEDGER_TOPIC, name, value, _slot(key))
        track.committed()
        repeated = sum(run.records for run in (*list_kept_repeats(known, start), *tail.repeated))
        return TakenRepeatablePartition(track, seen.source, seen.target, seen.ends.last_batch, repeated)


def _is_quiet(log: LogKnowledge, there: LeaderLog) -> bool:
    """Whether the worker before has ended in good order, and nothing has landed since."""
    return log.settled and log.known_end == there.end


def _find_nothing(known: PositionAndRuns) -> TailFindings:
    return TailFindings((), (), known.position.position)


def _slot(key: PartitionKey) -> int:
    return compute_slot(key.flow, key.topic, key.partition)


def _find_compacted(
    keys: Collection[PartitionKey], source: ConnectionSettings, target: ConnectionSettings
) -> dict[PartitionKey, Halt]:
    """Partitions of compacted topics: a batch that lands late would put an older value in place of a newer one. Where
    a right is missing to read their configs, all of them, because nobody knows. Raises ClusterError."""
    found: dict[PartitionKey, Halt] = {}
    for settings, names in (
        (source, {key: key.topic for key in keys}),
        (target, {key: key.target_topic for key in keys}),
    ):
        try:
            with Admin(settings) as admin:
                configs = admin.effective_configs(sorted(set(names.values())))
        except Unauthorised as error:
            why = (
                "with `at_least_once, proven` a worker has to see that a topic is not compacted. Grant "
                f"DESCRIBE_CONFIGS on the flow's topics at {settings.alias} (`topology acls`): {error}"
            )
            return {key: Halt("unauthorised", why) for key in keys}
        for key, name in names.items():
            if "compact" in configs.get(name, {}).get("cleanup.policy", ""):
                found[key] = Halt(
                    "unsupported",
                    f"topic {name} is compacted at {settings.alias} (cleanup.policy): with `at_least_once, proven` a "
                    "batch that lands late would put an older value in place of a newer one",
                )
    return found


def _read_target(connection: Connection, key: PartitionKey, log: LeaderLog, first: int) -> Iterator[TailBatch]:
    """The batches of the target's log from `first` on; of one that begins below it, the rest. Raises ClusterError,
    ReplicatorError."""
    at = first
    while at < log.end:
        records, _ = _fetch(connection, key.target_topic, key.partition, log, at, READ_UNCOMMITTED)
        for batch in decode_batches(records):
            if batch.end > at and batch.base < log.end:
                yield _build_tail_batch(batch, first)
                at = batch.end


def _build_tail_batch(batch: RawBatch, first: int) -> TailBatch:
    """The records from target offset `first` on."""
    if batch.control:
        return TailBatch(batch.base, batch.end, None)
    records = [record for record in decode_records(batch) if record.offset >= first]
    return TailBatch(max(batch.base, first), batch.end, tuple(map(digest_raw_record, records)))


def _fetch(
    connection: Connection, topic: str, partition: int, log: LeaderLog, at: int, isolation: int
) -> tuple[memoryview, tuple[tuple[int, int], ...]]:
    """At least one batch that stands at `at` or behind it, and the aborted transactions. Raises ClusterError."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        asked = FetchPartition(log.topic_id, partition, at, max_bytes=_FETCH_BYTES)
        answer = fetch_one(connection, asked, isolation=isolation)
        if answer.error:
            raise build_refusal(connection.alias, "Fetch", topic, partition, answer.error)
        if len(answer.records):
            return answer.records, answer.aborted
        if time.monotonic() > deadline:
            raise ClusterError(
                f"cluster {connection.alias} gives nothing of {topic}-{partition} at offset {at}, below its log end",
                alias=connection.alias,
            )
        time.sleep(min(max(connection.throttle_ms, 100), 5_000) / 1000)


@dataclass(slots=True)
class _Stretch:
    """Records of the source that were read in one go; `next` is where reading goes on. refused: a batch stands there
    that this version cannot copy, so no worker has sent it, nor what stands behind it."""

    first: int
    next: int
    refused: bool = False
    records: list[PlacedContent] = field(default_factory=list)


@dataclass(slots=True)
class SourceReader:
    """The source's records as the flow copies them, read when they are asked for and then remembered."""

    connection: Connection
    key: PartitionKey
    log: LeaderLog
    leave_out: Callable[[RawBatch], bool]
    _stretches: list[_Stretch] = field(default_factory=list)

    def read(self, first: int, most: int) -> Sequence[PlacedContent]:
        """The next records at `first` or behind it, at most so many; fewer only where the log ends, or in front of a
        batch that cannot be copied. Raises ClusterError, ReplicatorError."""
        first = max(first, self.log.start)
        stretch = next((each for each in self._stretches if each.first <= first <= each.next), None)
        if stretch is None:
            stretch = _Stretch(first, first)
            self._stretches.append(stretch)
        begin = bisect_left(stretch.records, first, key=lambda record: record.offset)
        while len(stretch.records) - begin < most and stretch.next < self.log.end and not stretch.refused:
            self._extend(stretch)
        return stretch.records[begin : begin + most]

    def _extend(self, stretch: _Stretch) -> None:
        records, aborted = _fetch(
            self.connection, self.key.topic, self.key.partition, self.log, stretch.next, READ_COMMITTED
        )
        selected = select_batches(records, stretch.next, aborted, leave_out=self.leave_out)
        for batch in selected.batches:
            stretch.records += [
                PlacedContent(batch.source_offset(at), digest_raw_record(record))
                for at, record in enumerate(decode_records(batch))
            ]
        stretch.refused = selected.refused is not None
        if selected.position == stretch.next and not stretch.refused:
            raise ReplicatorError(f"{self.key.topic}-{self.key.partition} cannot be read on at {stretch.next}")
        stretch.next = selected.position
