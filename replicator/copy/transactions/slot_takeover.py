"""Taking partitions over that are copied in transactions: fence, read the ledger, look at the logs, go on.

The order is what makes it exact. `SlotSender.open` ends whatever the owner before us had open, one way or the other;
only then is the ledger read, and what it says cannot change any more except through us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from watershed.clusters.errors import ClusterError, Unauthorised
from watershed.replicator.batch.record_batch import BatchChecksum, RawBatch
from watershed.replicator.copy.copy_state import Refusals, SourceCursor, TargetProgress
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.slot_sender import SlotSender, SlotSenders
from watershed.replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy
from watershed.replicator.copy.transactions.transformed_copy import TransformedCopy
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, PositionTracker
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.log_inspection import LeaderLog
from watershed.replicator.recovery.position_takeover import PositionTakeover, classify_trouble
from watershed.replicator.recovery.transaction_recovery_point import RecoveryTrouble, TransactionRecoveryPoint


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

    @property
    def position(self) -> int:
        """The source offset at which copying goes on."""
        return self.known.position.position

    @property
    def target_end(self) -> int:
        """The target offset behind what was copied."""
        return self.known.position.target_end


@dataclass(slots=True)
class TransactionTakeover(PositionTakeover):
    """Decides for partitions of one flow how they go on."""

    senders: SlotSenders
    ledger: SharedLedger

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
            ledger = self.ledger.read([self.record.flow.id], sessions)
            inspected = self.inspect(keys, ledger)
        except (ClusterError, ReplicatorError) as error:
            return found | {key: Reinspect(str(error)) for key in keys}
        for key, seen in inspected.items():
            if isinstance(seen, ClusterError):
                found[key] = classify_trouble(seen, self.source.alias)
                continue
            if (halted := ledger.halted(key)) is not None:
                found[key] = halted
                continue
            here, there, ends = seen
            goes = self.decide(key, ledger, ends)
            if isinstance(goes, TransactionRecoveryPoint):
                found[key] = TakenTransactionPartition(
                    goes.known, goes.begins, here, there, *sessions[slots[key]], ends.last_batch
                )
            else:
                found[key] = goes
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


def build_transaction_copy(
    key: PartitionKey,
    taken: TakenTransactionPartition,
    path_of: Callable[[RawBatch], CopyPath],
    *,
    quarantine: bool,
    transformed: bool = False,
) -> TransactionCopy:
    """The copy that goes on where the ledger says. quarantine: see `Refusals`."""
    at = taken.known.position
    return (TransformedCopy if transformed else TransactionCopy)(
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
