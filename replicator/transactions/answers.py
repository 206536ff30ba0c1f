"""What the target's answers mean inside a transaction (docs/research/batches.md, §7.7)."""

from __future__ import annotations

from typing import Final

from clusters.wire import codes
from clusters.wire.messages import ProducedPartition
from replicator.batches import Batch
from replicator.states import LookAgain, Loud, Span
from replicator.transactions.copy import TransactionCopy

# Somebody else called InitProducerId for our transactional id (an owner after us), or the id has expired.
_FENCED: Final = frozenset(
    {
        codes.INVALID_PRODUCER_EPOCH,
        codes.PRODUCER_FENCED,
        codes.INVALID_PRODUCER_ID_MAPPING,
        codes.UNKNOWN_PRODUCER_ID,
    }
)
COORDINATOR_MOVES: Final = frozenset(
    {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR}
)
# The partition is fine, the transaction is not: it is rolled back and written again.
_ROLL_BACK: Final = frozenset(
    {
        codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        codes.DUPLICATE_SEQUENCE_NUMBER,
        codes.INVALID_TXN_STATE,
        codes.TRANSACTION_ABORTABLE,
        codes.CONCURRENT_TRANSACTIONS,
        codes.OPERATION_NOT_ATTEMPTED,
    }
)
_REJECTED = frozenset({codes.INVALID_TIMESTAMP, codes.INVALID_RECORD})
_TOO_LARGE = frozenset({codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE})


class SessionLost(Exception):
    """The session of a slot cannot go on: every partition of it is looked at again. `trouble` says why."""

    def __init__(self, trouble: Loud | LookAgain) -> None:
        super().__init__(trouble.reason if isinstance(trouble, LookAgain) else trouble.error)
        self.trouble = trouble


def judged(
    copy: TransactionCopy, batch: Batch, answer: ProducedPartition, transactional_id: str
) -> Loud | LookAgain | None:
    """What an answer other than NONE means for the partition; None: nothing, the transaction has to be written again.

    Raises SessionLost when it concerns all that the transactional id writes.
    """
    name = codes.name_of(answer.error)
    where = f"source topic {copy.key.topic}, partition {copy.key.partition}"
    extent = f"{where}, offsets {batch.base} to {batch.end - 1}"
    raise_for_session(answer.error, "Produce", transactional_id)
    if answer.error in _ROLL_BACK:
        return None
    if answer.error in (codes.UNKNOWN_TOPIC_ID, codes.INCONSISTENT_TOPIC_ID):
        return Loud("target_gone", f"the target answers {name} to {extent}")
    if answer.error in _REJECTED:
        return _rejected(copy, batch, answer, where)
    if answer.error in _TOO_LARGE:  # its limit was lowered: the next attempt cuts smaller batches
        copy.too_large = True
        return LookAgain(f"the target answers {name} to {extent}, {len(batch.data)} bytes", "rejected")
    if answer.error == codes.TOPIC_AUTHORIZATION_FAILED:
        return Loud("unauthorised", f"the target answers {name}: WRITE on the topic is missing")
    in_the_end = "rejected" if answer.error == codes.CORRUPT_MESSAGE else None
    return LookAgain(f"the target answers {name} to {extent}", in_the_end)


def _rejected(copy: TransactionCopy, batch: Batch, answer: ProducedPartition, where: str) -> Loud | LookAgain:
    """The target does not take some of the records, and may say which (KIP-467)."""
    name, whole = codes.name_of(answer.error), answer.message or "no reason given"
    refused = {
        batch.source_offset(index): f"{name}: {reason or whole}"
        for index, reason in answer.record_errors
        if 0 <= index < batch.records
    }
    if not refused:
        told = f"the target answers {name} to {where}, offsets {batch.base} to {batch.end - 1}: {whole}"
        return Loud("rejected", told, source=Span(batch.base, batch.end))
    copy.refused_records |= refused
    first, last = min(refused), max(refused)
    told = f"the target does not take {where}, offset {first}"
    told += f" and {len(refused) - 1} more up to offset {last}" if len(refused) > 1 else ""
    told += f": {refused[first]}"
    return LookAgain(told, "rejected") if copy.quarantine else Loud("rejected", told, source=Span(first, last + 1))


def raise_for_session(error: int, doing: str, transactional_id: str) -> None:
    """Raise SessionLost for an answer that says something about the transactional id itself."""
    if error in _FENCED:
        told = f"{codes.name_of(error)} to {doing}: another worker writes as {transactional_id} now"
        raise SessionLost(LookAgain(told))
    if error == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        told = f"the target answers {codes.name_of(error)}: WRITE on the transactional id {transactional_id} is missing"
        raise SessionLost(Loud("unauthorised", told))
    if error == codes.CLUSTER_AUTHORIZATION_FAILED:
        told = f"the target answers {codes.name_of(error)}: IDEMPOTENT_WRITE on the cluster is missing"
        raise SessionLost(Loud("unauthorised", told))
