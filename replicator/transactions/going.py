"""Putting a partition on its way that is copied in transactions."""

from __future__ import annotations

from collections.abc import Callable

from replicator.batch import Batch
from replicator.partition import PartitionKey
from replicator.transactions.copy import Path, TransactionCopy
from replicator.transactions.positions import Track
from replicator.transactions.takeover import TakenInTransactions


def copy_of(
    key: PartitionKey, taken: TakenInTransactions, path_of: Callable[[Batch], Path], *, quarantine: bool
) -> TransactionCopy:
    """The copy that goes on where the ledger says. quarantine: see `TransactionCopy`."""
    at = taken.known.position
    return TransactionCopy(
        key=key,
        source_id=taken.source.topic_id,
        target_id=taken.target.topic_id,
        track=Track(taken.known),
        path_of=path_of,
        position=at.position,
        acked=at.target_end,
        leader_epoch=at.leader_epoch,
        begins=taken.begins,
        quarantine=quarantine,
    )
