"""Taking partitions over: look at the logs, judge, and write down where we go on. Runs beside the copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from clusters.claim_rules import ClaimedPartition
from clusters.control_topics import LEDGER_TOPIC, ControlWriter, compute_slot
from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flow_records import FlowRecord
from clusters.settings import ConnectionSettings
from replicator.batch.record_batch import RawBatch
from replicator.copy.partition_copy import PartitionKey
from replicator.errors import ReplicatorError
from replicator.ledger.consolidation import consolidate_map
from replicator.ledger.leader_epochs import LeaderEpochEntry
from replicator.ledger.ledger import CLAIM_NUMBER, Generation, Ledger, LedgerBlock, read_blocks, read_ledger
from replicator.ledger.offset_map import OffsetRun
from replicator.recovery.aligned_recovery_point import begin_with_filling, find_aligned_recovery_point
from replicator.recovery.log_inspection import (
    LeaderLog,
    SettledLogEnds,
    find_leaderless_partitions,
    find_log_truncations,
    inspect_logs,
)
from replicator.recovery.operator_decisions import (
    CONTINUING_KINDS,
    OperatorDecision,
    apply_adoption,
    apply_decision,
    bind_lost_offsets,
    build_policy_decision,
    journal_decision_outcome,
    journal_policy_decision,
)
from replicator.recovery.producer_epochs import begin_exclusive_epoch, drop_overtaken_epochs, drop_unlanded_epochs
from replicator.recovery.recovery_point import LedgerState, LogInspection, RecoveryPoint, find_recovery_point
from replicator.states import Halt, Reinspect

Connect = Callable[[str], ConnectionSettings]
LEADER_EPOCHS_KEPT = 32


@dataclass(frozen=True, slots=True)
class TakenPartition:
    """A partition that can go on: `block` is the empty ledger block of its new generation."""

    resume: RecoveryPoint
    source: LeaderLog
    target: LeaderLog
    block: LedgerBlock
    aligned: bool = False

    @property
    def first(self) -> OffsetRun:
        """What the ledger has to hold before anything is written. Of an aligned partition both offsets are the same."""
        end = self.resume.target_end
        return OffsetRun(end, end if self.aligned else self.resume.position)


def take_over_partitions(
    record: FlowRecord,
    keys: Mapping[PartitionKey, int],
    source: ConnectionSettings,
    target: ConnectionSettings,
    expiration_ms: int,
    stillness: SettledLogEnds,
    worker: str,
    writer: ControlWriter,
    orders: Mapping[PartitionKey, OperatorDecision] | None = None,
    aligned: Collection[PartitionKey] = (),
    guard: Callable[[ClaimedPartition], Callable[[RawBatch], bool]] = lambda _where: lambda _batch: False,
) -> dict[PartitionKey, TakenPartition | Halt | Reinspect]:
    """Decide for partitions of one flow (with their slots) how they go on; `orders` are what persons decided about
    some of them, `aligned` are those whose records keep their offsets, `guard` is the flow's loop guard. Never
    raises ClusterError."""
    if record.producer_id is None:
        told = f"flow {record.flow.id} has no producer id; run `topology apply` again"
        return {key: Reinspect(told) for key in keys}
    try:
        absent = find_leaderless_partitions(target, LEDGER_TOPIC, keys.values())
    except ClusterError as error:
        return {key: Reinspect(str(error)) for key in keys}
    waiting: dict[PartitionKey, TakenPartition | Halt | Reinspect] = {
        key: Reinspect(f"partition {slot} of {LEDGER_TOPIC} has no leader")
        for key, slot in keys.items()
        if slot in absent
    }
    keys = {key: slot for key, slot in keys.items() if slot not in absent}
    if not keys:
        return waiting
    slots = sorted(set(keys.values()))
    try:
        looked = inspect_logs(keys, source, target, record.producer_id, expiration_ms, stillness, aligned, guard)
        # Read after the look: whatever wrote the records that were seen had announced them before.
        ledger = read_ledger(target, flow=record.flow.id, slots=slots, tolerant=True)
        parted = find_log_truncations(source, _copied(ledger, looked))
    except (ClusterError, ReplicatorError) as error:
        return waiting | {key: Reinspect(str(error)) for key in keys}
    known = {key: ledger.remembered(key) for key in keys}
    judge = _Judge(record, writer, orders or {}, worker, frozenset(aligned))
    taken: dict[PartitionKey, TakenPartition | Halt | Reinspect] = {}
    for key, found in looked.items():
        if isinstance(found, ClusterError):
            taken[key] = _trouble(found, source.alias)
            continue
        if (halted := ledger.halted(key)) is not None:
            taken[key] = halted
            continue
        seen, at_source, at_target = found
        if record.flow.rejected == "quarantine":  # a record that was left out is the source's, and a gap at the target
            seen = replace(seen, missed=None)
        remembered, generation = known[key]
        if key not in aligned:  # there, gaps of the newer epoch may have shifted the older one's batch
            remembered = drop_overtaken_epochs(remembered, seen)
        decided = judge.decided(key, remembered, generation, replace(seen, diverges_at=parted.get(key)))
        decided = begin_exclusive_epoch(decided, remembered, seen)
        if not isinstance(decided, RecoveryPoint):
            taken[key] = decided
            continue
        try:
            known_landed = None if remembered is None else drop_unlanded_epochs(remembered, seen)
            next_one = Generation(generation + 1, worker)
            by_tail = seen.tail is not None
            mine = consolidate_map(key, next_one, decided.target_end, known_landed, ledger, writer, told=by_tail)
        except ClusterError as error:
            taken[key] = Reinspect(str(error))
            continue
        block = LedgerBlock(
            key=key,
            generation=mine,
            number=CLAIM_NUMBER + 1,
            start=decided.target_end,
            identity=decided.identity,
            source_id=at_source.topic_id,
            target_id=at_target.topic_id,
            runs=(),
            epochs=_epochs(remembered, decided, at_source),
            since=decided.since,
            order=decided.order,
            note=decided.note,
            needs_epoch=decided.alone,
            after=decided.after,
            adopted=decided.adopted,
            filling=decided.filling,
            given_up=decided.given_up,
        )
        taken[key] = TakenPartition(decided, at_source, at_target, block, aligned=key in aligned)
    beginning = [found for found in taken.values() if isinstance(found, TakenPartition) and found.resume.claims]
    try:
        if beginning:
            taken |= claim_partitions(beginning, target, slots, writer)
    except (ClusterError, ReplicatorError) as error:
        return waiting | {key: Reinspect(str(error)) for key in keys}
    return waiting | taken


@dataclass(frozen=True, slots=True)
class _Judge:
    record: FlowRecord
    writer: ControlWriter
    orders: Mapping[PartitionKey, OperatorDecision]
    worker: str = ""
    aligned: frozenset[PartitionKey] = frozenset()

    def decided(
        self, key: PartitionKey, remembered: LedgerState | None, generation: int, seen: LogInspection
    ) -> RecoveryPoint | Halt | Reinspect:
        """What the logs say, and what was ordered or is the flow's policy."""
        start = self.record.start_of(key.topic, key.partition)
        assert self.record.producer_id is not None
        try:
            if key in self.aligned:
                decided = find_aligned_recovery_point(remembered, seen, self.record.producer_id)
            else:
                decided = find_recovery_point(remembered, seen, self.record.producer_id, start)
        except ReplicatorError as error:  # a map that contradicts itself or the log concerns its partition only
            decided = Reinspect(str(error), "duplicated")
        order = self.orders.get(key)
        if order is not None and order.kind in CONTINUING_KINDS:
            if key not in self.aligned:  # the flow was mapped when the order was given
                decided = apply_adoption(order, decided, remembered, generation, seen, self.record.producer_id)
            elif isinstance(decided, Halt):
                told = f"{order.kind} {order.id} of {order.actor} is refused: this topic has, or gets, equal offsets"
                decided = replace(decided, error=f"{decided.error}; {told}")
            order = None
        if order is not None and isinstance(decided, Reinspect) and decided.halts_as == "duplicated":
            decided = Halt("duplicated", decided.reason)  # as the person saw it who gave the order
        if order is not None:
            before, decided = decided, self._obeyed(key, order, decided, remembered, generation, seen)
            outcome = bind_lost_offsets(order, before)
            obeys = isinstance(decided, RecoveryPoint) and decided.claims and decided.order == order.id
            if obeys and outcome != order:  # otherwise the journal has the exact range from who ordered it
                try:
                    journal_decision_outcome(self.writer, outcome, self.record.topology, generation + 1, self.worker)
                except ClusterError as error:
                    return Reinspect(f"the outcome of an order could not be journaled: {error}")
        if not isinstance(decided, Halt) or decided.state != "source_expired" or self.record.flow.on_gap != "continue":
            return decided
        policy = build_policy_decision(key, decided, generation, int(time.time() * 1000))
        decided = self._obeyed(key, policy, decided, remembered, generation, seen)
        if isinstance(decided, RecoveryPoint):
            try:
                journal_policy_decision(self.writer, policy, self.record.topology)
            except ClusterError as error:
                return Reinspect(f"the decision could not be journaled: {error}")
        return decided

    def _obeyed(
        self,
        key: PartitionKey,
        order: OperatorDecision,
        found: RecoveryPoint | Halt | Reinspect,
        remembered: LedgerState | None,
        generation: int,
        seen: LogInspection,
    ) -> RecoveryPoint | Halt | Reinspect:
        decided = apply_decision(
            order, found, remembered, generation, seen, self.record.start_of(key.topic, key.partition)
        )
        if key not in self.aligned or decided is found or not isinstance(decided, RecoveryPoint):
            return decided
        if order.kind == "accept-gap":  # what was given up is a gap like others, as long as nothing is behind it
            return replace(decided, given_up=decided.position)
        return begin_with_filling(decided, seen)


