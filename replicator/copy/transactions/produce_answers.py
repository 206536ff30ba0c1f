"""What the target's answers mean inside a transaction (docs/research/batches.md, §7.7)."""

from __future__ import annotations

from typing import Final

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.rejected_records import judge_rejected_records
from watershed.replicator.copy.transactions.transaction_copy import TransactionCopy
from watershed.replicator.partition_states import Halt, Reinspect

# Somebody else called InitProducerId for our transactional id (an owner after us), or the id has expired.
_FENCED: Final = frozenset(
    {
        error_codes.INVALID_PRODUCER_EPOCH,
        error_codes.PRODUCER_FENCED,
        error_codes.INVALID_PRODUCER_ID_MAPPING,
        error_codes.UNKNOWN_PRODUCER_ID,
    }
)
COORDINATOR_MOVES: Final = frozenset(
    {error_codes.COORDINATOR_LOAD_IN_PROGRESS, error_codes.COORDINATOR_NOT_AVAILABLE, error_codes.NOT_COORDINATOR}
)
# The partition is fine, the transaction is not: it is rolled back and written again.
_ROLL_BACK: Final = frozenset(
    {
        error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        error_codes.DUPLICATE_SEQUENCE_NUMBER,
        error_codes.INVALID_TXN_STATE,
        error_codes.TRANSACTION_ABORTABLE,
        error_codes.CONCURRENT_TRANSACTIONS,
        error_codes.OPERATION_NOT_ATTEMPTED,
    }
)
_REJECTED = frozenset({error_codes.INVALID_TIMESTAMP, error_codes.INVALID_RECORD})
_TOO_LARGE = frozenset({error_codes.MESSAGE_TOO_LARGE, error_codes.RECORD_LIST_TOO_LARGE})


class SessionLost(Exception):
    """The session of a slot cannot go on: every partition of it is looked at again. `trouble` says why; code: the
    error that the target answered, 0 where it answered none."""

    def __init__(self, trouble: Halt | Reinspect, code: int = error_codes.NONE) -> None:
        super().__init__(trouble.reason if isinstance(trouble, Reinspect) else trouble.error)
        self.trouble = trouble
        self.code = code


def is_fenced(lost: SessionLost) -> bool:
    """Whether the session was lost to another one of the same transactional id, or to its coordinator."""
    return lost.code in _FENCED


def judge_produce_answer(
    copy: TransactionCopy, batch: RawBatch, answer: ProducedPartition, transactional_id: str
) -> Halt | Reinspect | None:
    """What an answer other than NONE means for the partition; None: nothing, the transaction has to be written again.

    Raises SessionLost when it concerns all that the transactional id writes.
    """
    name = error_codes.describe_error_code(answer.error)
    where = f"source topic {copy.key.topic}, partition {copy.key.partition}"
    extent = f"{where}, offsets {batch.base} to {batch.end - 1}"
    raise_for_session(answer.error, "Produce", transactional_id)
    if answer.error in _ROLL_BACK:
        return None
    if answer.error in (error_codes.UNKNOWN_TOPIC_ID, error_codes.INCONSISTENT_TOPIC_ID):
        # A broker that has just started may not know the topic yet; the inspection sees whether it is another one.
        return Reinspect(f"the target answers {name} to {extent}", "target_gone")
    if answer.error in _REJECTED:
        return judge_rejected_records(copy.key, copy.refusals, batch, answer)
    if answer.error in _TOO_LARGE:  # its limit was lowered: the next attempt cuts smaller batches
        copy.refusals.too_large = True
        return Reinspect(f"the target answers {name} to {extent}, {len(batch.data)} bytes", "rejected")
    if answer.error == error_codes.TOPIC_AUTHORIZATION_FAILED:
        return Halt("unauthorised", f"the target answers {name}: WRITE on the topic is missing")
    in_the_end = "rejected" if answer.error == error_codes.CORRUPT_MESSAGE else None
    return Reinspect(f"the target answers {name} to {extent}", in_the_end)


def raise_for_session(error: int, doing: str, transactional_id: str) -> None:
    """Raise SessionLost for an answer that says something about the transactional id itself."""
    if error in _FENCED:
        text = f"{error_codes.describe_error_code(error)} to {doing}: another worker writes as {transactional_id} now"
        raise SessionLost(Reinspect(text), error)
    if error == error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        text = (
            f"the target answers {error_codes.describe_error_code(error)}: WRITE on the transactional id "
            f"{transactional_id} is missing"
        )
        raise SessionLost(Halt("unauthorised", text), error)
    if error == error_codes.CLUSTER_AUTHORIZATION_FAILED:
        text = (
            f"the target answers {error_codes.describe_error_code(error)}: IDEMPOTENT_WRITE on the cluster is missing"
        )
        raise SessionLost(Halt("unauthorised", text), error)
