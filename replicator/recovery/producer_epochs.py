"""Producer epochs and compaction: who may copy a log with holes.

Workers that share a producer epoch may race, because the sequence check makes them write the same records at the same
places: which records follow a source offset is then a function of the log. Compaction breaks that. A worker that read
200 to 204 before the cleaner came and one that read 200, 205, 206 after it mean different records by the same sequence
numbers, and the broker would take the one for a repeat of the other: answered NONE, with the offset that was expected.

So under a shared epoch nothing behind a hole is ever sent (`batches.sift` stops there). Holes are copied under an
epoch that one generation has for itself: it begins one by a claim in the ledger, and its first batch fences whatever
is older. An epoch that was not shared at its end, or that met a hole, is not gone on with: the next inspection begins
another. As the first batch of an epoch is taken wherever the log ends, nothing of the older ones may be under way
then: either all who wrote under them said so (`closed`), or the target's end stood still for long enough. A breach of
that is not silent: the first answer then has another offset than the expected one (`duplicated`). Decision 0017.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from replicator.ledger.ledger_state import LedgerState
from replicator.partition_key import MAX_BATCHES_IN_FLIGHT, ProducerIdentity
from replicator.recovery.recovery_point import LogInspection, RecoveryPoint
from replicator.states import Halt, Reinspect

MAX_PRODUCER_EPOCH: Final = (1 << 15) - 1  # an int16 in the batch header


def begin_exclusive_epoch(
    outcome: RecoveryPoint | Halt | Reinspect, remembered: LedgerState | None, seen: LogInspection
) -> RecoveryPoint | Halt | Reinspect:
    """`outcome` as it is, or with a producer epoch of its own where the last one must not be shared."""
    if not isinstance(outcome, RecoveryPoint) or outcome.claims or remembered is None or not remembered.needs_epoch:
        return outcome
    if not seen.settled and not remembered.closed:
        return Reinspect("records were left out, and another worker's batches may be under way; waiting until none can")
    epoch = find_unused_epoch(remembered)
    if isinstance(epoch, Halt):
        return epoch
    return replace(
        outcome,
        identity=ProducerIdentity(outcome.identity.producer_id, epoch, outcome.target_end),
        depth=1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT,
        claims=True,
        alone=True,
        after=drop_unlanded_epochs(remembered, seen).identity.epoch,
        counted_from=None,
    )


def find_unused_epoch(remembered: LedgerState) -> int | Halt:
    """The first producer epoch that nobody ever began, whether it landed anything or not: a worker that froze behind
    its claim may still wake up."""
    last = max(remembered.last_epoch, remembered.identity.epoch)
    if last < MAX_PRODUCER_EPOCH:
        return last + 1
    return Halt(
        "unsupported",
        f"{MAX_PRODUCER_EPOCH} producer epochs were begun on this partition (by orders, or behind records that "
        f"were left out), "
        "and there are none left",
    )


def drop_unlanded_epochs(remembered: LedgerState, seen: LogInspection) -> LedgerState:
    """What the ledger says without the producer epochs that were begun to be alone and have landed nothing: the next
    one follows its producer epoch (`after`), and the map is kept under it (`replicator.ledger.consolidation`)."""
    tail = seen.tail
    while (
        tail is not None
        and remembered.without_newest is not None
        and tail.producer_id == remembered.identity.producer_id
        and tail.producer_epoch < remembered.identity.epoch
    ):
        remembered = remembered.without_newest()
    return remembered


def drop_overtaken_epochs(remembered: LedgerState | None, seen: LogInspection) -> LedgerState | None:
    """What counts of the ledger, seen how the log ends. Where an older epoch's batch landed behind the place at which
    a newer one was to begin, the newer has nothing in the log, or that batch had been fenced: its runs never happened.
    """
    tail = seen.tail
    while (
        remembered is not None
        and tail is not None
        and remembered.without_newest is not None
        and tail.producer_id == remembered.identity.producer_id
        and tail.producer_epoch < remembered.identity.epoch
        and tail.end > remembered.identity.base
    ):
        older = remembered.without_newest()
        remembered = replace(older, needs_epoch=True, closed=False, last_epoch=remembered.last_epoch)
    return remembered