def _copied(
    ledger: Ledger, looked: Mapping[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog] | ClusterError]
) -> dict[PartitionKey, tuple[LeaderLog, int, tuple[LeaderEpochEntry, ...]]]:
    """Source leader, position and copied leader epochs of the partitions whose topics are still those of the ledger."""
    found: dict[PartitionKey, tuple[LeaderLog, int, tuple[LeaderEpochEntry, ...]]] = {}
    for key, what in looked.items():
        remembered, _ = ledger.remembered(key)
        if isinstance(what, ClusterError) or remembered is None:
            continue
        seen, at_source, _ = what
        remembered = drop_overtaken_epochs(remembered, seen) or remembered
        if (seen.source_id, seen.target_id) != (remembered.source_id, remembered.target_id):
            continue
        try:
            position = remembered.map.source_position(seen.target_end)
        except ReplicatorError:
            continue  # judged with everything else
        if position >= seen.source_start:
            found[key] = at_source, position, remembered.epochs
    return found


def _epochs(remembered: LedgerState | None, decided: RecoveryPoint, source: LeaderLog) -> tuple[LeaderEpochEntry, ...]:
    """The leader epochs that count from here on; the newest EPOCHS_KEPT are enough to find where a log parted."""
    if remembered is not None and decided.order == remembered.order:
        return tuple(entry for entry in remembered.epochs if entry.source <= decided.position)[-LEADER_EPOCHS_KEPT:]
    at = {source.start: source.start_epoch, source.end: source.end_epoch}.get(decided.position, -1)
    return (LeaderEpochEntry(decided.position, at),) if at >= 0 else ()


