"""Decides where copying goes on, from one inspection of both logs and from the ledger. Does no I/O.

Implements docs/research/sequence-numbers.md, §6 (1) and §4 (R1 to R5). The end of the target's log decides. The ledger
says which source offset that end stands for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from watershed.clusters.wire.topic_names import is_stand_in_id
from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PRODUCER_EXPIRY_MARGIN_MS, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect

# Where a new copy begins (`replicator.recovery.start_offsets`). An offset: there, whether the log still reaches so far
# or not.
FoundStart = Literal["earliest", "latest"] | int
FORGOTTEN_NUMBERS: Final = (
    "the broker may have forgotten our sequence numbers; waiting until nothing is under way to the target"
)


@dataclass(frozen=True, slots=True)
class LogInspection:
    """One inspection of the logs. Offsets count records. Times are in ms.

    tail: the last batch on the target, None if the log is empty. In an aligned partition: the last batch that holds
    records, also if markers follow it. producer: (epoch, last sequence, time of the last record) that the target's
    leader holds for our producer id; None if it holds nothing. settled: the end of the target's log has not moved for
    longer than any request can be under way. source_settled: the same for the source's log. diverges_at: the first
    copied source offset that the source's log no longer holds as it was copied (KIP-320); None if there is none.
    missed: in an aligned partition, the first source record whose offset holds something else on the target.
    unreplicated: how many records the target's leader holds behind the target's end, where it was asked (one that does
    not tell what it holds of producers); they may be ours.
    source_is_same: whether the source holds the last copied records still; None where they were not compared, as both
    topics have ids, or are not to be had any more (`replicator.recovery.source_comparison`).
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
    source_is_same: bool | None = None
    unreplicated: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Fetch from `position` on, and write the next record at `target_end`.

    depth, depth_confirmed: how many batches may be in flight before and after the first answer. since, order, note,
    adopted: see LedgerState. claims: a new producer epoch begins here, and the ledger must settle where, for all
    workers. alone: no other worker may write under this producer epoch (`replicator.recovery.producer_epochs`). after:
    if so, the older producer epoch that it follows. newest: time (ms) of the newest record in the producer state that
    the target's leader holds for us; -1 if it holds none.

    Of an aligned partition only: filling, given_up: see LedgerState. goal: the offset up to which the log may be filled
    now. counted_from: the target offset that has sequence 0 now, if that is not the identity's base any more.
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
        """The producer identity, with the target offset that would have sequence 0 now as its base."""
        if self.counted_from is None:
            return self.identity
        return ProducerIdentity(self.identity.producer_id, self.identity.epoch, self.counted_from)


def find_recovery_point(
    remembered: LedgerState | None, seen: LogInspection, producer_id: int, start: FoundStart
) -> RecoveryPoint | Halt | Reinspect:
    """Decide how a partition goes on. `start` is used only for a partition that was never copied."""
    if remembered is None:
        return _first_time(seen, producer_id, start)
    known = (remembered.source_id, remembered.target_id)
    stop = check_topic_ids(known, seen, lambda: remembered.map.source_position(seen.target_end))
    stop = stop or _made_anew_without_id(remembered, seen) or _foreign_tail(remembered, seen)
    stop = stop or check_last_copied(seen, lambda: remembered.map.source_position(seen.target_end))
    stop = stop or _check_replicated(seen)
    if stop is not None:
        return stop
    identity = remembered.identity
    producer = seen.producer
    if producer is not None and producer[0] > identity.epoch:
        return Reinspect(f"a worker writes with producer epoch {producer[0]}, the ledger says {identity.epoch}")
    if producer is not None and producer[0] < identity.epoch:
        producer = None  # the state of an older epoch: it says nothing about what this epoch wrote
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
    offsets = remembered.map
    if not young and seen.target_end > identity.base and not seen.settled:
        pending = foresee_halt(lambda: check_source_range(offsets.source_position(seen.target_end), offsets, seen))
        return Reinspect(FORGOTTEN_NUMBERS, pending=pending)
    position = offsets.source_position(seen.target_end)
    lost = check_source_range(position, offsets, seen)
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


