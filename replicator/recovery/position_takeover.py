"""Taking partitions over whose position stands in the ledger: look at both logs, and decide. Where that position comes
from is the delivery's matter (`replicator.copy.transactions.slot_takeover`, `replicator.recovery.repeat_takeover`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import NamedTuple

from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError, TopicMissing, Unauthorised
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.provenance_header import build_provenance_header
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.ledger.transaction_positions import PositionAndRuns
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.log_inspection import LeaderLog, find_log_truncations, read_leader_logs
from watershed.replicator.recovery.operator_decisions import (
    OperatorDecision,
    bind_lost_offsets,
    build_policy_decision,
    journal_decision_outcome,
    journal_policy_decision,
)
from watershed.replicator.recovery.recovery_point import is_same_topic
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.replicator.recovery.source_comparison import LastCopied, compare_last_copied, needs_comparison
from watershed.replicator.recovery.start_offsets import StartOrTrouble, find_starts
from watershed.replicator.recovery.streams_purge import RecentSkips, choose_gap_decider, drop_answered_halt
from watershed.replicator.recovery.transaction_recovery_point import (
    InspectedRanges,
    RecoveryTrouble,
    TransactionRecoveryPoint,
    apply_transaction_decision,
    find_transaction_recovery_point,
)


class InspectedPartition(NamedTuple):
    """Both leaders, and what their logs hold."""

    source: LeaderLog
    target: LeaderLog
    ends: InspectedRanges


class AnsweredTrouble(NamedTuple):
    """What an order, or the flow's policy, makes of an outcome. decision: what was obeyed, with what it gives up; None
    if nothing was, or if the journal has it."""

    outcome: TransactionRecoveryPoint | RecoveryTrouble
    decision: OperatorDecision | None = None
    by_policy: bool = False


@dataclass(slots=True)
class PositionTakeover:
    """What the takeovers of one flow's partitions share; `decisions` are what persons decided about some of them,
    `control` journals what the flow's policy decides. starts: where those begin that were never copied, once they were
    inspected."""

    record: FlowRecord
    source: ConnectionSettings
    target: ConnectionSettings
    stillness: SettledLogEnds
    control: ControlWriter
    _: KW_ONLY
    decisions: Mapping[PartitionKey, OperatorDecision] = field(default_factory=dict)
    starts: dict[PartitionKey, StartOrTrouble] = field(init=False, default_factory=dict)
    skips: RecentSkips = field(init=False, default_factory=RecentSkips)

    def decide(
        self, key: PartitionKey, ledger: Ledger, ends: InspectedRanges
    ) -> TransactionRecoveryPoint | RecoveryTrouble:
        """What the logs say, and what was ordered or is the flow's policy."""
        outcome, known = self.judge(key, ledger, ends), ledger.positions.get(key)
        if known is None:
            return outcome
        answered = self.answer(key, known, outcome, ends)
        return self.journal(answered) or answered.outcome

    def judge(
        self, key: PartitionKey, ledger: Ledger, ends: InspectedRanges
    ) -> TransactionRecoveryPoint | RecoveryTrouble:
        """What the logs say."""
        known = ledger.positions.get(key)
        if known is None and key in ledger.partitions:
            return Reinspect("the ledger knows this partition as copied by sequence numbers")
        start = self.starts.get(key, "earliest")  # it counts only for what was never copied
        if isinstance(start, Halt | Reinspect):
            return start
        return find_transaction_recovery_point(key, known, ends, start)

    def answer(
        self,
        key: PartitionKey,
        known: PositionAndRuns,
        outcome: TransactionRecoveryPoint | RecoveryTrouble,
        ends: InspectedRanges,
    ) -> AnsweredTrouble:
        """What was ordered or is the flow's policy, where the outcome is a halt. Writes nothing."""
        start, decision = self.record.start_of(key.topic, key.partition), self.decisions.get(key)
        if decision is not None:
            before, outcome = outcome, apply_transaction_decision(decision, outcome, known, ends, start)
            if isinstance(outcome, TransactionRecoveryPoint):
                bound = bind_lost_offsets(decision, before)
                return AnsweredTrouble(outcome, bound if outcome.begins and bound != decision else None)
        if isinstance(outcome, Reinspect):
            waits = drop_answered_halt(self.record.flow, key, outcome, self.source, self.control, self.skips)
            return AnsweredTrouble(waits)
        actor = choose_gap_decider(self.record.flow, key, outcome, self.source, self.control, self.skips)
        if not isinstance(actor, str) or not isinstance(outcome, Halt):
            return AnsweredTrouble(actor if isinstance(actor, Halt | Reinspect) else outcome)
        policy = build_policy_decision(key, outcome, known.position.generation, int(time.time() * 1000), actor)
        return AnsweredTrouble(apply_transaction_decision(policy, outcome, known, ends, start), policy, by_policy=True)

    def journal(self, answered: AnsweredTrouble) -> Reinspect | None:
        """Write down what was obeyed, before anybody acts on it. Returns why that failed; None if it did not."""
        outcome, decision, topology = answered.outcome, answered.decision, self.record.topology
        if decision is None or not isinstance(outcome, TransactionRecoveryPoint):
            return None
        try:
            if answered.by_policy:
                journal_policy_decision(self.control, decision, topology)
            else:
                journal_decision_outcome(self.control, decision, topology, outcome.known.position.generation, "")
        except ClusterError as error:
            what = "decision" if answered.by_policy else "outcome of an order"
            return Reinspect(f"the {what} could not be journaled: {error}")
        return None

    def inspect(
        self, keys: list[PartitionKey], ledger: Ledger
    ) -> dict[PartitionKey, InspectedPartition | ClusterError]:
        """Both logs of each partition, compared with what was copied. Raises ClusterError."""
        at_source = read_leader_logs(self.source, [(key.topic, key.partition) for key in keys], READ_COMMITTED)
        at_target = read_leader_logs(self.target, [(key.target_topic, key.partition) for key in keys], READ_UNCOMMITTED)
        found: dict[PartitionKey, InspectedPartition | ClusterError] = {}
        copied: dict[PartitionKey, tuple[LeaderLog, int, tuple[LeaderEpochEntry, ...]]] = {}
        for key in keys:
            here, there = at_source[key.topic, key.partition], at_target[key.target_topic, key.partition]
            if isinstance(here, ClusterError):
                found[key] = here
            elif isinstance(there, ClusterError):
                found[key] = there
            else:
                settled = self.stillness.settled(key, "source", here.end, time.monotonic(), here.asked_at)
                found[key] = InspectedPartition(here, there, InspectedRanges.of(here, there, settled))
                at = ledger.positions[key].position if key in ledger.positions else None
                if (
                    at is not None
                    and at.source_id == here.topic_id
                    and at.leader_epoch >= 0 <= at.position - here.start
                ):
                    copied[key] = here, at.position, (LeaderEpochEntry(at.position - 1, at.leader_epoch),)
        for key, offset in find_log_truncations(self.source, copied).items():
            seen = found[key]
            if not isinstance(seen, ClusterError):
                here, there, ends = seen
                found[key] = InspectedPartition(here, there, ends.parted_at(offset))
        fresh = {
            key: seen.source
            for key, seen in found.items()
            if not isinstance(seen, ClusterError) and key not in ledger.positions
        }
        self.starts |= find_starts(self.record, fresh, self.source)
        last = _find_last_copied(ledger, found, self.record)
        for key, compared in compare_last_copied(self.source, self.target, last).items():
            seen = found[key]
            assert not isinstance(seen, ClusterError), "only what was inspected is compared"
            if isinstance(compared, ClusterError):
                found[key] = compared
                continue
            here, there, ends = seen
            ends = replace(ends, source_is_same=compared.is_same, last_batch=compared.last_batch)
            found[key] = InspectedPartition(here, there, ends)
        return found


