"""Taking partitions over: look at the logs, judge, and write down where we go on. Runs beside the copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.control_topics import LEDGER_TOPIC, ControlWriter, compute_slot
from watershed.clusters.errors import ClusterError, TopicMissing, Unauthorised
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.provenance_header import build_provenance_header
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import READ_UNCOMMITTED
from watershed.replicator.batch.record_batch import BatchChecksum, RawBatch
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.consolidation import consolidate_map
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_block import CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.record_format import FlowPartition
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.aligned_recovery_point import begin_with_filling, find_aligned_recovery_point
from watershed.replicator.recovery.log_inspection import (
    LeaderLog,
    find_leaderless_partitions,
    find_log_truncations,
    inspect_logs,
    read_leader_logs,
)
from watershed.replicator.recovery.operator_decisions import (
    CONTINUING_KINDS,
    OperatorDecision,
    apply_adoption,
    apply_decision,
    bind_lost_offsets,
    build_policy_decision,
    journal_decision_outcome,
    journal_policy_decision,
)
from watershed.replicator.recovery.producer_epochs import (
    begin_exclusive_epoch,
    drop_overtaken_epochs,
    drop_unlanded_epochs,
)
from watershed.replicator.recovery.recovery_point import (
    LogInspection,
    RecoveryPoint,
    find_recovery_point,
    is_same_topic,
)
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.replicator.recovery.source_comparison import (
    NOT_COMPARED,
    LastCopied,
    SourceComparison,
    compare_last_copied,
    needs_comparison,
)
from watershed.replicator.recovery.start_offsets import StartOrTrouble, find_starts
from watershed.replicator.recovery.streams_purge import RecentSkips, choose_gap_decider, drop_answered_halt

LEADER_EPOCHS_KEPT = 32


@dataclass(frozen=True, slots=True)
class TakenPartition:
    """A partition that can go on: `block` is the empty ledger block of its new generation. last_batch: that of the
    source with the last copied record, where it was looked at (`replicator.recovery.source_comparison`)."""

    resume: RecoveryPoint
    source: LeaderLog
    target: LeaderLog
    block: LedgerBlock
    aligned: bool = False
    last_batch: BatchChecksum | None = None

    @property
    def position(self) -> int:
        """The source offset at which copying goes on; -1 while the log has to be filled first."""
        return -1 if self.resume.filling else self.resume.position

    @property
    def target_end(self) -> int:
        """The target offset behind what was copied."""
        return self.resume.target_end

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
    decisions: Mapping[PartitionKey, OperatorDecision] | None = None,
    aligned: Collection[PartitionKey] = (),
    guard: Callable[[ClaimedPartition], Callable[[RawBatch], bool]] = lambda _where: lambda _batch: False,
    shared: SharedLedger | None = None,
) -> dict[PartitionKey, TakenPartition | Halt | Reinspect]:
    """Decide for partitions of one flow (with their slots) how they go on; `decisions` are what persons decided about
    some of them, `aligned` are those whose records keep their offsets, `guard` is the flow's loop guard, `shared` is
    the ledger of the target as others read it now, too. Never raises ClusterError."""
    if record.producer_id is None:
        reason = f"flow {record.flow.id} has no producer id; run `topology apply` again"
        return {key: Reinspect(reason) for key in keys}
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
    slots, shared = sorted(set(keys.values())), shared or SharedLedger(target)
    try:
        inspected = inspect_logs(keys, source, target, record.producer_id, expiration_ms, stillness, aligned, guard)
        # Read after the inspection: whatever wrote the records that were seen had announced them before.
        ledger = shared.read([record.flow.id], slots)
        parted = find_log_truncations(source, _find_copied_positions(ledger, inspected))
        last = _find_last_copied(ledger, inspected, aligned, record)
        compared = compare_last_copied(source, target, last)
        starts = find_starts(record, _select_fresh(ledger, inspected, aligned), source)
    except (ClusterError, ReplicatorError) as error:
        return waiting | {key: Reinspect(str(error)) for key in keys}
    takeover = _Takeover(record, source, writer, decisions or {}, worker, frozenset(aligned), ledger, starts)
    taken = {
        key: _classify_error(inspection, source.alias)
        if isinstance(inspection, ClusterError)
        else _classify_error(difference, source.alias)
        if isinstance(difference := compared.get(key, NOT_COMPARED), ClusterError)
        else takeover.take(key, inspection, parted.get(key), difference)
        for key, inspection in inspected.items()
    }
    try:
        taken |= _find_moved_ends(taken.values(), target)
        beginning = [result for result in taken.values() if isinstance(result, TakenPartition) and result.resume.claims]
        if beginning:
            taken |= claim_partitions(beginning, shared, slots, writer)
    except (ClusterError, ReplicatorError) as error:
        return waiting | {key: Reinspect(str(error)) for key in keys}
    return waiting | taken


def _select_fresh(
    ledger: Ledger,
    inspected: Mapping[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog] | ClusterError],
    aligned: Collection[PartitionKey],
) -> dict[PartitionKey, LeaderLog]:
    """Those that were never copied, with the source's log; aligned ones begin where the source's log does."""
    return {
        key: what[1]
        for key, what in inspected.items()
        if not isinstance(what, ClusterError) and key not in aligned and ledger.remembered(key)[0] is None
    }


def _find_moved_ends(
    taken: Iterable[TakenPartition | Halt | Reinspect], target: ConnectionSettings
) -> dict[PartitionKey, Reinspect]:
    """Partitions that would begin a producer epoch of their own at an end of the log that is not its end any more.

    The ledger may say that all who wrote under the older epoch have ended, and was read after the logs: what they wrote
    in between is not in what was seen. The target would take the first batch of the epoch behind it.
    """
    alone = [each for each in taken if isinstance(each, TakenPartition) and each.resume.alone]
    if not alone:
        return {}
    now = read_leader_logs(
        target, [(each.block.key.target_topic, each.block.key.partition) for each in alone], READ_UNCOMMITTED
    )
    moved: dict[PartitionKey, Reinspect] = {}
    for each in alone:
        key, end = each.block.key, each.target.end
        log = now[key.target_topic, key.partition]
        if isinstance(log, ClusterError):
            moved[key] = Reinspect(str(log))
        elif log.end != end:
            moved[key] = Reinspect(f"the target's log ends at {log.end}, and ended at {end} a moment ago")
    return moved


@dataclass(frozen=True, slots=True)
class _Takeover:
    """What the partitions of one takeover share. starts: where those begin that were never copied."""

    record: FlowRecord
    source: ConnectionSettings
    writer: ControlWriter
    decisions: Mapping[PartitionKey, OperatorDecision]
    worker: str
    aligned: frozenset[PartitionKey]
    ledger: Ledger
    starts: Mapping[PartitionKey, StartOrTrouble] = field(default_factory=dict)
    skips: RecentSkips = field(init=False, default_factory=RecentSkips)

    def take(
        self,
        key: PartitionKey,
        inspection: tuple[LogInspection, LeaderLog, LeaderLog],
        parted_at: int | None,
        compared: SourceComparison,
    ) -> TakenPartition | Halt | Reinspect:
        """Find where the partition continues, and prepare the ledger block of its new generation.

        parted_at: the first copied source offset that the source has lost to another leader (KIP-320).
        """
        if (halted := self.ledger.halted(key)) is not None:
            return halted
        seen, at_source, at_target = inspection
        if self.record.flow.rejected == "quarantine":  # a record left out is at the source, and a gap at the target
            seen = replace(seen, missed=None)
        remembered, generation = self.ledger.remembered(key)
        if key not in self.aligned:  # there, gaps of the newer epoch may have shifted the older one's batch
            remembered = drop_overtaken_epochs(remembered, seen)
        seen = replace(seen, diverges_at=parted_at, source_is_same=compared.is_same)
        outcome = self.decide(key, remembered, generation, seen)
        outcome = begin_exclusive_epoch(outcome, remembered, seen)
        if not isinstance(outcome, RecoveryPoint):
            return outcome
        try:
            mine = consolidate_map(
                key,
                Generation(generation + 1, self.worker),
                outcome.target_end,
                None if remembered is None else drop_unlanded_epochs(remembered, seen),
                self.ledger,
                self.writer,
                landed_known=seen.tail is not None,
            )
        except ClusterError as error:
            return Reinspect(str(error))
        block = LedgerBlock(
            key=key,
            generation=mine,
            number=CLAIM_NUMBER + 1,
            start=outcome.target_end,
            identity=outcome.identity,
            source_id=at_source.topic_id,
            target_id=at_target.topic_id,
            runs=(),
            epochs=_epochs(remembered, outcome, at_source),
            since=outcome.since,
            order=outcome.order,
            note=outcome.note,
            needs_epoch=outcome.alone,
            after=outcome.after,
            adopted=outcome.adopted,
            filling=outcome.filling,
            given_up=outcome.given_up,
        )
        return TakenPartition(outcome, at_source, at_target, block, key in self.aligned, compared.last_batch)

    def decide(
        self, key: PartitionKey, remembered: LedgerState | None, generation: int, seen: LogInspection
    ) -> RecoveryPoint | Halt | Reinspect:
        """Judge the logs, then apply the decision of a person, then the flow's policy (`on_gap`)."""
        outcome = self._judge(key, remembered, seen)
        decision = self.decisions.get(key)
        if decision is not None and decision.kind in CONTINUING_KINDS:
            outcome = self._apply_continuing(key, decision, outcome, remembered, generation, seen)
        elif decision is not None:
            if isinstance(outcome, Reinspect) and outcome.halts_as == "duplicated":
                outcome = Halt("duplicated", outcome.reason)  # as the person saw it who decided
            before, outcome = outcome, self._apply_decision(key, decision, outcome, remembered, generation, seen)
            bound = bind_lost_offsets(decision, before)
            obeys = isinstance(outcome, RecoveryPoint) and outcome.claims and outcome.order == decision.id
            if obeys and bound != decision:  # otherwise the journal has the exact range from the person
                try:
                    journal_decision_outcome(self.writer, bound, self.record.topology, generation + 1, self.worker)
                except ClusterError as error:
                    return Reinspect(f"the outcome of an order could not be journaled: {error}")
        if isinstance(outcome, Reinspect):
            return drop_answered_halt(self.record.flow, key, outcome, self.source, self.writer, self.skips)
        actor = choose_gap_decider(self.record.flow, key, outcome, self.source, self.writer, self.skips)
        if isinstance(actor, str) and isinstance(outcome, Halt):
            return self._apply_policy(key, actor, outcome, remembered, generation, seen)
        return actor if isinstance(actor, Halt | Reinspect) else outcome

    def _judge(
        self, key: PartitionKey, remembered: LedgerState | None, seen: LogInspection
    ) -> RecoveryPoint | Halt | Reinspect:
        producer_id = self.record.producer_id
        assert producer_id is not None
        try:
            if key in self.aligned:
                return find_aligned_recovery_point(remembered, seen, producer_id)
            start = self.starts.get(key, "earliest")  # it counts only for what was never copied
            return (
                start
                if isinstance(start, Halt | Reinspect)
                else find_recovery_point(remembered, seen, producer_id, start)
            )
        except ReplicatorError as error:  # a map that contradicts itself or the log concerns its partition only
            return Reinspect(str(error), "duplicated")

    def _apply_continuing(
        self,
        key: PartitionKey,
        decision: OperatorDecision,
        outcome: RecoveryPoint | Halt | Reinspect,
        remembered: LedgerState | None,
        generation: int,
        seen: LogInspection,
    ) -> RecoveryPoint | Halt | Reinspect:
        """Continue the copy of another tool; impossible where offsets are to be equal."""
        if key not in self.aligned:  # the flow was mapped when the decision was made
            assert self.record.producer_id is not None
            return apply_adoption(decision, outcome, remembered, generation, seen, self.record.producer_id)
        if not isinstance(outcome, Halt):
            return outcome
        refused = f"{decision.kind} {decision.id} of {decision.actor} is refused"
        return replace(outcome, error=f"{outcome.error}; {refused}: this topic has, or gets, equal offsets")

    def _apply_policy(
        self,
        key: PartitionKey,
        actor: str,
        halted: Halt,
        remembered: LedgerState | None,
        generation: int,
        seen: LogInspection,
    ) -> RecoveryPoint | Halt | Reinspect:
        """Give up the source records that expired, and journal by whom (`choose_gap_decider`)."""
        policy = build_policy_decision(key, halted, generation, int(time.time() * 1000), actor)
        outcome = self._apply_decision(key, policy, halted, remembered, generation, seen)
        if isinstance(outcome, RecoveryPoint):
            try:
                journal_policy_decision(self.writer, policy, self.record.topology)
            except ClusterError as error:
                return Reinspect(f"the decision could not be journaled: {error}")
        return outcome

    def _apply_decision(
        self,
        key: PartitionKey,
        decision: OperatorDecision,
        result: RecoveryPoint | Halt | Reinspect,
        remembered: LedgerState | None,
        generation: int,
        seen: LogInspection,
    ) -> RecoveryPoint | Halt | Reinspect:
        outcome = apply_decision(
            decision, result, remembered, generation, seen, self.record.start_of(key.topic, key.partition)
        )
        if key not in self.aligned or outcome is result or not isinstance(outcome, RecoveryPoint):
            return outcome
        if decision.kind == "accept-gap":  # what was given up is a gap like others, as long as nothing is behind it
            return replace(outcome, given_up=outcome.position)
        return begin_with_filling(outcome, seen)


