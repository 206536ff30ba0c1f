"""Copying one partition whose records are changed on their way, as decisions without I/O.

What is fetched waits as parts of the source's log until somebody has transformed them; only then are there batches to
send, and only so far does the ledger say that the source is copied. All else is as in `TransactionCopy`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.batch.record_batch import BatchChecksum, RawBatch
from watershed.replicator.batch.untransformed_selection import UntransformedPart
from watershed.replicator.copy.common_copy import HELD_BYTES
from watershed.replicator.copy.rejected_records import judge_refused_batch
from watershed.replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy, UncommittedBatch
from watershed.replicator.errors import BadBatch
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_states import Halt, Reinspect


class _Through(NamedTuple):
    """How far the source is transformed: the next offset, and the leader epoch of the batch before it."""

    position: int
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class TransformedCopy(TransactionCopy):
    """waiting: fetched and not yet transformed, oldest first; its first one may be under way."""

    waiting: deque[tuple[UntransformedPart, CopyPath, float]] = field(default_factory=deque)
    _through: _Through = field(default_factory=lambda: _Through(-1, -1))
    _refused: Halt | Reinspect | None = None  # a batch behind all that waits cannot be copied

    def __post_init__(self) -> None:
        TransactionCopy.__post_init__(self)
        self._through = _Through(self.source.position, self.source.leader_epoch)

    # -- the fetching side -------------------------------------------------------------------------------------

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Never called: what is fetched goes to `hold`."""
        raise NotImplementedError("records of this partition are transformed before they are sent")

    def hold(
        self, parts: Sequence[UntransformedPart], last_batch: BatchChecksum | None, refused: BadBatch | None
    ) -> None:
        """Take what a Fetch at `source.position` brought; the next Fetch begins behind it. refused: what stands there,
        if it cannot be copied."""
        with self.lock:
            for part in parts:
                path = self.path_of(part.first) if part.first is not None else ()
                self.waiting.append((part, path, self.source.received_at))
                self.queue.buffered += part.size
                self.source.position = part.end
                if part.leader_epoch >= 0:
                    self.source.leader_epoch = part.leader_epoch
            self.source.last_batch = last_batch or self.source.last_batch
            if refused is not None and self.refusals.batch is None:
                self._refused = judge_refused_batch(refused)
            self._pass_empty_parts()
            self._when_empty()

    # -- whoever transforms ------------------------------------------------------------------------------------

    def list_waiting(self, most: int) -> list[UntransformedPart]:
        """The oldest parts that wait and hold records, `most` bytes of them and at least one; none once the copy has
        ended. Small ones that follow one another have become one. `take_transformed` takes the results of them in this
        order; it passes the parts without records between them by itself."""
        with self.lock:
            if self.trouble is not None or self.refusals.batch is not None:
                return []
            self._join_small_parts()
            found: list[UntransformedPart] = []
            for part, _, _ in self.waiting:
                if part.first is None:
                    continue
                if found and sum(each.size for each in found) + part.size > most:
                    break
                found.append(part)
            return found

    def take_transformed(
        self, part: UntransformedPart, batches: Sequence[RawBatch], refused: Halt | Reinspect | None, through: int
    ) -> bool:
        """The oldest part, `part`, became these batches. refused: why nothing behind them can be copied; the source is
        copied through `through` then. False when the copy has ended meanwhile, or another part is the oldest."""
        with self.lock:
            if self.trouble is not None or not self.waiting or self.waiting[0][0] is not part:
                return False
            _, path, received_at = self.waiting.popleft()
            self.queue.buffered -= part.size
            for batch in batches:
                self.queue.ready.append(UncommittedBatch(batch, path, received_at))
                self.queue.buffered += len(batch.data)
            epoch = part.leader_epoch if part.leader_epoch >= 0 else self._through.leader_epoch
            self._through = _Through(through, epoch)
            if refused is not None:
                self.refusals.batch = self.refusals.batch or refused
                self.queue.buffered -= sum(each.size for each, _, _ in self.waiting)
                self.waiting.clear()
            self._pass_empty_parts()
            self._when_empty()
        return True

    def _join_small_parts(self) -> None:
        """A part is what one Fetch brought, and whatever its size it costs two processes a millisecond each."""
        joined: deque[tuple[UntransformedPart, CopyPath, float]] = deque()
        for part, path, received_at in self.waiting:
            if joined and joined[-1][1] == path and joined[-1][0].can_take(part):
                joined[-1][0].extend(part)
            else:
                joined.append((part, path, received_at))
        self.waiting = joined

    def _pass_empty_parts(self) -> None:
        """Parts of the log that hold no record to copy need nobody."""
        while self.waiting and self.waiting[0][0].first is None:
            part = self.waiting.popleft()[0]
            epoch = part.leader_epoch if part.leader_epoch >= 0 else self._through.leader_epoch
            self._through = _Through(part.end, epoch)
        if self._refused is not None and not self.waiting:
            self.refusals.batch = self.refusals.batch or self._refused

    @property
    def is_full(self) -> bool:
        """True while enough is held: what is transformed now, what is next, and what is being sent."""
        return self.queue.buffered >= 5 * HELD_BYTES

    # -- the sending side --------------------------------------------------------------------------------------

    def _covered(self) -> tuple[int, int]:
        return self._through
