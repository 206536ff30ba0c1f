"""What the fetcher, the partition task and the copy registry use of a copy, whatever its delivery."""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.copy.copy_state import BatchQueue, Refusals, SourceCursor, TargetProgress
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect


class FillingProgress(Protocol):
    """How far the target's log is filled. seconds_left: None while the rate is not known."""

    @property
    def done(self) -> int:
        """Offsets filled so far."""

    @property
    def of(self) -> int:
        """Offsets to fill."""

    @property
    def rate(self) -> float:
        """Offsets a second."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until it is filled, at this rate."""


class Copy(Protocol):
    """One partition between two log inspections, without I/O.

    Sequenced, aligned and transactional delivery implement it (what they share: `replicator.copy.common_copy`).
    """

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    source: SourceCursor
    progress: TargetProgress
    refusals: Refusals
    trouble: Halt | Reinspect | None

    @property
    def queue(self) -> BatchQueue[Any]:
        """What waits and what is in flight."""

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch at `source.position` brought. Returns the runs that the ledger must hold first."""

    def halt(self, reason: str) -> None:
        """Send nothing more and inspect again; what is in flight is still answered or committed."""

    def stop(self, trouble: Halt | Reinspect) -> None:
        """Send nothing more. The first trouble counts; a halt replaces a reason to inspect again."""

    def request_stop(self) -> None:
        """Ask whoever fills the log or a gap to end soon."""

    @property
    def is_idle(self) -> bool:
        """True while nothing is unanswered: the copy may be removed."""

    @property
    def has_unsent(self) -> bool:
        """True while something waits to be sent."""

    @property
    def is_full(self) -> bool:
        """True while nothing more should be fetched: enough is held."""

    @property
    def is_crowded(self) -> bool:
        """True while many small batches wait because the target is slower than the source."""

    @property
    def is_young(self) -> bool:
        """True while several batches may be in flight (see the glossary)."""

    @property
    def is_filling(self) -> bool:
        """True while the empty log is brought to the source's log start; nothing is copied then."""

    @property
    def fill_progress(self) -> FillingProgress | None:
        """How far the log is filled; None while it is not."""

    @property
    def can_close_epoch(self) -> bool:
        """True if the ledger may record that nothing of this producer epoch is under way any more."""