def _find_copied_positions(
    ledger: Ledger, inspected: Mapping[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog] | ClusterError]
) -> dict[PartitionKey, tuple[LeaderLog, int, tuple[LeaderEpochEntry, ...]]]:
    """Source leader, position and copied leader epochs of the partitions whose topics are still those of the ledger."""
    result: dict[PartitionKey, tuple[LeaderLog, int, tuple[LeaderEpochEntry, ...]]] = {}
    for key, what in inspected.items():
        remembered, _ = ledger.remembered(key)
        if isinstance(what, ClusterError) or remembered is None:
            continue
        seen, at_source, _ = what
        remembered = drop_overtaken_epochs(remembered, seen) or remembered
        if seen.source_id != remembered.source_id or not is_same_topic(remembered.target_id, seen.target_id):
            continue
        try:
            position = remembered.map.source_position(seen.target_end)
        except ReplicatorError:
            continue  # judged with everything else
        if position >= seen.source_start:
            result[key] = at_source, position, remembered.epochs
    return result


def _find_last_copied(
    ledger: Ledger,
    inspected: Mapping[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog] | ClusterError],
    aligned: Collection[PartitionKey],
    record: FlowRecord,
) -> dict[PartitionKey, LastCopied]:
    """What to compare of the partitions whose source topic has no id, or had none when it was copied."""
    exact = not record.flow.sync.schemas.translated
    found: dict[PartitionKey, LastCopied] = {}
    for key, what in inspected.items():
        remembered, _ = ledger.remembered(key)
        if isinstance(what, ClusterError) or remembered is None:
            continue
        seen, here, there = what
        is_same = is_same_topic(remembered.target_id, seen.target_id)
        if not is_same or not needs_comparison(remembered.source_id, seen.source_id):
            continue
        remembered = drop_overtaken_epochs(remembered, seen) or remembered
        if key in aligned:
            first = seen.target_end if remembered.filling else max(remembered.identity.base, remembered.given_up)
            found[key] = LastCopied(here, there, first, seen.target_end, lambda offset: offset, exact)
            continue
        own = remembered.map.own
        # An operator decision gave up what the source lost: only what was copied since is compared.
        first = remembered.identity.base if remembered.order or not own else own[0].target
        found[key] = LastCopied(
            here,
            there,
            first,
            seen.target_end,
            remembered.map.to_source,
            exact,
            header=build_provenance_header(record.flow, record.source_cluster_id, key.topic, key.partition),
        )
    return found


