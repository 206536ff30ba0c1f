"""Putting a partition on its way that is copied in transactions."""

from __future__ import annotations

from collections.abc import Callable

from replicator.batch.record_batch import RawBatch
from replicator.copy.partition_copy import PartitionKey
from replicator.copy.transactions.slot_takeover import TakenTransactionPartition
from replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy
from replicator.ledger.transaction_positions import PositionTracker


def build_transaction_copy(
    key: PartitionKey, taken: TakenTransactionPartition, path_of: Callable[[RawBatch], CopyPath], *, quarantine: bool
) -> TransactionCopy:
    """The copy that goes on where the ledger says. quarantine: see `TransactionCopy`."""
    at = taken.known.position
    return TransactionCopy(
        key=key,
        source_id=taken.source.topic_id,
        target_id=taken.target.topic_id,
        track=PositionTracker(taken.known),
        path_of=path_of,
        position=at.position,
        acked=at.target_end,
        leader_epoch=at.leader_epoch,
        begins=taken.begins,
        quarantine=quarantine,
    )
