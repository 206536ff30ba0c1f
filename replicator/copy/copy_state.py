"""What every copy keeps, whatever its delivery: how far both logs are, what is in flight, and what was refused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.partition_states import Halt, Reinspect

if TYPE_CHECKING:
    from watershed.replicator.batch.batch_selection import SelectedBatches
    from watershed.replicator.batch.record_batch import BatchChecksum

_Batch = TypeVar("_Batch")


@dataclass(slots=True)
class SourceCursor:
    """Where the source is read, and what its leader said. All offsets are source offsets.

    leader_epoch: of the last batch that was read; a Fetch names it (KIP-320). last_batch: the same batch. asked_at:
    when the last Fetch was sent that was answered (monotonic). Both are looked at where the topic has no id
    (`replicator.transport.confirmation`). received_at: when its answer came (monotonic). limit: where reading ends;
    None: never.
    """

    position: int  # of the next Fetch
    leader_epoch: int = -1
    epochs: list[LeaderEpochEntry] = field(default_factory=list)  # as far as they are known
    last_batch: BatchChecksum | None = None
    asked_at: float = 0.0
    received_at: float = 0.0
    end: int = -1  # last stable offset at the last fetch, or the limit where that is lower
    high_watermark: int = -1  # what lies between `end` and here waits for a transaction to end
    seen_at: float = 0.0  # when the source told its end (monotonic); 0: not yet
    limit: CopyLimit | None = None

    @property
    def is_at_limit(self) -> bool:
        """Whether nothing more is to be fetched."""
        return self.limit is not None and self.limit.is_reached_at(self.position)

    def note_log_end(self, last_stable: int, high_watermark: int) -> None:
        """The source said where its log ends. What lies behind the limit does not count."""
        most = None if self.limit is None else self.limit.offset
        self.end = last_stable if most is None else min(last_stable, most)
        self.high_watermark = high_watermark if most is None else min(high_watermark, most)

    def advance(self, selected: SelectedBatches) -> None:
        """The next Fetch begins behind what was selected."""
        self.position = selected.position
        if selected.leader_epoch >= 0:
            self.leader_epoch = selected.leader_epoch
        self.last_batch = selected.last_batch or self.last_batch

    def append_leader_epoch(self, source: int, epoch: int) -> bool:
        """Whether another leader epoch begins here that the ledger must know before anything behind it is sent. The
        first one that is known at all need not: as long as it is not written down it counts as unknown."""
        if epoch < 0 or (self.epochs and self.epochs[-1].epoch == epoch):
            return False
        self.epochs.append(LeaderEpochEntry(source, epoch))
        return len(self.epochs) > 1


@dataclass(slots=True)
class TargetProgress:
    """How far the target has answered. Bytes are of this copy only: a later copy begins with 0."""

    acked: int  # target offset behind the last record of ours that the target has answered for
    copied_through: int = -1  # source offset; with transactions: committed
    copied_bytes: int = 0  # before our compression
    saved_bytes: int = 0  # so many of them were not sent, thanks to it
    copied_timestamp: int = -1  # of the newest record (ms)


@dataclass(slots=True)
class BatchQueue(Generic[_Batch]):
    """Batches on their way, oldest first. In flight: sent and without an answer (five at most), or in the open
    transaction, which ends for all of them at once: a list does, and an empty one takes 56 bytes, a deque 624."""

    ready: deque[_Batch] = field(default_factory=deque)
    in_flight: list[_Batch] = field(default_factory=list)
    buffered: int = 0  # bytes of both
    saved: int = 0  # bytes that they had more before our compression

    @property
    def is_empty(self) -> bool:
        """True while nothing waits and nothing is in flight."""
        return not self.in_flight and not self.ready


@dataclass(slots=True)
class Refusals:
    """What cannot be copied as it is, and what happens to it."""

    quarantine: bool = False  # records that the target refuses are left out at the next attempt, instead of stopping
    batch: Halt | Reinspect | None = None  # a batch that cannot be copied; everything before it still is
    records: dict[int, str] = field(default_factory=dict)  # source offset → what the target said
    too_large: bool = False  # the target's limit is lower than we thought