def _check_replicated(seen: LogInspection) -> Reinspect | None:
    """Check that the target's followers hold all that its leader holds, which may be ours. None if so."""
    if not seen.unreplicated:
        return None
    return Reinspect(f"{seen.unreplicated} records behind offset {seen.target_end} are not replicated yet")


def _first_time(seen: LogInspection, producer_id: int, start: FoundStart) -> RecoveryPoint | Halt | Reinspect:
    if seen.target_end != seen.target_start:
        return Halt(
            "target_foreign_write",
            f"the target partition already holds offsets {seen.target_start} to {seen.target_end - 1}, "
            "and the ledger knows nothing of them",
            target=OffsetSpan(seen.target_start, seen.target_end),
        )
    return _check_replicated(seen) or RecoveryPoint(
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

    @property
    def diverges_at(self) -> int | None:
        """The first copied source offset that the source does not hold any more as it was copied (KIP-320)."""

    @property
    def source_is_same(self) -> bool | None:
        """Whether the source holds the last copied records still; None: not compared, or not to be told."""


def find_start_offset(start: FoundStart, seen: InspectedTopics) -> int:
    """The source offset where a new copy begins. If it has expired, the next inspection reports that, because it then
    knows the position."""
    if isinstance(start, int):
        return start
    return seen.source_start if start == "earliest" else seen.source_end


def check_topic_ids(
    known: tuple[uuid.UUID, uuid.UUID], seen: InspectedTopics, copied_through: Callable[[], int]
) -> Halt | Reinspect | None:
    """Check that both topics have the topic ids that the ledger holds (`known`: source id, target id). None if so, and
    where an id of the ledger stands in for one that the topic did not have.

    copied_through: gives the source offset up to which the old topic was copied; called only for the error text.
    """
    source_id, target_id = known
    for end, had, has in (("target", target_id, seen.target_id), ("source", source_id, seen.source_id)):
        if is_stand_in_id(has) and not is_stand_in_id(had):
            return Reinspect(f"the {end} topic had id {had}, and the broker that was asked gives topics no ids")
    if not is_same_topic(target_id, seen.target_id):
        return Halt(
            "target_gone",
            f"the target topic has id {seen.target_id}, the ledger {target_id}",
            expected_id=target_id,
            found_id=seen.target_id,
        )
    if is_same_topic(source_id, seen.source_id):
        return None
    there = OffsetSpan(seen.source_start, seen.source_end)
    return Halt(
        "source_recreated",
        f"the source topic has id {seen.source_id}, the ledger {source_id}; the old one was copied through "
        f"{copied_through()}, the new one holds offsets {there}",
        source=there,
        expected_id=source_id,
        found_id=seen.source_id,
    )


def is_same_topic(known: uuid.UUID, seen: uuid.UUID) -> bool:
    """Whether a topic may be the one whose id the ledger has: it has that id, or the ledger has a stand-in and the
    brokers give ids since (they were upgraded). The records tell more (`check_last_copied`, `check_tail_producer`)."""
    return seen == known or (is_stand_in_id(known) and not is_stand_in_id(seen))


def check_last_copied(seen: InspectedTopics, copied_through: Callable[[], int]) -> Halt | None:
    """Check that a source without topic ids holds what was copied last. None if so, and where it cannot be told. To be
    asked when the target's log is known to be ours. copied_through: see `check_topic_ids`."""
    if seen.source_is_same is not False or seen.diverges_at is not None:  # where it diverges, it was cut
        return None
    there = OffsetSpan(seen.source_start, seen.source_end)
    return Halt(
        "source_recreated",
        "the source holds other records than were copied last, at the same offsets: the topic was deleted and created "
        "again, or its log was cut and has grown again (its brokers gave topics no ids to tell). The old one was "
        f"copied through {copied_through()}, the new one holds offsets {there}",
        source=there,
        found_id=seen.source_id,
    )


def check_tail_producer(tail: RawBatch, identity: ProducerIdentity) -> Halt | None:
    """Halt if somebody else wrote the batch, or this flow under a producer epoch that the ledger does not know."""
    if (tail.producer_id, tail.producer_epoch) == (identity.producer_id, identity.epoch):
        return None
    return Halt(
        "target_foreign_write",
        f"the batch at target offsets {tail.base} to {tail.end - 1} is by producer {tail.producer_id} "
        f"epoch {tail.producer_epoch}, this flow writes as {identity.producer_id} epoch {identity.epoch}",
        target=OffsetSpan(tail.base, tail.end),
    )


def _made_anew_without_id(remembered: LedgerState, seen: LogInspection) -> Halt | None:
    """A target topic that had no id, and whose log cannot be the one that was written to: it is empty and begins at 0,
    or it ends lower than a takeover saw it while nothing but what another tool copied stands in it. Retention leaves
    the end where it was. Of other logs the last batch tells whose they are."""
    own = remembered.map.own
    is_behind = bool(remembered.adopted and own) and seen.target_end <= own[0].target
    if seen.target_end and not is_behind:
        return None
    if seen.target_end >= remembered.stood_at or not is_stand_in_id(remembered.target_id):
        return None
    there = f"ends at {seen.target_end}" if seen.target_end else "is empty and begins at 0"
    return Halt(
        "target_gone",
        f"the target's log {there}, and it ended at {remembered.stood_at} once: the topic was deleted "
        "and created again, or lost its records (its brokers gave topics no ids to tell)",
        expected_id=remembered.target_id,
        found_id=seen.target_id,
    )


def _foreign_tail(remembered: LedgerState, seen: LogInspection) -> Halt | None:
    """Check that this flow wrote the last batch of the target, and that its sequence number fits its offset.

    In an adopted partition, the last batch may also be the last of the adopted ones.
    """
    identity, tail = remembered.identity, seen.tail
    if tail is not None and remembered.adopted and remembered.map.own and tail.end <= remembered.map.own[0].target:
        return None
    if tail is None or (is_from_older_epoch(tail, identity) and tail.end <= identity.base):
        return None
    extent = OffsetSpan(tail.base, tail.end)
    if is_from_older_epoch(tail, identity):
        return Halt(
            "duplicated",
            f"the batch at target offsets {extent} was sent before producer epoch {identity.epoch} "
            f"began at offset {identity.base}, and landed after it",
            target=OffsetSpan(identity.base, tail.end),
        )
    other = check_tail_producer(tail, identity)
    if other is not None:
        return other
    if tail.base_sequence != identity.sequence(tail.base):
        return Halt(
            "duplicated",
            f"the batch at target offsets {tail.base} to {tail.end - 1} carries sequence {tail.base_sequence}, "
            f"but sequence {identity.sequence(tail.base)} belongs there",
            target=extent,
        )
    return None


def is_from_older_epoch(tail: RawBatch, identity: ProducerIdentity) -> bool:
    """Whether this flow wrote the batch under an older producer epoch than the present one."""
    return tail.producer_id == identity.producer_id and 0 <= tail.producer_epoch < identity.epoch


def check_source_range(position: int, offsets: OffsetMap, seen: LogInspection) -> Halt | Reinspect | None:
    """Check that the source log still holds `position`. None if it does.

    Otherwise a halt (records expired, or the log was truncated), or a reason to inspect again (the log ends below).
    """
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
    if position <= seen.source_end:
        return None
    if seen.source_settled:
        return _truncated(seen.source_end, position, offsets, seen)
    reason = f"the source's log ends at {seen.source_end}, below {position}: it may still be recovering"
    return Reinspect(reason, pending=foresee_halt(lambda: _truncated(seen.source_end, position, offsets, seen)))


def foresee_halt(find: Callable[[], Halt | Reinspect | None]) -> Halt | None:
    """The halt that `find` would give, while an inspection has to wait before it may halt. None where it gives none,
    and where it raises ReplicatorError: a map that contradicts itself is judged when the wait is over."""
    try:
        found = find()
    except ReplicatorError:
        return None
    return found.pending if isinstance(found, Reinspect) else found


def _truncated(first: int, position: int, offsets: OffsetMap, seen: LogInspection) -> Halt:
    """`first`: the first copied source offset that the source's log does not hold any more."""
    gone, kept = OffsetSpan(first, position), OffsetSpan(offsets.to_target(first, seen.target_end), seen.target_end)
    return Halt(
        "source_truncated",
        f"source offsets {gone} were copied and do not exist there any more (its log now ends at {seen.source_end}); "
        f"target offsets {kept} hold what the source lost",
        source=gone,
        target=kept,
    )
