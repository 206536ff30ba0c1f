"""Copying one partition in transactions, as decisions without I/O.

The fetching side calls `accept`, the slot's writer (`replicator.copy.transactions.slot_writer`) everything else. Unlike
`partition.PartitionCopy` nothing has a target offset before the target has answered, and nothing counts before the
transaction is committed.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from replicator.batch.batch_selection import SelectedBatches
from replicator.batch.record_batch import RawBatch
from replicator.copy.copy_protocol import FillingProgress
from replicator.copy.rejected_records import judge_refused_batch
from replicator.ledger.offset_map import ExplicitRun, OffsetRun
from replicator.ledger.transaction_positions import LedgerEntry, PositionTracker
from replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PartitionKey
from replicator.partition_states import Halt, Reinspect, pick_trouble

CopyPath = tuple[str, ...]  # cluster ids, birth place first


class _UncommittedBatch(NamedTuple):
    """A batch that is not committed yet, and which way it came."""

    batch: RawBatch
    path: CopyPath


@dataclass(slots=True)
class TransactionCopy:
    """State of one partition in one session of its slot. Offsets: `position` on the source, `acked` on the target.

    `path_of` says which way a batch came; all batches of a transaction came the same way.
    """

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    track: PositionTracker
    path_of: Callable[[RawBatch], CopyPath]
    position: int
    acked: int  # behind the last record of ours that the target has answered for
    leader_epoch: int = -1
    ready: deque[_UncommittedBatch] = field(default_factory=deque)
    sent: deque[_UncommittedBatch] = field(default_factory=deque)  # in the transaction that is open
    buffered: int = 0  # bytes in ready and sent
    source_end: int = -1  # last stable offset at the last fetch
    high_watermark: int = -1  # of the source
    source_seen: float = 0.0  # when the source told its end (monotonic); 0: not yet
    copied_through: int = -1  # source offset, committed
    copied_bytes: int = 0
    copied_timestamp: int = -1
    trouble: Halt | Reinspect | None = None
    refused: Halt | Reinspect | None = None  # a batch that cannot be copied; everything before it still is
    quarantine: bool = False  # records that the target refuses are left out at the next attempt, instead of stopping
    refused_records: dict[int, str] = field(default_factory=dict)  # source offset → what the target said
    too_large: bool = False  # the target's limit is lower than we thought
    depth: int = MAX_BATCHES_IN_FLIGHT  # batches in flight; a transaction is exact whatever the age of the records
    begins: bool = False  # the ledger does not know this partition yet
    lock: Lock = field(default_factory=Lock, repr=False)
    _landed: list[ExplicitRun] = field(default_factory=list)
    _answered: int = 0  # of `sent`
    _log_start: int = -1  # of the target
    _covered: int = -1  # source offset that the open transaction's ledger record says

    def __post_init__(self) -> None:
        self.copied_through = self.position

    # -- the fetching side -------------------------------------------------------------------------------------

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch at `position` brought. There is never a run to announce."""
        with self.lock:
            for batch in selected.batches:
                self.ready.append(_UncommittedBatch(batch, self.path_of(batch)))
                self.buffered += len(batch.data)
            self.position = selected.position
            if selected.leader_epoch >= 0:
                self.leader_epoch = selected.leader_epoch
            if selected.refused is not None and self.refused is None:
                self.refused = judge_refused_batch(selected.refused)
            self._when_empty()
        return []

    def halt(self, reason: str) -> None:
        """Send nothing more; what is in the open transaction is still committed."""
        self.stop(Reinspect(reason))

    def request_stop(self) -> None:
        """Nothing to do: no log is filled."""

    @property
    def is_idle(self) -> bool:
        """True while no batch waits for its transaction to be committed."""
        return not self.sent

    @property
    def has_unsent(self) -> bool:
        """True while a batch waits for a transaction."""
        return bool(self.ready)

    @property
    def is_crowded(self) -> bool:
        """False: small batches share a transaction and its requests."""
        return False

    @property
    def is_filling(self) -> bool:
        """False: no log is filled."""
        return False

    @property
    def fill_progress(self) -> FillingProgress | None:
        """None: no log is filled."""
        return None

    @property
    def can_close_epoch(self) -> bool:
        """False: a coordinator fences the epochs of a transactional id."""
        return False

    # -- the sending side --------------------------------------------------------------------------------------

    def next_path(self) -> CopyPath | None:
        """The way of the batch that is next; None when there is none or nothing may be sent."""
        with self.lock:
            return self.ready[0].path if self.ready and self.trouble is None else None

    def take(self, path: CopyPath) -> RawBatch | None:
        """The next batch, moved to `sent`, if it came that way."""
        with self.lock:
            if self.trouble is not None or not self.ready or self.ready[0].path != path:
                return None
            self.sent.append(self.ready.popleft())
            return self.sent[-1].batch

    def landed(self, base_offset: int, log_start: int) -> bool:
        """The oldest batch without an answer was written at `base_offset`. False when that cannot be: it lies below
        what was written before, so the broker took new records for a repetition of old ones."""
        batch = self.sent[self._answered].batch
        if base_offset < self.acked:
            return False
        target = base_offset
        for source, records in batch.spans or ((batch.base, batch.records),):
            self._landed.append(ExplicitRun(target, source, records))
            target += records
        self.acked, self._answered, self._log_start = target, self._answered + 1, log_start
        return True

    @property
    def lagging(self) -> bool:
        """Whether the ledger should hear of a position although no record was written."""
        return self.trouble is None and not self.ready and (self.begins or self.copied_through < self.position)

    def entries(self) -> list[LedgerEntry]:
        """The ledger records of the open transaction, as far as they are about this partition."""
        with self.lock:
            last = self.sent[-1].batch if self.sent else None
            if self.ready or self.trouble is not None:  # what was left out behind `last` waits for what follows it
                covered = last.end if last is not None else self.copied_through
                epoch = last.leader_epoch if last is not None else self.track.position.leader_epoch
            else:
                covered, epoch = self.position, self.leader_epoch
            self._covered = covered
            return self.track.advance(self._landed, covered, epoch, self._log_start)

    def committed(self) -> None:
        """The open transaction is committed."""
        with self.lock:
            self.track.committed()
            self.begins = False
            self.copied_through = self._covered
            for waiting in self.sent:
                size = len(waiting.batch.data)
                self.buffered -= size
                self.copied_bytes += size
                self.copied_timestamp = waiting.batch.max_timestamp
            self._forget_transaction()
            self._when_empty()

    def rolled_back(self) -> None:
        """The open transaction is aborted for sure: its batches are sent again in the next one."""
        with self.lock:
            self.track.rolled_back()
            self.ready.extendleft(reversed(self.sent))
            self._forget_transaction()

    def lost(self, trouble: Halt | Reinspect) -> None:
        """Nobody knows how the open transaction ended, or the slot belongs to somebody else."""
        self.stop(trouble)
        with self.lock:
            self.track.rolled_back()
            self._forget_transaction()

    def stop(self, trouble: Halt | Reinspect) -> None:
        """Send nothing more. The first trouble counts; a halt replaces a reason to inspect again."""
        with self.lock:
            self.trouble = pick_trouble(self.trouble, trouble)

    def _forget_transaction(self) -> None:
        self.sent.clear()
        self._landed.clear()
        self._answered = 0

    def _when_empty(self) -> None:
        """Nothing waits and nothing is being written: only now may a refused batch stop the partition."""
        if not self.sent and not self.ready and self.trouble is None:
            self.trouble = self.refused
