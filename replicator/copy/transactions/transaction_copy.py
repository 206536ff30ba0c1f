"""Copying one partition in transactions, as decisions without I/O.

The fetching side calls `accept`, the slot's writer (`replicator.copy.transactions.slot_writer`) everything else. Unlike
in `replicator.copy.partition_copy.PartitionCopy`, nothing has a target offset before the target has answered, and
nothing counts before the transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.common_copy import CommonCopy
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.transaction_positions import LedgerEntry, PositionTracker
from watershed.replicator.partition_states import Halt, Reinspect

CopyPath = tuple[str, ...]  # cluster ids, birth place first


class UncommittedBatch(NamedTuple):
    """A batch that is not committed yet, which way it came, and when (monotonic)."""

    batch: RawBatch
    path: CopyPath
    received_at: float


@dataclass(slots=True)
class _TransactionPart:
    """What the open transaction holds of one partition, beside the batches."""

    landed: list[ExplicitRun] = field(default_factory=list)
    answered: int = 0  # batches
    log_start: int = -1  # of the target
    covered: int = -1  # source offset that the transaction's ledger record says

    def clear(self) -> None:
        self.landed.clear()
        self.answered = 0


@dataclass(slots=True, kw_only=True)
class TransactionCopy(CommonCopy[UncommittedBatch]):
    """One partition in one session of its slot. In flight is what is in the transaction that is open.

    `path_of` says which way a batch came; all batches of a transaction came the same way.
    """

    track: PositionTracker
    path_of: Callable[[RawBatch], CopyPath]
    begins: bool = False  # the ledger does not know this partition yet
    _part: _TransactionPart = field(default_factory=_TransactionPart)

    # -- the fetching side -------------------------------------------------------------------------------------

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch at `source.position` brought. There is never a run to announce."""
        with self.lock:
            for batch in selected.batches:
                self.queue.ready.append(UncommittedBatch(batch, self.path_of(batch), self.source.received_at))
                self.queue.buffered += len(batch.data)
                self.queue.saved += batch.saved
            self._read_on(selected)
            self._when_empty()
        return []

    @property
    def is_crowded(self) -> bool:
        """False: small batches share a transaction and its requests."""
        return False

    @property
    def is_young(self) -> bool:
        """True: a transaction is exact whatever the age of the records."""
        return True

    @property
    def can_close_epoch(self) -> bool:
        """False: a coordinator fences the epochs of a transactional id."""
        return False

    # -- the sending side --------------------------------------------------------------------------------------

    def next_path(self) -> CopyPath | None:
        """The way of the batch that is next; None when there is none or nothing may be sent."""
        with self.lock:
            return self.queue.ready[0].path if self.queue.ready and self.trouble is None else None

    def take(self, path: CopyPath) -> RawBatch | None:
        """The next batch, which is in flight then, if it came that way."""
        ready = self.queue.ready
        with self.lock:
            if self.trouble is not None or not ready or ready[0].path != path:
                return None
            taken = ready.popleft()
            self.queue.in_flight.append(taken)
            return taken.batch

    def landed(self, base_offset: int, log_start: int) -> bool:
        """The oldest batch without an answer was written at `base_offset`. False when that cannot be: it lies below
        what was written before, so the broker took new records for a repetition of old ones."""
        part = self._part
        batch = self.queue.in_flight[part.answered].batch
        if base_offset < self.progress.acked:
            return False
        target = base_offset
        for source, records in batch.spans or ((batch.base, batch.records),):
            part.landed.append(ExplicitRun(target, source, records))
            target += records
        self.progress.acked, part.log_start = target, log_start
        part.answered += 1
        return True

    @property
    def lagging(self) -> bool:
        """Whether the ledger should hear of a position although no record was written."""
        behind = self.begins or self.progress.copied_through < self._covered()[0]
        return self.trouble is None and not self.queue.ready and behind

    def entries(self) -> list[LedgerEntry]:
        """The ledger records of the open transaction, as far as they are about this partition."""
        with self.lock:
            last = self.queue.in_flight[-1].batch if self.queue.in_flight else None
            if self.queue.ready or self.trouble is not None:  # what was left out behind `last` waits for what follows
                covered = last.end if last is not None else self.progress.copied_through
                epoch = last.leader_epoch if last is not None else self.track.position.leader_epoch
            else:
                covered, epoch = self._covered()
            self._part.covered = covered
            return self.track.advance(self._part.landed, covered, epoch, self._part.log_start)

    def _covered(self) -> tuple[int, int]:
        """The source offset that is copied through once all that waits is written, and its leader epoch."""
        return self.source.position, self.source.leader_epoch

    def committed(self) -> list[tuple[float, int, int]]:
        """The open transaction is committed. Returns for each of its batches when it came (monotonic), its number of
        records, and its newest timestamp (ms)."""
        queue, progress = self.queue, self.progress
        with self.lock:
            received = [
                (waiting.received_at, waiting.batch.records, waiting.batch.max_timestamp) for waiting in queue.in_flight
            ]
            self.track.committed()
            self.begins = False
            progress.copied_through = self._part.covered
            for waiting in queue.in_flight:
                size = len(waiting.batch.data)
                queue.buffered -= size
                queue.saved -= waiting.batch.saved
                progress.copied_bytes += size + waiting.batch.saved
                progress.saved_bytes += waiting.batch.saved
                progress.copied_timestamp = waiting.batch.max_timestamp
            self._forget_transaction()
            self._when_empty()
        return received

    def rolled_back(self) -> None:
        """The open transaction is aborted for sure: its batches are sent again in the next one."""
        with self.lock:
            self.track.rolled_back()
            self.queue.ready.extendleft(reversed(self.queue.in_flight))
            self._forget_transaction()

    def lost(self, trouble: Halt | Reinspect) -> None:
        """Nobody knows how the open transaction ended, or the slot belongs to somebody else."""
        self.stop(trouble)
        with self.lock:
            self.track.rolled_back()
            self._forget_transaction()

    def _forget_transaction(self) -> None:
        self.queue.in_flight.clear()
        self._part.clear()