def _epochs(remembered: LedgerState | None, outcome: RecoveryPoint, source: LeaderLog) -> tuple[LeaderEpochEntry, ...]:
    """The leader epochs that count from here on; the newest LEADER_EPOCHS_KEPT are enough to find where a log
    parted."""
    if remembered is not None and outcome.order == remembered.order:
        return tuple(entry for entry in remembered.epochs if entry.source <= outcome.position)[-LEADER_EPOCHS_KEPT:]
    at = {source.start: source.start_epoch, source.end: source.end_epoch}.get(outcome.position, -1)
    return (LeaderEpochEntry(outcome.position, at),) if at >= 0 else ()


def claim_partitions(
    candidates: list[TakenPartition], ledger: SharedLedger, slots: list[int], writer: ControlWriter
) -> dict[PartitionKey, TakenPartition | Reinspect]:
    """Agree on where a partition begins. Two workers may look for the first time at once and find other starts
    (`start: latest`, retention); so do two that obey one order. Both write a claim, the first one in the ledger counts,
    the other withdraws."""
    claims: dict[PartitionKey, LedgerBlock] = {}
    for result in candidates:
        claims[result.block.key] = replace(result.block, number=CLAIM_NUMBER, runs=(result.first,))
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
    places = {FlowPartition(key.flow, key.topic, key.partition) for key in claims}
    first_claim, later = _find_first_claims(claims, ledger.read_blocks(places, slots))
    results: dict[PartitionKey, TakenPartition | Reinspect] = {}
    for result in candidates:
        key = result.block.key
        first = first_claim[key]
        if first.generation == result.block.generation and key not in later:
            results[key] = result
        else:
            slot = compute_slot(key.flow, key.topic, key.partition)
            writer.put_nowait(LEDGER_TOPIC, claims[key].record_key, None, slot, on_done=done)
            results[key] = Reinspect(f"worker {first.generation.worker} was first to begin this partition")
    writer.flush()
    return results


def _find_first_claims(
    claims: dict[PartitionKey, LedgerBlock], blocks: Iterable[LedgerBlock]
) -> tuple[dict[PartitionKey, LedgerBlock], set[PartitionKey]]:
    """The claim that comes first in the ledger, by partition; and the partitions for which ours is too late, because
    a newer generation is in the ledger already."""
    first_claim, too_late = dict(claims), set()
    for block in blocks:
        claim = claims.get(block.key)
        if claim is None:
            continue
        epoch, before = claim.identity.epoch, first_claim[block.key]
        if (block.identity.epoch, block.generation.number) > (epoch, claim.generation.number):
            too_late.add(block.key)
        elif (block.number, block.identity.epoch) == (CLAIM_NUMBER, epoch) and not 0 <= before.at < block.at:
            first_claim[block.key] = block
    return first_claim, too_late


def _classify_error(error: ClusterError, source_alias: str) -> Halt | Reinspect:
    if isinstance(error, TopicMissing):
        # A broker that has not heard of a new topic yet says the same.
        return Reinspect(str(error), "source_gone" if error.alias == source_alias else "target_gone")
    if isinstance(error, Unauthorised):
        return Halt("unauthorised", str(error))
    return Reinspect(str(error))
