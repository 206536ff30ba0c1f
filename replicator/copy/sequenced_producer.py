"""What a copy that writes with sequence numbers knows of itself as a producer, and of the target's memory of it."""

from __future__ import annotations

from dataclasses import dataclass

from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.errors import CompactionHole
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PRODUCER_EXPIRY_MARGIN_MS, ProducerIdentity


@dataclass(slots=True)
class SequencedProducer:
    """The limits under which batches may be in flight, and whether the producer epoch may be shared.

    depth: how many batches may be in flight; 1 until the broker has confirmed that it holds our producer state.
    depth_confirmed: the same after the first answer. alone: nobody else writes under this producer epoch, so holes may
    be copied (`replicator.recovery.producer_epochs`).
    """

    identity: ProducerIdentity
    depth: int
    depth_confirmed: int
    expiration_ms: int | None = None  # the target's producer.id.expiration.ms
    remembered_by: int = -1  # time of the newest record that the target's leader has of us (ms), also from before
    alone: bool = False
    needs_epoch: bool = False  # what the ledger tells whoever looks next: this producer epoch is not to be shared
    unanswered: bool = False  # something was sent and nobody knows whether it landed
    _fetched: bool = False

    def __post_init__(self) -> None:
        self.needs_epoch = self.alone

    def note_answer(self, newest: int, now: int | None) -> None:
        """The target has stored a batch whose newest record is of `newest`; both in ms."""
        self.remembered_by = newest
        self.depth = self._depth_by(newest, now)

    def depth_at(self, now: int | None) -> int:
        """Batches that may be in flight at `now` (ms). In a partition that was idle for long, the broker may have
        forgotten us since the last answer, or the inspection."""
        newest = self.remembered_by
        return min(self.depth, self._depth_by(newest, now)) if newest >= 0 else self.depth

    def update_sharing(self, selected: SelectedBatches) -> bool:
        """Whether what the ledger has to say about this producer epoch is another thing from now on.

        Of an epoch that was begun to be alone the first answer decides: no hole in it, and the epoch may be shared from
        here on, as long as nobody meets one.
        """
        before = self.needs_epoch
        if isinstance(selected.refused, CompactionHole):
            self.needs_epoch = True
        elif self.alone and not self._fetched and not selected.holes:
            self.alone = self.needs_epoch = False
        self._fetched = True
        return self.needs_epoch != before

    def _depth_by(self, newest: int, now: int | None) -> int:
        """The broker forgets our sequence numbers by the time of the newest record that we wrote."""
        if now is None or self.expiration_ms is None:
            return self.depth_confirmed
        return MAX_BATCHES_IN_FLIGHT if newest + self.expiration_ms - now > PRODUCER_EXPIRY_MARGIN_MS else 1