def claim_partitions(
    candidates: list[TakenPartition], target: ConnectionSettings, slots: list[int], writer: ControlWriter
) -> dict[PartitionKey, TakenPartition | Reinspect]:
    """Agree on where a partition begins. Two workers may look for the first time at once and find other starts
    (`start: latest`, retention); so do two that obey one order. Both write a claim, the first one in the ledger counts,
    the other withdraws."""
    claims: dict[PartitionKey, LedgerBlock] = {}
    for found in candidates:
        claims[found.block.key] = replace(found.block, number=CLAIM_NUMBER, runs=(found.first,))
    failures: list[ClusterError] = []  # of these records: a flush would also raise those of other threads

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for key, claim in claims.items():
        slot = compute_slot(key.flow, key.topic, key.partition)
        writer.put_nowait(LEDGER_TOPIC, claim.record_key, claim.to_json(), slot, on_done=done)
    writer.flush()
    if failures:
        raise failures[0]
    first_claim = dict(claims)
    later: set[PartitionKey] = set()  # the ledger has gone on since we read it: our claim comes too late
    for block in read_blocks(target, slots=slots):
        if block.key not in claims:
            continue
        claim, before = claims[block.key], first_claim[block.key]
        if (block.identity.epoch, block.generation.number) > (claim.identity.epoch, claim.generation.number):
            later.add(block.key)
        elif (block.number, block.identity.epoch) == (
            CLAIM_NUMBER,
            claim.identity.epoch,
        ) and not 0 <= before.at < block.at:
            first_claim[block.key] = block
    decided: dict[PartitionKey, TakenPartition | Reinspect] = {}
    for found in candidates:
        key = found.block.key
        first = first_claim[key]
        if first.generation == found.block.generation and key not in later:
            decided[key] = found
        else:
            slot = compute_slot(key.flow, key.topic, key.partition)
            writer.put_nowait(LEDGER_TOPIC, claims[key].record_key, None, slot, on_done=done)
            decided[key] = Reinspect(f"worker {first.generation.worker} was first to begin this partition")
    writer.flush()
    return decided


def _trouble(error: ClusterError, source_alias: str) -> Halt | Reinspect:
    if isinstance(error, TopicMissing):
        # A broker that has not heard of a new topic yet says the same.
        return Reinspect(str(error), "source_gone" if error.alias == source_alias else "target_gone")
    if isinstance(error, Unauthorised):
        return Halt("unauthorised", str(error))
    return Reinspect(str(error))
