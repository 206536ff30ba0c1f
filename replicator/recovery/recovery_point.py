"""Where to go on: one inspection of both logs and the ledger, judged without I/O.

Follows the docs/research/sequence-numbers.md, §6 (1) and §4 (R1 to R5). The target's log is what counts;
the ledger says which source offset its end stands for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clusters.flow_records import StartPosition
from replicator.batch.header_rewrite import SEQUENCE_SPACE
from replicator.batch.record_batch import RawBatch
from replicator.ledger.ledger_state import LedgerState
from replicator.ledger.offset_map import OffsetMap
from replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PRODUCER_EXPIRY_MARGIN_MS, ProducerIdentity
from replicator.states import Halt, OffsetSpan, Reinspect


@dataclass(frozen=True, slots=True)
class LogInspection:
    """One inspection of the logs. Offsets in records, times in ms.

    tail: the last batch on the target, None when the log is empty; of an aligned partition the last one that holds
    records, however many markers stand behind it. producer: (epoch, last sequence, last record
    time) that the target's leader holds for our producer id, None when it holds nothing. settled: the
    target's end stood still for longer than any request can still be under way; source_settled: the source's end did.
    diverges_at: the first copied source offset that is not the source's any more (KIP-320), None while all are. missed:
    of an aligned partition, the first source record where the target has something else.
    """

    source_id: uuid.UUID
    source_start: int
    source_end: int
    target_id: uuid.UUID
    target_start: int
    target_end: int
    tail: RawBatch | None
    producer: tuple[int, int, int] | None
    now: int
    expiration: int
    settled: bool
    source_settled: bool = False
    diverges_at: int | None = None
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Go on: fetch at `position`, the next record gets `target_end`; `depth` before and after the first answer.

    since, order, note, adopted: see LedgerState. claims: this begins something, and workers have to agree on where.
    alone: nobody else may write under this producer epoch (`replicator.recovery.producer_epochs`). after: the producer
    epoch that it follows, then. newest: time of the newest record that the target's leader remembers us by (ms), -1
    when it holds nothing. Of an aligned partition only: filling, given_up: see LedgerState. goal: how far the filler
    may go now. counted_from: the target offset that has sequence 0 by now, where that is no longer the identity's base.
    """

    identity: ProducerIdentity
    position: int
    target_end: int
    depth: int
    depth_confirmed: int
    since: int = 0
    order: str = ""
    note: str = ""
    claims: bool = False
    alone: bool = False
    after: int = -1
    newest: int = -1
    adopted: str = ""
    filling: bool = False
    goal: int = -1
    given_up: int = -1
    counted_from: int | None = None

    @property
    def numbering(self) -> ProducerIdentity:
        """Who writes, and which target offset would have sequence 0 as things are now."""
        if self.counted_from is None:
            return self.identity
        return ProducerIdentity(self.identity.producer_id, self.identity.epoch, self.counted_from)


def find_recovery_point(
    remembered: LedgerState | None, seen: LogInspection, producer_id: int, start: StartPosition
) -> RecoveryPoint | Halt | Reinspect:
    """Decide how a partition goes on. `start` counts for a partition nobody has copied yet."""
    if remembered is None:
        return _first_time(seen, producer_id, start)
    known = (remembered.source_id, remembered.target_id)
    stop = check_topic_ids(known, seen, lambda: remembered.map.source_position(seen.target_end))
    stop = stop or _foreign_tail(remembered, seen)
    if stop is not None:
        return stop
    identity = remembered.identity
    producer = seen.producer
    if producer is not None and producer[0] > identity.epoch:
        return Reinspect(f"a worker writes with producer epoch {producer[0]}, the ledger says {identity.epoch}")
    if producer is not None and producer[0] < identity.epoch:
        producer = None  # from before an order: it says nothing about what this epoch wrote
    if producer is not None:
        _epoch, last_sequence, _time = producer
        ahead = (identity.base + last_sequence + 1 - seen.target_end) % SEQUENCE_SPACE
        if ahead >= SEQUENCE_SPACE // 2:
            return Halt(
                "duplicated",
                f"the target's log ends at {seen.target_end}, but the broker last saw sequence {last_sequence} "
                f"of a flow that began at {identity.base}",
                target=OffsetSpan(identity.base, seen.target_end),
            )
        if ahead:
            return Reinspect(f"{ahead} records behind offset {seen.target_end} are not replicated yet")
    young = producer is not None and producer[2] + seen.expiration - seen.now > PRODUCER_EXPIRY_MARGIN_MS
    if not young and seen.target_end > identity.base and not seen.settled:
        return Reinspect("the broker may have forgotten our sequence numbers; waiting until nothing is under way")
    position = remembered.map.source_position(seen.target_end)
    lost = check_source_range(position, remembered.map, seen)
    if lost is not None:
        return lost
    return RecoveryPoint(
        identity=identity,
        position=position,
        target_end=seen.target_end,
        depth=MAX_BATCHES_IN_FLIGHT if young else 1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT if young or seen.target_end == identity.base else 1,
        since=remembered.since,
        order=remembered.order,
        note=remembered.note,
        newest=producer[2] if producer is not None else -1,
        adopted=remembered.adopted,
    )


