"""Writing the position of a partition that is copied with repeats: behind the answers, about once a second.

One record is under way at a time, so a position never stands in the ledger without the blocks that it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from watershed.clusters.control_topics import LEDGER_TOPIC, ControlWriter, compute_slot
from watershed.clusters.errors import ClusterError
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.ledger.transaction_positions import LedgerEntry, LogKnowledge, PositionTracker


class StoredProgress(NamedTuple):
    """What answers have said since they were asked last. landed: runs in log order. position: the source is
    copied through this offset; leader_epoch: of the source batch before it, -1 if unknown. known_end: target offset
    behind what was stored. settled: nothing is under way, and the outcome of everything is known."""

    landed: tuple[ExplicitRun, ...]
    position: int
    leader_epoch: int
    known_end: int
    settled: bool


@dataclass(slots=True)
class PositionWriter:
    """Writes what the answers say. take: gives it (`replicator.copy.repeatable_copy`). later: runs a function outside
    any acknowledgement of `writer` (see `replicator.ledger.ledger_writer`)."""

    writer: ControlWriter
    track: PositionTracker
    take: Callable[[], StoredProgress]
    on_failure: Callable[[ClusterError], None]
    later: Callable[[Callable[[], None]], None]
    _under_way: bool = False
    _closing: bool = False
    _failed: bool = False
    _lock: Lock = field(default_factory=Lock)

    def write(self) -> None:
        """Begin to write what is new; returns at once. While a record is under way, or nothing is new, nothing
        happens."""
        with self._lock:
            entries = self._next()
        if entries:
            self._put(entries)

    def close(self) -> None:
        """The copy has ended: write the last position, and whether anything may still be under way."""
        with self._lock:
            self._closing = True
        self.write()

    def _next(self) -> list[LedgerEntry]:
        if self._under_way or self._failed:
            return []
        progress, here = self.take(), self.track.position
        assert here.log is not None, "a partition that is copied with repeats"
        log = LogKnowledge(progress.known_end, self._closing and progress.settled)
        if not progress.landed and (progress.position, log) == (here.position, here.log):
            return []
        self._under_way, self._closing = True, False
        return self.track.advance(progress.landed, progress.position, progress.leader_epoch, log=log)

    def _put(self, entries: list[LedgerEntry]) -> None:
        """Write the first of these; its acknowledgement writes the next."""
        (name, value), *others = entries
        key = self.track.position.key

        def done(error: ClusterError | None, _offset: int) -> None:
            if error is not None:
                self._fail(error)
            elif others:
                self.later(lambda: self._put(others))
            else:
                self.later(self._finish)

        try:
            slot = compute_slot(key.flow, key.topic, key.partition)
            self.writer.put_nowait(LEDGER_TOPIC, name, value, slot, on_done=done)
        except ClusterError as error:
            self._fail(error)

    def _finish(self) -> None:
        with self._lock:
            self.track.committed()
            self._under_way = False
            again = self._closing
        if again:
            self.write()

    def _fail(self, error: ClusterError) -> None:
        with self._lock:
            self._failed = True  # the next takeover reads the ledger, and the log behind what it says
        self.on_failure(error)
