"""How a partition goes on that is copied in transactions: the ledger, one inspection of both logs, an order; no I/O.

There is less to judge than where sequence numbers count (`replicator.recovery.recovery_point`): the position was
committed with the records, so the target's log is asked for its topic id only, and where it has none, for the record
that was copied last.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from watershed.clusters.flow_records import StartPosition
from watershed.replicator.batch.record_batch import BatchChecksum
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, OffsetRun
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, TransactionPosition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.log_inspection import LeaderLog
from watershed.replicator.recovery.operator_decisions import OperatorDecision, bind_lost_offsets, explain_outgrown_gap
from watershed.replicator.recovery.recovery_point import (
    FoundStart,
    check_last_copied,
    check_topic_ids,
    find_start_offset,
)
from watershed.replicator.recovery.source_comparison import needs_comparison

RecoveryTrouble = Halt | Reinspect


@dataclass(frozen=True, slots=True)
class InspectedRanges:
    """Topic ids and ranges of both logs. source_settled: the source's end stood still for long; target_settled: the
    target's did, asked only where no transaction says what stands there; diverges_at: the first
    copied source offset that is not the source's any more (KIP-320), None while all are; source_is_same, last_batch:
    see `replicator.recovery.source_comparison`."""

    source_id: uuid.UUID
    source_start: int
    source_end: int
    target_id: uuid.UUID
    target_start: int
    target_end: int
    source_settled: bool = False
    diverges_at: int | None = None
    source_is_same: bool | None = None
    target_settled: bool = False
    last_batch: BatchChecksum | None = None

    @staticmethod
    def of(source: LeaderLog, target: LeaderLog, settled: bool) -> InspectedRanges:
        """Take the ranges from both leaders. settled: the end of the source log has not moved for long."""
        return InspectedRanges(
            source.topic_id, source.start, source.end, target.topic_id, target.start, target.end, source_settled=settled
        )

    def parted_at(self, offset: int) -> InspectedRanges:
        """The same ranges, with `diverges_at` set to this source offset."""
        return replace(self, diverges_at=offset)


@dataclass(frozen=True, slots=True)
class TransactionRecoveryPoint:
    """Go on from what is known. begins: the ledger has to be told of it before anything else."""

    known: PositionAndRuns
    begins: bool = False


def find_transaction_recovery_point(
    key: PartitionKey, known: PositionAndRuns | None, ends: InspectedRanges, start: FoundStart
) -> TransactionRecoveryPoint | RecoveryTrouble:
    """What the ledger and the logs say. `start` counts for a partition that nobody has copied yet."""
    if known is None:
        position = find_start_offset(start, ends)
        begun = TransactionPosition(key, ends.source_id, ends.target_id, OffsetRun(ends.target_end, position), position)
        return TransactionRecoveryPoint(PositionAndRuns(begun), begins=True)
    at, offsets = known.position, known.map
    if isinstance(offsets, BrokenOffsetMap):
        return _recreated(at, ends) or Halt("duplicated", offsets.error)
    trouble = (
        _recreated(at, ends)
        or _target_range(at, ends)
        or _check_target_records(at, ends)
        or check_last_copied(ends, lambda: at.position)
        or _source_range(known, ends)
    )
    if trouble is not None:
        return trouble
    if (at.source_id, at.target_id) == (ends.source_id, ends.target_id):
        return TransactionRecoveryPoint(known)
    upgraded = replace(at, source_id=ends.source_id, target_id=ends.target_id)  # brokers give topics ids now
    return TransactionRecoveryPoint(replace(known, position=upgraded), begins=True)


def apply_transaction_decision(
    decision: OperatorDecision,
    outcome: TransactionRecoveryPoint | RecoveryTrouble,
    known: PositionAndRuns,
    ends: InspectedRanges,
    start: StartPosition,
) -> TransactionRecoveryPoint | RecoveryTrouble:
    """Apply an operator decision to `outcome`. Returns it unchanged if the decision was applied before or nothing is
    halted; if the decision does not fit, the error of the halt says why. See operator decisions
    (replicator.recovery.operator_decisions): nothing new, when it was obeyed before or there is nothing left to obey; a
    refused order is said in the error."""
    at = known.position
    if decision.id == at.order:
        return outcome
    if isinstance(outcome, Reinspect) and outcome.halts_as == decision.state == "target_gone":
        outcome = Halt("target_gone", outcome.reason)  # as the person saw it who decided
    if not isinstance(outcome, Halt):
        return outcome
    why_not = _explain_unfit(decision, outcome, at, ends)
    if why_not:
        reason = f"{decision.kind} {decision.id} of {decision.actor} is refused: {why_not}"
        return replace(outcome, error=f"{outcome.error}; {reason}")
    decision = bind_lost_offsets(decision, outcome)
    noted = replace(at, generation=at.generation + 1, order=decision.id, note=decision.note)
    if decision.kind == "accept-gap" and decision.lost is not None:
        gone_on = replace(noted, position=decision.lost.end, leader_epoch=-1)
        return TransactionRecoveryPoint(replace(known, position=gone_on), begins=True)
    source = at.begin.source if start != "earliest" and ends.source_id == at.source_id else ends.source_start
    source = min(max(source, ends.source_start), ends.source_end)
    afresh = replace(
        noted,
        source_id=ends.source_id,
        target_id=ends.target_id,
        begin=OffsetRun(ends.target_end, source),
        position=source,
        leader_epoch=-1,
        block=at.block + 1,
        stretches=(),
        since=at.block + 1,
        filled=0,
    )
    # With repeats a frozen worker may still name the blocks before: they go when they are old enough.
    given_up = map(at.name_block, known.blocks) if at.log is None else ()
    return TransactionRecoveryPoint(PositionAndRuns(afresh, {}, tuple(sorted({*given_up, *known.stale}))), begins=True)


def _explain_unfit(decision: OperatorDecision, outcome: Halt, at: TransactionPosition, ends: InspectedRanges) -> str:
    """Why the order does not answer what is there; empty when it does."""
    if decision.generation != at.generation:
        return (
            f"it answers generation {decision.generation} of the ledger, the newest is {at.generation}; give it again"
        )
    if decision.kind == "accept-gap":
        if outcome.state != decision.state:
            return f"it answers {decision.state}"
        return explain_outgrown_gap(decision, outcome.source)
    if ends.target_id != decision.target_id:
        return f"it is for the target topic with id {decision.target_id}, now there is {ends.target_id}; give it again"
    if ends.target_id == at.target_id and ends.target_start != ends.target_end:
        return f"the target still holds offsets {OffsetSpan(ends.target_start, ends.target_end)}; empty it first"
    return ""


def _recreated(at: TransactionPosition, ends: InspectedRanges) -> RecoveryTrouble | None:
    return check_topic_ids((at.source_id, at.target_id), ends, lambda: at.position)


def _target_range(at: TransactionPosition, ends: InspectedRanges) -> RecoveryTrouble | None:
    """What was stored must be there still: the ledger is another log, and was not truncated with this one."""
    end = at.target_end if at.log is None else max(at.target_end, at.log.known_end)
    if end <= ends.target_end:
        return None
    lost = OffsetSpan(ends.target_end, end)
    why = f"the target's log ends at {lost.first}, but target offsets {lost} were stored"
    if not ends.target_settled:
        return Reinspect(why, "target_gone")
    return Halt("target_gone", why, target=lost, expected_id=at.target_id, found_id=ends.target_id)


def _check_target_records(at: TransactionPosition, ends: InspectedRanges) -> Halt | None:
    """Check that a target without topic ids holds what was copied last. Where the source's id says that it is the same,
    other records are the target's. None if neither end has an id: then `check_last_copied` tells."""
    is_source_known = not needs_comparison(at.source_id, ends.source_id)
    if not is_source_known or ends.source_is_same is not False or ends.diverges_at is not None:
        return None
    return Halt(
        "target_gone",
        f"the target holds other records below offset {at.target_end} than were copied there last: the topic was "
        "deleted and created again, or its log was cut and has grown again (its brokers gave topics no ids to tell)",
        target=OffsetSpan(ends.target_start, ends.target_end),
        expected_id=at.target_id,
        found_id=ends.target_id,
    )


