"""Taking partitions over that are copied in transactions: fence, read the ledger, look at the logs, go on.

The order is what makes it exact. `SlotSender.open` ends whatever the owner before us had open, one way or the other;
only then is the ledger read, and what it says cannot change any more except through us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from clusters.control_topics import ControlWriter
from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flow_records import FlowRecord
from clusters.settings import ConnectionSettings
from clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from replicator.batch.record_batch import BatchChecksum, RawBatch
from replicator.copy.copy_state import Refusals, SourceCursor, TargetProgress
from replicator.copy.transactions.produce_answers import SessionLost
from replicator.copy.transactions.slot_sender import SlotSender, SlotSenders
from replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy
from replicator.errors import ReplicatorError
from replicator.ledger.leader_epochs import LeaderEpochEntry
from replicator.ledger.ledger import Ledger, read_ledger
from replicator.ledger.transaction_positions import PositionAndRuns, PositionTracker
from replicator.partition_key import PartitionKey
from replicator.partition_states import Halt, Reinspect
from replicator.recovery.log_inspection import LeaderLog, SettledLogEnds, find_log_truncations, read_leader_logs
from replicator.recovery.operator_decisions import (
    OperatorDecision,
    bind_lost_offsets,
    build_policy_decision,
    journal_decision_outcome,
    journal_policy_decision,
)
from replicator.recovery.recovery_point import is_same_topic
from replicator.recovery.source_comparison import LastCopied, compare_last_copied, needs_comparison
from replicator.recovery.transaction_recovery_point import (
    InspectedRanges,
    RecoveryTrouble,
    TransactionRecoveryPoint,
    apply_transaction_decision,
    find_transaction_recovery_point,
)

_InspectedPartition = tuple[
    LeaderLog, LeaderLog, InspectedRanges
]  # the source's leader, the target's, and both logs' ranges


@dataclass(frozen=True, slots=True)
class TakenTransactionPartition:
    """A partition that can go on in this session of its slot's sender. begins: the ledger has to hear of it first."""

    known: PositionAndRuns
    begins: bool
    source: LeaderLog
    target: LeaderLog
    sender: SlotSender
    session: int
    last_batch: BatchChecksum | None = None


