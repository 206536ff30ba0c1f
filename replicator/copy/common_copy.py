"""What the three deliveries do alike: read on, stop, and halt behind the last batch that can be copied."""

from __future__ import annotations

import uuid
from dataclasses import KW_ONLY, dataclass, field
from threading import Lock
from typing import Final, Generic, TypeVar

from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.copy.copy_protocol import FillingProgress
from watershed.replicator.copy.copy_state import BatchQueue, Refusals, SourceCursor, TargetProgress
from watershed.replicator.copy.rejected_records import judge_refused_batch
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import EndReached, Halt, Reinspect, pick_trouble

_Batch = TypeVar("_Batch")


HELD_BYTES: Final = 8 << 20  # of a partition: batches that wait or are unanswered


@dataclass(slots=True)
class CommonCopy(Generic[_Batch]):
    """State and answers that `replicator.copy.copy_protocol.Copy` asks for and that no delivery changes.

    trouble: why nothing more is sent; None while copying goes on.
    """

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    source: SourceCursor
    progress: TargetProgress
    _: KW_ONLY
    queue: BatchQueue[_Batch] = field(default_factory=BatchQueue)
    refusals: Refusals = field(default_factory=Refusals)
    trouble: Halt | Reinspect | None = None
    lock: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        self.progress.copied_through = self.source.position

    def halt(self, reason: str) -> None:
        """Send nothing more and inspect again; what is in flight is still answered or committed."""
        self.stop(Reinspect(reason))

    def stop(self, trouble: Halt | Reinspect) -> None:
        """Send nothing more. The first trouble counts; a halt replaces a reason to inspect again."""
        with self.lock:
            self.trouble = pick_trouble(self.trouble, trouble)

    def request_stop(self) -> None:
        """Nothing to do: no log is filled."""

    @property
    def is_idle(self) -> bool:
        """True while no batch is unanswered, or waits for its transaction to be committed."""
        return not self.queue.in_flight

    @property
    def is_full(self) -> bool:
        """True while nothing more should be fetched: enough is held."""
        return self.queue.buffered >= HELD_BYTES

    @property
    def has_unsent(self) -> bool:
        """True while a batch waits to be sent."""
        return bool(self.queue.ready)

    @property
    def is_filling(self) -> bool:
        """False: no log is filled."""
        return False

    @property
    def fill_progress(self) -> FillingProgress | None:
        """None: no log is filled."""
        return None

    def _read_on(self, selected: SelectedBatches) -> None:
        """Remember where the next Fetch begins, and the first batch that cannot be copied."""
        self.source.advance(selected)
        if selected.refused is not None and self.refusals.batch is None:
            self.refusals.batch = judge_refused_batch(selected.refused)

    def _when_empty(self) -> None:
        """Nothing waits and nothing is in flight: only now may a refused batch stop the partition, or its end."""
        if self.trouble is not None or not self.queue.is_empty:
            return
        limit = self.source.limit
        if limit is not None and limit.is_reached_at(self.progress.copied_through):
            self.trouble = EndReached()
        else:
            self.trouble = self.refusals.batch
