"""What an aligned partition needs beside fetching and sending: the fill before it, and its gaps.

Both wait for brokers, so they run in threads of their own, and never while something of the partition is in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from watershed.clusters.errors import ClusterError, RequestRefused, Unauthorised
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.alignment_requests import AlignmentWire
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.aligned_copy import AlignedCopy, OffsetGap
from watershed.replicator.copy.aligned.empty_log_filler import FillProgress, fill_log
from watershed.replicator.copy.aligned.gap_filler import GapFiller, GapMethod
from watershed.replicator.copy.aligned.target_log import TargetLog, build_deleter_connect
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.errors import Misaligned
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy

log = logging.getLogger("watershed.aligned")

_FILLED_AT_ONCE: Final = 4  # partitions of one worker; the broker spends a core on each
_CLOSED_AT_ONCE: Final = 16
_FILLED: Final = "the empty log was brought to the source's log start"


@dataclass(slots=True)
class _Part:
    active: ActiveCopy
    log: TargetLog
    gap_method: GapMethod = "transactions"
    gaps: GapFiller | None = None
    goal: int = -1
    prepare: Callable[[], str] = str
    begun: bool = False


@dataclass(slots=True)
class AlignmentThreads:
    """`add` and `remove` a partition's active copy, as with a link. version: the target's transaction.version."""

    target: ConnectionSettings
    version: Callable[[], int]
    _bump: bool | None = None
    _parts: dict[int, _Part] = field(default_factory=dict)
    _fills: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_FILLED_AT_ONCE, "fill"))
    _closes: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_CLOSED_AT_ONCE, "gap"))

    @staticmethod
    def of(target: ConnectionSettings) -> AlignmentThreads:
        """Threads for one target cluster; its transaction.version is asked when it is first needed."""
        return AlignmentThreads(target, partial(read_transaction_version, target))

    def add(self, active: ActiveCopy, gap_method: GapMethod) -> None:
        """A partition that is copied: its gaps are closed whenever nothing else can be sent. Raises ClusterError."""
        copy = _aligned(active)
        stored = self._log(copy)
        gaps = GapFiller(stored, copy.key.flow, gap_method, bump=self._bumps())
        self._parts[id(active)] = _Part(active, stored, gap_method, gaps)
        active.between = partial(self._between, active)

    def add_filling(self, active: ActiveCopy, gap_method: GapMethod, goal: int, prepare: Callable[[], str]) -> None:
        """A partition that is to be filled up to `goal`, as soon as the ledger has heard of it (`active.wake`). prepare
        gives the topic the settings that it takes; "" or why not."""
        self._parts[id(active)] = _Part(
            active, self._log(_aligned(active)), gap_method=gap_method, goal=goal, prepare=prepare
        )
        active.wake = partial(self._filled, active)

    def remove(self, active: ActiveCopy) -> None:
        """Nothing of it may be under way."""
        part = self._parts.pop(id(active), None)
        if part is not None:
            if part.gaps is not None:
                part.gaps.close()
            part.log.close()

    def end(self) -> None:
        """Ask every fill and gap to stop; waits for none of them."""
        for part in list(self._parts.values()):
            _aligned(part.active).request_stop()
        for pool in (self._fills, self._closes):
            pool.shutdown(wait=False, cancel_futures=True)

    # -- filling -----------------------------------------------------------------------------------------------

    def _filled(self, active: ActiveCopy) -> None:
        part = self._parts.get(id(active))
        if part is not None and not part.begun:
            part.begun = True
            copy = _aligned(active)
            copy.alignment.closing = OffsetGap(copy.progress.acked, part.goal)
            self._fills.submit(self._fill, part)

    def _fill(self, part: _Part) -> None:
        copy = _aligned(part.active)
        trouble: Halt | Reinspect = Reinspect(_FILLED)
        try:
            why_not = part.prepare() if copy.trouble is None else ""
            if why_not:
                trouble = Halt("unsupported", why_not)
            elif copy.trouble is None:
                copy.progress.acked = copy.progress.copied_through = self._filled_up(part, copy)
        except Misaligned as misaligned:
            trouble = Reinspect(str(misaligned), "target_foreign_write")
        except SessionLost as lost:
            trouble = lost.trouble
        except Unauthorised as refused:
            trouble = Halt("unauthorised", str(refused))
        except ClusterError as error:
            copy.producer.unanswered = True
            trouble = Reinspect(str(error), "rejected" if isinstance(error, RequestRefused) else None)
        except Exception as error:
            copy.producer.unanswered = True
            log.exception("fill failed", extra={"topic": copy.key.target_topic, "partition": copy.key.partition})
            trouble = Reinspect(f"filling failed ({type(error).__name__}: {error})", "failed")
        copy.fail_gap(trouble)

    def _filled_up(self, part: _Part, copy: AlignedCopy) -> int:
        def report_progress(progress: FillProgress) -> None:
            copy.alignment.progress = progress
            copy.progress.acked = copy.progress.copied_through = progress.done
            if copy.trouble is not None:
                copy.request_stop()

        return fill_log(
            part.log,
            part.goal,
            copy.key.flow,
            self._bumps(),
            bare=part.gap_method == "markers",
            max_batch=part.active.terms.limits.max_batch,
            progress=report_progress,
            stop=copy.alignment.stop_requested,
        )

    # -- gaps --------------------------------------------------------------------------------------------------

    def _between(self, active: ActiveCopy) -> None:
        copy = _aligned(active)
        gap = copy.due()
        if gap is not None:
            self._closes.submit(self._close, active, gap)

    def _close(self, active: ActiveCopy, gap: OffsetGap) -> None:
        copy, part = _aligned(active), self._parts.get(id(active))
        if part is None or part.gaps is None:
            copy.fail_gap(Reinspect("the partition was given up"))
            return
        try:
            end = part.gaps.advance(gap.end, copy.alignment.stop_requested)
        except Misaligned as misaligned:
            copy.fail_overshot_gap(gap, misaligned.end)
        except SessionLost as lost:
            copy.fail_gap(lost.trouble)
        except Unauthorised as refused:
            copy.fail_gap(Halt("unauthorised", str(refused)))
        except ClusterError as error:
            copy.fail_gap(Reinspect(str(error)))
        except Exception as error:
            log.exception("gap failed", extra={"topic": copy.key.target_topic, "partition": copy.key.partition})
            copy.fail_gap(Reinspect(f"closing a gap failed ({type(error).__name__}: {error})", "failed"))
        else:
            if end == gap.end:
                copy.closed(gap)
            else:
                copy.fail_gap(Reinspect(f"stopped at offset {end} in the gap up to {gap.end}"))
        active.wake()

    def _bumps(self) -> bool:
        """Whether every transaction of the target has an epoch of its own. Raises ClusterError."""
        if self._bump is None:
            self._bump = self.version() >= 2
        return self._bump

    def _log(self, copy: AlignedCopy) -> TargetLog:
        key = copy.key
        alias, deleting = self.target.alias, build_deleter_connect(self.target)
        return TargetLog(self._connect, alias, key.target_topic, copy.target_id, key.partition, deleting)

    def _connect(self, address: BrokerAddress | None) -> AlignmentWire:
        return open_connection(self.target, address)


def _aligned(active: ActiveCopy) -> AlignedCopy:
    assert isinstance(active.copy, AlignedCopy)
    return active.copy