@dataclass(slots=True)
class TransactionTakeover:
    """Decides for partitions of one flow how they go on; `decisions` are what persons decided about some of them,
    `control` journals what the flow's policy decides."""

    record: FlowRecord
    source: ConnectionSettings
    target: ConnectionSettings
    stillness: SettledLogEnds
    senders: SlotSenders
    control: ControlWriter
    decisions: Mapping[PartitionKey, OperatorDecision] = field(default_factory=dict)

    def of(self, slots: Mapping[PartitionKey, int]) -> dict[PartitionKey, TakenTransactionPartition | RecoveryTrouble]:
        """The partitions come with their slots. Never raises ClusterError."""
        found: dict[PartitionKey, TakenTransactionPartition | RecoveryTrouble] = {}
        sessions: dict[int, tuple[SlotSender, int]] = {}
        for slot, opened in self._opened(set(slots.values())).items():
            if isinstance(opened, tuple):
                sessions[slot] = opened
            else:
                found |= {key: opened for key, at in slots.items() if at == slot}
        keys = [key for key, slot in slots.items() if slot in sessions]
        if not keys:
            return found
        try:
            ledger = read_ledger(self.target, flow=self.record.flow.id, slots=sorted(sessions), tolerant=True)
            inspected = self._inspect(keys, ledger)
        except (ClusterError, ReplicatorError) as error:
            return found | {key: Reinspect(str(error)) for key in keys}
        for key, seen in inspected.items():
            if isinstance(seen, ClusterError):
                found[key] = _trouble(seen, self.source.alias)
                continue
            if (halted := ledger.halted(key)) is not None:
                found[key] = halted
                continue
            here, there, ends = seen
            goes = self._decided(key, ledger, ends)
            if isinstance(goes, TransactionRecoveryPoint):
                found[key] = TakenTransactionPartition(
                    goes.known, goes.begins, here, there, *sessions[slots[key]], ends.last_batch
                )
            else:
                found[key] = goes
        return found

    def _decided(
        self, key: PartitionKey, ledger: Ledger, ends: InspectedRanges
    ) -> TransactionRecoveryPoint | RecoveryTrouble:
        """What the logs say, and what was ordered or is the flow's policy."""
        known = ledger.positions.get(key)
        if known is None and key in ledger.partitions:
            return Reinspect("the ledger knows this partition as copied by sequence numbers")
        start = self.record.start_of(key.topic, key.partition)
        outcome = find_transaction_recovery_point(key, known, ends, start)
        if known is None:
            return outcome
        decision = self.decisions.get(key)
        if decision is not None:
            before, outcome = outcome, apply_transaction_decision(decision, outcome, known, ends, start)
            bound = bind_lost_offsets(decision, before)
            if (
                isinstance(outcome, TransactionRecoveryPoint) and outcome.begins and bound != decision
            ):  # otherwise the journal has it
                try:
                    generation = outcome.known.position.generation
                    journal_decision_outcome(self.control, bound, self.record.topology, generation, "")
                except ClusterError as error:
                    return Reinspect(f"the outcome of an order could not be journaled: {error}")
        if not isinstance(outcome, Halt) or outcome.state != "source_expired" or self.record.flow.on_gap != "continue":
            return outcome
        policy = build_policy_decision(key, outcome, known.position.generation, int(time.time() * 1000))
        outcome = apply_transaction_decision(policy, outcome, known, ends, start)
        if isinstance(outcome, TransactionRecoveryPoint):
            try:
                journal_policy_decision(self.control, policy, self.record.topology)
            except ClusterError as error:
                return Reinspect(f"the decision could not be journaled: {error}")
        return outcome

    def _inspect(
        self, keys: list[PartitionKey], ledger: Ledger
    ) -> dict[PartitionKey, _InspectedPartition | ClusterError]:
        at_source = read_leader_logs(self.source, [(key.topic, key.partition) for key in keys], READ_COMMITTED)
        at_target = read_leader_logs(self.target, [(key.target_topic, key.partition) for key in keys], READ_UNCOMMITTED)
        found: dict[PartitionKey, _InspectedPartition | ClusterError] = {}
        copied: dict[PartitionKey, tuple[LeaderLog, int, tuple[LeaderEpochEntry, ...]]] = {}
        for key in keys:
            here, there = at_source[key.topic, key.partition], at_target[key.target_topic, key.partition]
            if isinstance(here, ClusterError):
                found[key] = here
            elif isinstance(there, ClusterError):
                found[key] = there
            else:
                settled = self.stillness.settled(key, "source", here.end, time.monotonic())
                found[key] = here, there, InspectedRanges.of(here, there, settled)
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
                found[key] = here, there, ends.parted_at(offset)
        exact = not self.record.flow.sync.schemas.translated
        last = _find_last_copied(ledger, found, exact=exact)
        for key, compared in compare_last_copied(self.source, self.target, last).items():
            seen = found[key]
            assert not isinstance(seen, ClusterError), "only what was inspected is compared"
            if isinstance(compared, ClusterError):
                found[key] = compared
                continue
            here, there, ends = seen
            ends = replace(ends, source_is_same=compared.is_same, last_batch=compared.last_batch)
            found[key] = here, there, ends
        return found

    def _opened(self, slots: Iterable[int]) -> dict[int, tuple[SlotSender, int] | RecoveryTrouble]:
        """Open all sessions at once: each waits for its coordinator."""

        def opened(slot: int) -> tuple[SlotSender, int] | RecoveryTrouble:
            try:
                sender = self.senders.of(self.record, slot)
                return sender, sender.open()
            except SessionLost as lost:
                return lost.trouble
            except Unauthorised as error:
                return Halt("unauthorised", str(error))
            except (ClusterError, ReplicatorError) as error:
                return Reinspect(str(error))

        ordered = sorted(slots)
        with ThreadPoolExecutor(max_workers=8, thread_name_prefix="open") as pool:
            return dict(zip(ordered, pool.map(opened, ordered), strict=True))


def _find_last_copied(
    ledger: Ledger, inspected: Mapping[PartitionKey, _InspectedPartition | ClusterError], *, exact: bool
) -> dict[PartitionKey, LastCopied]:
    """What to compare of the partitions whose source topic has no id, or had none when it was copied."""
    found: dict[PartitionKey, LastCopied] = {}
    for key, seen in inspected.items():
        if isinstance(seen, ClusterError) or key not in ledger.positions:
            continue
        here, there, ends = seen
        at = ledger.positions[key].position
        if not needs_comparison(at.source_id, ends.source_id) or not is_same_topic(at.target_id, ends.target_id):
            continue
        gave_up = bool(at.order) and at.leader_epoch < 0  # by an operator decision; nothing was copied since
        first = at.target_end if gave_up else at.begin.target
        found[key] = LastCopied(here, there, first, at.target_end, ledger.positions[key].map.to_source, exact)
    return found


def _trouble(error: ClusterError, source_alias: str) -> RecoveryTrouble:
    if isinstance(error, TopicMissing):
        # A broker that has not heard of a new topic yet says the same.
        return Reinspect(str(error), "source_gone" if error.alias == source_alias else "target_gone")
    if isinstance(error, Unauthorised):
        return Halt("unauthorised", str(error))
    return Reinspect(str(error))


def build_transaction_copy(
    key: PartitionKey, taken: TakenTransactionPartition, path_of: Callable[[RawBatch], CopyPath], *, quarantine: bool
) -> TransactionCopy:
    """The copy that goes on where the ledger says. quarantine: see `Refusals`."""
    at = taken.known.position
    return TransactionCopy(
        key=key,
        source_id=taken.source.topic_id,
        target_id=taken.target.topic_id,
        source=SourceCursor(at.position, at.leader_epoch, last_batch=taken.last_batch),
        progress=TargetProgress(at.target_end),
        refusals=Refusals(quarantine),
        track=PositionTracker(taken.known),
        path_of=path_of,
        begins=taken.begins,
    )
