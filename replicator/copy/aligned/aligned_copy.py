"""Copying one partition so that every record keeps its offset, as decisions without I/O.

Like `replicator.copy.partition_copy.PartitionCopy`, except for what the source has no records for (markers, aborted and
compacted records). Such a *gap* is closed before anything behind it is sent: `due` hands it out once everything in
front of it is acknowledged, and `closed` says that the target's log ends behind it. A gap takes offsets and no sequence
numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from threading import Event
from typing import NamedTuple

from replicator.batch.batch_selection import SelectedBatches
from replicator.copy.aligned.empty_log_filler import FillProgress
from replicator.copy.copy_protocol import FillingProgress
from replicator.copy.partition_copy import OutgoingBatch, PartitionCopy
from replicator.copy.rejected_records import judge_refused_batch
from replicator.errors import BadBatch
from replicator.ledger.offset_map import OffsetRun
from replicator.partition_states import Halt, Reinspect, pick_trouble


class OffsetGap(NamedTuple):
    """Offsets, the same on both sides, from `first` up to, not including, `end`, that hold no record."""

    first: int
    end: int


@dataclass(slots=True)
class AlignedCopy(PartitionCopy):
    """`acked` and `position` are offsets of both logs: `position` lies ahead by what is fetched and not yet written.

    filling: nothing is copied yet, the empty log is brought to the source's log start
    (`replicator.transport.alignment_threads`).
    """

    gaps: deque[OffsetGap] = field(default_factory=deque)
    filling: bool = False
    closing: OffsetGap | None = None  # somebody is at it
    progress: FillProgress | None = None  # while it is filled
    stop_requested: Event = field(default_factory=Event, repr=False)  # whoever fills, or closes a gap, should end soon

    def __post_init__(self) -> None:
        PartitionCopy.__post_init__(self)
        self.copied_through = self._expected = self.acked
        self._leave_out(self.position)

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """As `PartitionCopy.accept`; runs are only there for leader epochs, as the map is the identity."""
        runs: list[OffsetRun] = []
        with self.lock:
            for batch in selected.batches:
                if batch.base < self._prepared:
                    raise BadBatch(f"begins in front of offset {self._prepared}, which is settled", batch.base)
                if self._append_leader_epoch(batch.base, batch.leader_epoch):
                    runs.append(OffsetRun(batch.base, batch.base))
                self._leave_out(batch.base)
                self._prepare(batch)
                self._expected = self._prepared
            if self._append_leader_epoch(self._expected, selected.leader_epoch):
                runs.append(OffsetRun(self._prepared, self._prepared))
            self._leave_out(selected.position)
            self.position = selected.position
            if selected.leader_epoch >= 0:
                self.leader_epoch = selected.leader_epoch
            if selected.refused is not None and self.refused is None:
                self.refused = judge_refused_batch(selected.refused)
            if self._update_sharing(selected):
                runs.append(OffsetRun(self._prepared, self._prepared))
            self._blocked_from.extend(run.target for run in runs)
            self._when_empty()
        return runs

    def next_outgoing(self, now: int | None = None) -> OutgoingBatch | None:
        """As PartitionCopy; None while the log is filled or a gap comes before the next batch."""
        with self.lock:
            if self.filling or self._gap_is_next():
                return None
        return PartitionCopy.next_outgoing(self, now)

    def due(self) -> OffsetGap | None:
        """The gap to close now, which is then `closing`; None while there is none or it must wait."""
        with self.lock:
            if self.trouble is not None or self.closing is not None or self.in_flight or not self._gap_is_next():
                return None
            gap = self.gaps[0]
            if self._blocked_from and gap.end > self._blocked_from[0]:
                return None
            self.closing = gap
            return gap

    def closed(self, gap: OffsetGap) -> None:
        """The target's log ends at `gap.end`, and nothing is under way to it."""
        with self.lock:
            self.closing = None
            self.gaps.popleft()
            self.acked = self.copied_through = gap.end
            self._when_empty()

    def fail_gap(self, trouble: Halt | Reinspect) -> None:
        """It ended otherwise; an inspection finds out how far it came."""
        with self.lock:
            self.closing = None
            self.trouble = pick_trouble(self.trouble, trouble)

    def fail_overshot_gap(self, gap: OffsetGap, end: int) -> None:
        """The target's log ends at `end`, behind what it should: another worker has gone on, or somebody else writes,
        which the inspection tells apart."""
        text = f"the target's log ends at {end} where it should end at {gap.end}, behind a gap from {gap.first} on"
        self.fail_gap(Reinspect(text, "target_foreign_write"))

    @property
    def has_unsent(self) -> bool:
        """True while a batch or a gap is not sent yet."""
        return bool(self.ready or self.gaps)

    @property
    def is_idle(self) -> bool:
        """True while no batch is unanswered and no gap is being filled."""
        return not self.in_flight and self.closing is None

    def request_stop(self) -> None:
        """Ask whoever fills the log or a gap to end soon."""
        self.stop_requested.set()

    @property
    def is_filling(self) -> bool:
        """True while the empty log is brought to the source's log start; nothing is copied then."""
        return self.filling

    @property
    def fill_progress(self) -> FillingProgress | None:
        """How far the log is filled; None while it is not."""
        return self.progress

    def _gap_is_next(self) -> bool:
        return bool(self.gaps) and (not self.ready or self.gaps[0].first < self.ready[0].first)

    def _leave_out(self, end: int) -> None:
        """Nothing is copied from what was prepared last up to source offset `end`."""
        if end <= self._prepared:
            return
        first = self._prepared
        self._prepared = self._expected = end
        self.identity = replace(self.identity, base=self.identity.base + end - first)
        last = self.gaps[-1] if self.gaps else None
        if last is not None and last.end == first and last is not self.closing:
            self.gaps[-1] = OffsetGap(last.first, end)
        else:
            self.gaps.append(OffsetGap(first, end))

    def _when_empty(self) -> None:
        if not self.gaps:
            PartitionCopy._when_empty(self)
