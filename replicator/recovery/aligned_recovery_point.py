"""Where an aligned partition goes on: one inspection of both logs and the ledger, judged without I/O.

The target's log end is the source position. What the ledger adds is who writes, which topics these are, and which of
the two phases the partition is in: *filling* (nothing but filler was written, under the producer epoch that the ledger
names so) or *copying*, which begins with the next epoch, sequence 0 and an empty log that begins where the source's
does. Which target offset has sequence 0 moves with every gap, because markers have no sequence numbers; it follows from
the newest batch of ours on the target, which holds both its offset and its sequence.

How many workers filled, and what of theirs is still under way, does not matter: the last offset of a fill is a marker
that fences all filler before it (`replicator.copy.aligned.empty_log_filler`).
"""

from __future__ import annotations

from dataclasses import replace

from watershed.replicator.batch.filler_batch import is_filler_batch
from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PRODUCER_EXPIRY_MARGIN_MS, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.producer_epochs import find_unused_epoch
from watershed.replicator.recovery.recovery_point import (
    FORGOTTEN_NUMBERS,
    LogInspection,
    RecoveryPoint,
    check_last_copied,
    check_source_range,
    check_tail_producer,
    check_topic_ids,
    foresee_halt,
    is_from_older_epoch,
)


def find_aligned_recovery_point(
    remembered: LedgerState | None, seen: LogInspection, producer_id: int
) -> RecoveryPoint | Halt | Reinspect:
    """Decide how an aligned partition goes on; see `replicator.recovery.recovery_point.find_recovery_point`."""
    if remembered is None:
        return _first_time(seen, producer_id)
    known = (remembered.source_id, remembered.target_id)
    stop = check_topic_ids(known, seen, lambda: seen.target_end)
    stop = stop or _translated(remembered, seen) or check_last_copied(seen, lambda: seen.target_end)
    if stop is not None:
        return stop
    return _filled(remembered, seen) if remembered.filling else _copied(remembered, seen)


def begin_with_filling(outcome: RecoveryPoint, seen: LogInspection) -> RecoveryPoint | Halt:
    """A copy that begins anew by an order (`outcome`), with equal offsets: its log has to be filled first."""
    if outcome.position < seen.target_end:
        return Halt(
            "target_gone",
            f"the empty target partition goes on at offset {seen.target_end}, but the source's log begins at "
            f"{outcome.position}, and its records have to keep their offsets: delete the target topic and create it "
            "again, which begins at 0",
            source=OffsetSpan(outcome.position, seen.source_end),
            target=OffsetSpan(seen.target_start, seen.target_end),
            found_id=seen.target_id,
        )
    if outcome.position == seen.target_end:
        return outcome
    return replace(outcome, position=seen.target_end, filling=True, goal=outcome.position)


def _first_time(seen: LogInspection, producer_id: int) -> RecoveryPoint | Halt:
    if seen.target_end != seen.target_start or seen.target_end > seen.source_start:
        return Halt(
            "target_foreign_write",
            f"the target partition already holds offsets {OffsetSpan(seen.target_start, seen.target_end)}, and "
            f"the ledger "
            f"knows nothing of them; the source's log begins at {seen.source_start}",
            target=OffsetSpan(seen.target_start, seen.target_end),
        )
    begin = RecoveryPoint(
        identity=ProducerIdentity(producer_id, 0, seen.target_end),
        position=seen.source_start,
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT,
        claims=True,
    )
    outcome = begin_with_filling(begin, seen)
    assert isinstance(outcome, RecoveryPoint), "the target's end was compared above"
    return outcome


def _filled(remembered: LedgerState, seen: LogInspection) -> RecoveryPoint | Halt:
    """Nothing but filler stands on the target, or stood there."""
    end, goal = seen.target_end, seen.source_start
    if seen.tail is not None and not is_filler_batch(seen.tail):
        return Halt(
            "target_foreign_write",
            f"the batch at target offsets {OffsetSpan(seen.tail.base, seen.tail.end)} is no filler (producer "
            f"{seen.tail.producer_id}), and nothing was copied there yet",
            target=OffsetSpan(seen.tail.base, seen.tail.end),
        )
    if end > goal:
        return Halt(
            "duplicated",
            f"the target's log was filled up to offset {end}, behind the source's first offset {goal}",
            source=OffsetSpan(goal, end),
            target=OffsetSpan(goal, end),
        )
    if end == goal and seen.target_start == end:
        return _begun(remembered, seen)
    return RecoveryPoint(
        identity=remembered.identity,
        position=end,
        target_end=end,
        depth=1,
        depth_confirmed=1,
        since=remembered.since,
        order=remembered.order,
        note=remembered.note,
        filling=True,
        goal=goal,
    )


