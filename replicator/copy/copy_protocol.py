"""What the fetcher, the partition task and the copy registry use of a copy, whatever its delivery."""

from __future__ import annotations

import uuid
from threading import Lock
from typing import Protocol

from replicator.batch.batch_selection import SelectedBatches
from replicator.ledger.offset_map import OffsetRun
from replicator.partition_key import PartitionKey
from replicator.partition_states import Halt, Reinspect


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

    Sequenced, aligned and transactional delivery implement it. position, source_end, high_watermark, copied_through:
    source offsets; acked: the end of our records on the target.
    """

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    position: int
    acked: int
    leader_epoch: int
    depth: int
    buffered: int
    source_end: int
    high_watermark: int
    source_seen: float
    copied_through: int
    copied_bytes: int
    copied_timestamp: int
    trouble: Halt | Reinspect | None
    refused: Halt | Reinspect | None
    quarantine: bool
    refused_records: dict[int, str]
    too_large: bool
    lock: Lock

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch at `position` brought. Returns the runs that the ledger must hold before they are sent."""

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
    def is_crowded(self) -> bool:
        """True while many small batches wait because the target is slower than the source."""

    @property
    def is_filling(self) -> bool:
        """True while the empty log is brought to the source's log start; nothing is copied then."""

    @property
    def fill_progress(self) -> FillingProgress | None:
        """How far the log is filled; None while it is not."""

    @property
    def can_close_epoch(self) -> bool:
        """True if the ledger may record that nothing of this producer epoch is under way any more."""