def _first_time(seen: LogInspection, producer_id: int, start: StartPosition) -> RecoveryPoint | Halt:
    if seen.target_end != seen.target_start:
        return Halt(
            "target_foreign_write",
            f"the target partition already holds offsets {seen.target_start} to {seen.target_end - 1}, "
            "and the ledger knows nothing of them",
            target=OffsetSpan(seen.target_start, seen.target_end),
        )
    return RecoveryPoint(
        identity=ProducerIdentity(producer_id, 0, seen.target_end),
        position=find_start_offset(start, seen),
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT,
        claims=True,
    )


class InspectedTopics(Protocol):
    """Which topics an inspection saw, and the source's range."""

    @property
    def source_id(self) -> uuid.UUID:
        """Topic id at the source."""

    @property
    def target_id(self) -> uuid.UUID:
        """Topic id at the target."""

    @property
    def source_start(self) -> int:
        """Log start offset of the source."""

    @property
    def source_end(self) -> int:
        """Last stable offset of the source."""


def find_start_offset(start: StartPosition, seen: InspectedTopics) -> int:
    """The first source offset of a copy. One that has expired is told by the next inspection, which knows the
    position."""
    if isinstance(start, int):
        return start
    return seen.source_start if start == "earliest" else seen.source_end


def check_topic_ids(
    known: tuple[uuid.UUID, uuid.UUID], seen: InspectedTopics, copied_through: Callable[[], int]
) -> Halt | None:
    """Whether a topic is another one than the ledger has (`known`: source id, target id). copied_through: the source
    position that the old one was copied to, asked for only when it is said."""
    source_id, target_id = known
    if seen.target_id != target_id:
        return Halt(
            "target_gone",
            f"the target topic has id {seen.target_id}, the ledger {target_id}",
            expected_id=target_id,
            found_id=seen.target_id,
        )
    if seen.source_id != source_id:
        there = OffsetSpan(seen.source_start, seen.source_end)
        return Halt(
            "source_recreated",
            f"the source topic has id {seen.source_id}, the ledger {source_id}; the old one was copied through "
            f"{copied_through()}, the new one holds offsets {there}",
            source=there,
            expected_id=source_id,
            found_id=seen.source_id,
        )
    return None


def check_tail_producer(tail: RawBatch, identity: ProducerIdentity) -> Halt | None:
    """Whether somebody else wrote the batch, or we under a producer epoch that the ledger does not know."""
    if (tail.producer_id, tail.producer_epoch) == (identity.producer_id, identity.epoch):
        return None
    return Halt(
        "target_foreign_write",
        f"the batch at target offsets {tail.base} to {tail.end - 1} is by producer {tail.producer_id} "
        f"epoch {tail.producer_epoch}, this flow writes as {identity.producer_id} epoch {identity.epoch}",
        target=OffsetSpan(tail.base, tail.end),
    )


def _foreign_tail(remembered: LedgerState, seen: LogInspection) -> Halt | None:
    """The last stored batch must be ours and stand where its sequence number says; of an adopted partition it may be
    the last of what was adopted."""
    identity, tail = remembered.identity, seen.tail
    if tail is not None and remembered.adopted and remembered.map.own and tail.end <= remembered.map.own[0].target:
        return None
    if tail is None or (is_from_older_epoch(tail, identity) and tail.end <= identity.base):
        return None
    extent = OffsetSpan(tail.base, tail.end)
    if is_from_older_epoch(tail, identity):
        return Halt(
            "duplicated",
            f"the batch at target offsets {extent} was sent before the order that made offset {identity.base} the "
            f"beginning of producer epoch {identity.epoch}, and landed after it",
            target=OffsetSpan(identity.base, tail.end),
        )
    other = check_tail_producer(tail, identity)
    if other is not None:
        return other
    if tail.base_sequence != identity.sequence(tail.base):
        return Halt(
            "duplicated",
            f"the batch at target offsets {tail.base} to {tail.end - 1} carries sequence {tail.base_sequence}, "
            f"{identity.sequence(tail.base)} belongs there",
            target=extent,
        )
    return None


def is_from_older_epoch(tail: RawBatch, identity: ProducerIdentity) -> bool:
    """Whether this flow wrote the batch before the order that began the present producer epoch."""
    return tail.producer_id == identity.producer_id and 0 <= tail.producer_epoch < identity.epoch


def check_source_range(position: int, offsets: OffsetMap, seen: LogInspection) -> Halt | Reinspect | None:
    """Check that the source log still holds `position`. None if it does; otherwise the halt (records expired) or the
    reason to inspect again (the log ends below)."""
    if position < seen.source_start:
        lost = OffsetSpan(position, seen.source_start)
        return Halt(
            "source_expired",
            f"source offsets {lost} are gone, at most {lost.end - lost.first} records: the log now starts at "
            f"{seen.source_start}",
            source=lost,
        )
    if seen.diverges_at is not None:
        return _truncated(seen.diverges_at, position, offsets, seen)
    if position > seen.source_end and not seen.source_settled:
        return Reinspect(f"the source's log ends at {seen.source_end}, below {position}: it may still be recovering")
    if position > seen.source_end:
        return _truncated(seen.source_end, position, offsets, seen)
    return None


def _truncated(first: int, position: int, offsets: OffsetMap, seen: LogInspection) -> Halt:
    """`first`: the first source offset that was copied and is not the source's any more."""
    gone, kept = OffsetSpan(first, position), OffsetSpan(offsets.to_target(first, seen.target_end), seen.target_end)
    return Halt(
        "source_truncated",
        f"source offsets {gone} were copied and do not exist there any more (its log now ends at {seen.source_end}); "
        f"target offsets {kept} hold what the source lost",
        source=gone,
        target=kept,
    )