def _find_last_copied(
    ledger: Ledger, inspected: Mapping[PartitionKey, InspectedPartition | ClusterError], record: FlowRecord
) -> dict[PartitionKey, LastCopied]:
    """What to compare of the partitions with a topic at one end that has no id, or had none when it was copied."""
    exact = not record.flow.sync.schemas.translated
    found: dict[PartitionKey, LastCopied] = {}
    for key, seen in inspected.items():
        if isinstance(seen, ClusterError) or key not in ledger.positions:
            continue
        here, there, ends = seen
        at = ledger.positions[key].position
        beside_others = at.log is None  # in transactions
        has_stand_in = needs_comparison(at.source_id, ends.source_id) or (
            beside_others and needs_comparison(at.target_id, ends.target_id)
        )
        is_same = is_same_topic(at.source_id, ends.source_id) and is_same_topic(at.target_id, ends.target_id)
        if not has_stand_in or not is_same:
            continue
        gave_up = bool(at.order) and at.leader_epoch < 0  # by an operator decision; nothing was copied since
        first = at.target_end if gave_up else at.begin.target
        offsets = ledger.positions[key].map
        is_ours = partial(_is_copied, offsets, at.target_end) if beside_others else None
        header = build_provenance_header(record.flow, record.source_cluster_id, key.topic, key.partition)
        found[key] = LastCopied(here, there, first, at.target_end, offsets.to_source, exact, is_ours, header)
    return found


def _is_copied(offsets: OffsetMap, end: int, offset: int) -> bool:
    """Whether a record of ours stands at this target offset; those of other writers stand in gaps of the map."""
    return offsets.to_target(offsets.to_source(offset), end) == offset


def classify_trouble(error: ClusterError, source_alias: str) -> RecoveryTrouble:
    """What an error of one partition means for it."""
    if isinstance(error, TopicMissing):
        # A broker that has not heard of a new topic yet says the same.
        return Reinspect(str(error), "source_gone" if error.alias == source_alias else "target_gone")
    if isinstance(error, Unauthorised):
        return Halt("unauthorised", str(error))
    return Reinspect(str(error))
