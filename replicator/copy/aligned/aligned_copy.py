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

from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.copy.aligned.empty_log_filler import FillProgress
from watershed.replicator.copy.copy_protocol import FillingProgress
from watershed.replicator.copy.partition_copy import OutgoingBatch, PartitionCopy
from watershed.replicator.errors import BadBatch
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_states import Halt, Reinspect, pick_trouble


class OffsetGap(NamedTuple):
    """Offsets, the same on both sides, from `first` up to, not including, `end`, that hold no record."""

    first: int
    end: int


@dataclass(slots=True)
class AlignmentState:
    """What takes offsets of the target and is no batch of ours.

    filling: nothing is copied yet, the empty log is brought to the source's log start
    (`replicator.transport.alignment_threads`). progress: how far, once that has begun.
    """

    gaps: deque[OffsetGap] = field(default_factory=deque)
    closing: OffsetGap | None = None  # somebody is at it
    filling: bool = False
    progress: FillProgress | None = None
    stop_requested: Event = field(default_factory=Event, repr=False)  # whoever fills, or closes a gap, should end soon


@dataclass(slots=True, kw_only=True)
class AlignedCopy(PartitionCopy):
    """`progress.acked` and `source.position` are offsets of both logs: the position lies ahead by what is fetched and
    not yet written."""

    alignment: AlignmentState = field(default_factory=AlignmentState)

    def __post_init__(self) -> None:
        PartitionCopy.__post_init__(self)
        self.progress.copied_through = self.prepared.source = self.progress.acked
        self._leave_out(self.source.position)

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """As `PartitionCopy.accept`; runs are only there for leader epochs, as the map is the identity."""
        runs: list[OffsetRun] = []
        prepared, source = self.prepared, self.source
        with self.lock:
            for batch in selected.batches:
                if batch.base < prepared.target:
                    raise BadBatch(f"begins in front of offset {prepared.target}, which is settled", batch.base)
                if source.append_leader_epoch(batch.base, batch.leader_epoch):
                    runs.append(OffsetRun(batch.base, batch.base))
                self._leave_out(batch.base)
                self._prepare(batch)
                prepared.source = prepared.target
            if source.append_leader_epoch(prepared.source, selected.leader_epoch):
                runs.append(OffsetRun(prepared.target, prepared.target))
            self._leave_out(selected.position)
            self._end_accept(selected, runs)
        return runs

    def next_outgoing(self, now: int | None = None) -> OutgoingBatch | None:
        """As PartitionCopy; None while the log is filled or a gap comes before the next batch."""
        with self.lock:
            if self.alignment.filling or self._gap_is_next():
                return None
        return PartitionCopy.next_outgoing(self, now)

    def due(self) -> OffsetGap | None:
        """The gap to close now, which is then `closing`; None while there is none or it must wait."""
        with self.lock:
            if self.trouble is not None or not self.is_idle or not self._gap_is_next():
                return None
            gap = self.alignment.gaps[0]
            if self.prepared.is_blocked(gap.end):
                return None
            self.alignment.closing = gap
            return gap

    def closed(self, gap: OffsetGap) -> None:
        """The target's log ends at `gap.end`, and nothing is under way to it."""
        with self.lock:
            self.alignment.closing = None
            self.alignment.gaps.popleft()
            self.progress.acked = self.progress.copied_through = gap.end
            self._when_empty()

    def fail_gap(self, trouble: Halt | Reinspect) -> None:
        """It ended otherwise; an inspection finds out how far it came."""
        with self.lock:
            self.alignment.closing = None
            self.trouble = pick_trouble(self.trouble, trouble)

    def fail_overshot_gap(self, gap: OffsetGap, end: int) -> None:
        """The target's log ends at `end`, behind what it should: another worker has gone on, or somebody else writes,
        which the inspection tells apart."""
        text = f"the target's log ends at {end} where it should end at {gap.end}, behind a gap from {gap.first} on"
        self.fail_gap(Reinspect(text, "target_foreign_write"))

    @property
    def has_unsent(self) -> bool:
        """True while a batch or a gap is not sent yet."""
        return bool(self.queue.ready or self.alignment.gaps)

    @property
    def is_idle(self) -> bool:
        """True while no batch is unanswered and no gap is being filled."""
        return not self.queue.in_flight and self.alignment.closing is None

    def request_stop(self) -> None:
        """Ask whoever fills the log or a gap to end soon."""
        self.alignment.stop_requested.set()

    @property
    def is_filling(self) -> bool:
        """True while the empty log is brought to the source's log start; nothing is copied then."""
        return self.alignment.filling

    @property
    def fill_progress(self) -> FillingProgress | None:
        """How far the log is filled; None while it is not."""
        return self.alignment.progress

    def _gap_is_next(self) -> bool:
        gaps, ready = self.alignment.gaps, self.queue.ready
        return bool(gaps) and (not ready or gaps[0].first < ready[0].first)

    def _leave_out(self, end: int) -> None:
        """Nothing is copied from what was prepared last up to source offset `end`."""
        first, gaps, identity = self.prepared.target, self.alignment.gaps, self.producer.identity
        if end <= first:
            return
        self.prepared.target = self.prepared.source = end
        self.producer.identity = replace(identity, base=identity.base + end - first)
        last = gaps[-1] if gaps else None
        if last is not None and last.end == first and last is not self.alignment.closing:
            gaps[-1] = OffsetGap(last.first, end)
        else:
            gaps.append(OffsetGap(first, end))

    def _when_empty(self) -> None:
        if not self.alignment.gaps:
            PartitionCopy._when_empty(self)