def _begun(remembered: LedgerState, seen: LogInspection) -> RecoveryPoint | Halt:
    """The filler is gone again, and the target's log begins and ends where the source's begins."""
    epoch = find_unused_epoch(remembered)
    if isinstance(epoch, Halt):
        return epoch
    return RecoveryPoint(
        identity=ProducerIdentity(remembered.identity.producer_id, epoch, seen.target_end),
        position=seen.target_end,
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT,
        since=epoch,
        order=remembered.order,
        note=remembered.note,
        claims=True,
    )


def _filled_further(remembered: LedgerState, seen: LogInspection) -> RecoveryPoint | Halt | Reinspect:
    """The source's log start moved on between the fill and the first batch: nothing was copied, and nothing is lost."""
    if not seen.settled:
        return Reinspect(
            "the source's log start moved on before anything was copied; waiting until nothing is under way"
        )
    epoch = find_unused_epoch(remembered)
    if isinstance(epoch, Halt):
        return epoch
    end = seen.target_end
    return RecoveryPoint(
        identity=ProducerIdentity(remembered.identity.producer_id, epoch, end),
        position=end,
        target_end=end,
        depth=1,
        depth_confirmed=1,
        since=epoch,
        order=remembered.order,
        note=remembered.note,
        claims=True,
        filling=True,
        goal=seen.source_start,
    )


_LastWrite = tuple[int, int, int]  # producer epoch, last sequence and its time (ms), as the broker remembers them


def _copied(remembered: LedgerState, seen: LogInspection) -> RecoveryPoint | Halt | Reinspect:
    """Where the next source record comes from and gets to: the end of the target's log, if that log is ours."""
    identity, end = remembered.identity, seen.target_end
    trouble = _check_tail(identity, seen)
    if trouble is not None:
        return trouble
    producer = seen.producer
    if producer is not None and producer[0] > identity.epoch:
        return Reinspect(f"a worker writes with producer epoch {producer[0]}, the ledger says {identity.epoch}")
    if producer is not None and producer[0] < identity.epoch:
        producer = None  # from before: it says nothing about what this epoch wrote
    ours = seen.tail is not None and not is_from_older_epoch(seen.tail, identity)
    counted_from = _find_sequence_base(identity, seen, producer) if ours else _count_without_tail(seen, producer)
    if not isinstance(counted_from, int):
        return counted_from
    young = producer is not None and producer[2] + seen.expiration - seen.now > PRODUCER_EXPIRY_MARGIN_MS
    # As at the very beginning: whose first batch comes first, makes the broker know our numbers.
    untouched = not ours and producer is None and seen.target_start <= identity.base
    position = max(end, remembered.given_up)
    if not young and not untouched and not seen.settled:
        pending = foresee_halt(lambda: check_source_range(position, remembered.map, seen))
        return Reinspect(FORGOTTEN_NUMBERS, pending=pending)
    if untouched and end == seen.target_start == identity.base and position < seen.source_start:
        return _filled_further(remembered, seen)
    lost = check_source_range(position, remembered.map, seen)
    if lost is not None:
        return lost
    return RecoveryPoint(
        identity=identity,
        position=position,
        target_end=end,
        depth=MAX_BATCHES_IN_FLIGHT if young else 1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT if young or untouched else 1,
        since=remembered.since,
        order=remembered.order,
        note=remembered.note,
        newest=producer[2] if producer is not None else -1,
        given_up=remembered.given_up,
        counted_from=counted_from,
    )