def _source_range(known: PositionAndRuns, ends: InspectedRanges) -> RecoveryTrouble | None:
    position = known.position.position
    if position < ends.source_start:
        lost = OffsetSpan(position, ends.source_start)
        return Halt(
            "source_expired",
            f"source offsets {lost} are gone, at most {lost.end - lost.first} records: the log now starts at "
            f"{ends.source_start}",
            source=lost,
        )
    if ends.diverges_at is not None:
        return _truncated(ends.diverges_at, known, ends)
    if position <= ends.source_end:
        return None
    truncated = _truncated(ends.source_end, known, ends)
    if ends.source_settled:
        return truncated
    reason = f"the source's log ends at {ends.source_end}, below {position}: it may still be recovering"
    return Reinspect(reason, pending=truncated)


def _truncated(first: int, known: PositionAndRuns, ends: InspectedRanges) -> Halt:
    """`first`: the first source offset that was copied and is not the source's any more."""
    gone = OffsetSpan(first, known.position.position)
    kept = OffsetSpan(known.map.to_target(first, ends.target_end), known.position.target_end)
    return Halt(
        "source_truncated",
        f"source offsets {gone} were copied and do not exist there any more (its log now ends at {ends.source_end}); "
        f"between target offsets {kept} stands what the source lost",
        source=gone,
        target=kept,
    )
