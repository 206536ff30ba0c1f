"""Producer epochs and compaction: who may copy a log with holes.

Workers that share a producer epoch may race, because the sequence check makes them write the same records at the same
places: which records follow a source offset is then a function of the log. Compaction breaks that. A worker that read
200 to 204 before the cleaner came and one that read 200, 205, 206 after it mean different records by the same sequence
numbers, and the broker would take the one for a repeat of the other: answered NONE, with the offset that was expected.

Workers that share a producer epoch therefore never send a record behind a compaction hole; `select_batches` stops in
front of it. To copy it, one worker claims a new producer epoch in the ledger. Its first batch fences all older epochs.
An epoch that was exclusive at its end, or that met a hole, is not continued: the next inspection begins another one.
The target takes the first batch of an epoch wherever its log ends. So no batch of an older epoch may be under way then:
either every worker that wrote under it has said so (`closed`), or the end of the target's log has not moved for long
enough. Whoever begins an epoch asks for that end once more (`replicator.recovery.takeover`). If that is ever violated,
the first answer has another offset than expected, and the partition halts (`duplicated`). Decision 0017.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, ProducerIdentity
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint

MAX_PRODUCER_EPOCH: Final = (1 << 15) - 1  # an int16 in the batch header


def begin_exclusive_epoch(
    outcome: RecoveryPoint | Halt | Reinspect, remembered: LedgerState | None, seen: LogInspection
) -> RecoveryPoint | Halt | Reinspect:
    """Return `outcome`, with a new producer epoch of its own if the last one must not be shared."""
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
    """The first producer epoch that no worker ever claimed. An epoch without a batch in the log counts as claimed: its
    worker may only be frozen."""
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
    """Drop the newest producer epochs that wrote nothing to the target's log; return the state of the newest that did.

    The next epoch names it in `after`, and consolidation stores the map under it (`replicator.ledger.consolidation`).
    """
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
    """Drop newer producer epochs if a batch of an older one stands at or behind their base.

    Such a newer epoch has written nothing: its first batch would have fenced the older epoch. Its runs never happened.
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