def _check_tail(identity: ProducerIdentity, seen: LogInspection) -> Halt | Reinspect | None:
    """The target's log must hold our records, and only gaps behind them."""
    end = seen.target_end
    if end < identity.base:  # the log was inspected before the ledger, and somebody has begun between
        reason = f"the target's log ends at {end}, and producer epoch {identity.epoch} began at {identity.base}"
        return Reinspect(reason, "target_gone")
    stop = _foreign(identity, seen.tail)
    if stop is not None or seen.missed is None:
        return stop
    markers = OffsetSpan(seen.target_start if seen.tail is None else seen.tail.end, end)
    return Halt(
        "target_foreign_write",
        f"target offsets {markers} hold no records, and the source has one at offset {seen.missed} (another "
        "transaction coordinator may have written a marker twice, see docs/offsets.md)",
        source=OffsetSpan(seen.missed, end),
        target=markers,
    )


def _find_sequence_base(
    identity: ProducerIdentity, seen: LogInspection, producer: _LastWrite | None
) -> int | Halt | Reinspect:
    """The target offset that has sequence 0 from now on, where the newest batch with records is of our epoch."""
    assert seen.tail is not None
    first = _counted_from(identity, seen.tail)
    if isinstance(first, Halt):
        return first
    end = seen.target_end
    counted_from = first + end - seen.tail.end  # the offsets behind our last record are those of a gap
    ahead = 0 if producer is None else (producer[1] + 1 - (end - counted_from)) % SEQUENCE_SPACE
    if ahead >= SEQUENCE_SPACE // 2:
        return Halt(
            "duplicated",
            f"the last batch of ours ends at target offset {seen.tail.end}, but the broker last saw sequence "
            f"{producer[1] if producer else -1} of a flow that began at {identity.base}",
            target=OffsetSpan(identity.base, end),
        )
    if ahead:
        return Reinspect(f"{ahead} records behind offset {end} are not replicated yet")
    return counted_from


def _count_without_tail(seen: LogInspection, producer: _LastWrite | None) -> int | Reinspect:
    """The target offset that has sequence 0 from now on, where the log holds no batch of our epoch."""
    if producer is None or producer[1] < 0:
        return seen.target_end  # this epoch wrote nothing: its first batch has sequence 0 wherever the log ends
    if not seen.settled:  # what we wrote is gone (retention), the broker remembers us
        return Reinspect("none of our records is left on the target; waiting until nothing is under way")
    return seen.target_end - (producer[1] + 1)


def _translated(remembered: LedgerState, seen: LogInspection) -> Halt | None:
    """A worker of a version that knows no equal offsets has copied here with translated ones, as the ledger says: the
    log's end is not the source position then, and whoever took it for that would copy records again."""
    offsets, last = remembered.map, seen.target_end - 1
    if not offsets.runs or last < offsets.runs[0].target or (there := offsets.to_source(last)) == last:
        return None
    return Halt(
        "duplicated",
        f"the topic was to get equal offsets, but target offset {last} holds source offset {there}: a worker of an "
        "earlier version has copied it. Stop the workers of that version",
        target=OffsetSpan(offsets.runs[0].target, seen.target_end),
    )


def _foreign(identity: ProducerIdentity, tail: RawBatch | None) -> Halt | None:
    """The newest batch with records must be ours, of this producer epoch, or from before this epoch began."""
    if tail is None:
        return None
    if is_from_older_epoch(tail, identity):
        if tail.end <= identity.base:
            return None
        return Halt(
            "duplicated",
            f"the batch at target offsets {OffsetSpan(tail.base, tail.end)} was sent before producer epoch "
            f"{identity.epoch} "
            f"began at offset {identity.base}, and landed after it",
            target=OffsetSpan(identity.base, tail.end),
        )
    return check_tail_producer(tail, identity)


def _counted_from(identity: ProducerIdentity, tail: RawBatch) -> int | Halt:
    """The target offset that would have sequence 0 if there had been no gap behind it, as the batch at the tail says:
    not below where the epoch began, and not behind the batch, as sequence numbers count no more than offsets do."""
    gaps = (tail.base - tail.base_sequence - identity.base) % SEQUENCE_SPACE
    if identity.base + gaps <= tail.base:
        return identity.base + gaps
    return Halt(
        "duplicated",
        f"the batch at target offsets {OffsetSpan(tail.base, tail.end)} carries sequence {tail.base_sequence}, "
        f"and only "
        f"{tail.base - identity.base} records have room between it and the beginning of its producer epoch at "
        f"{identity.base}",
        target=OffsetSpan(tail.base, tail.end),
    )
