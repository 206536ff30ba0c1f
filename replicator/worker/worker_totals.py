"""Counters of all workers into one target, from their heartbeats, as they go on while workers come and go.

A worker's totals begin at 0 with each life of the worker. The sums here never shrink: of each life they take what was
added since the heartbeat before. They begin at 0 with this process, so to Prometheus its restart is one reset, and
nothing is counted twice (decision 0129).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.worker_heartbeats import WorkerHeartbeat


class _Life(NamedTuple):
    """One life of a worker: its name, and when it began (ms, its clock)."""

    worker: str
    began_ms: int


@dataclass(frozen=True, slots=True)
class _Told:
    """What a life has told last. is_whole: what it has not told of is 0; else it is not known."""

    totals: dict[str, FlowTotals]
    throttled_s: float
    is_whole: bool


_UNBORN = _Told({}, 0.0, True)
_ABSENT_LIVES: Final = 10_000  # more workers than the largest fleets replace in a day; their heartbeats stay so long


@dataclass(slots=True)
class WorkerTotals:
    """flows: flow → totals. throttled_s, starts: of workers that the heartbeats name; starts are not counted
    of workers of flows with `transform`, which no fleet counts. Not thread-safe."""

    flows: dict[str, FlowTotals] = field(default_factory=dict)
    throttled_s: float = 0.0
    starts: int = 0
    _lives: dict[_Life, _Told] | None = None  # None: nothing was read yet

    def take(self, heartbeats: Iterable[WorkerHeartbeat]) -> None:
        """The newest heartbeat of each worker. The first time nothing is counted: what those workers copied was before
        this process. A life that is seen for the first time later began since then.

        The newest 10,000 lives whose workers are not named are remembered: a control topic may be read again, and a
        host may sleep for longer than heartbeats are kept."""
        named = {beat.worker: beat for beat in heartbeats}
        known = self._lives
        absent = [] if known is None else [each for each in known.items() if each[0].worker not in named]
        lives = dict(absent[-_ABSENT_LIVES:])  # those that were named last come last
        for beat in named.values():
            life = _Life(beat.worker, beat.began_ms)
            before = None if known is None else known.get(life, _UNBORN)
            if before is _UNBORN and beat.began_ms and not beat.transforms:  # earlier versions do not tell
                self.starts += 1
            lives[life] = self._follow(before, beat)
        self._lives = lives

    def read_flow(self, flow: str) -> FlowTotals:
        """The totals of a flow; 0 before anything was copied, so that Prometheus sees the first records as growth."""
        return self.flows.get(flow, FlowTotals())

    def _follow(self, before: _Told | None, beat: WorkerHeartbeat) -> _Told:
        told = {} if before is None else dict(before.totals)
        for flow, totals in beat.totals.items():
            if before is not None and (flow in told or before.is_whole):
                added = totals.subtract(told.get(flow, FlowTotals()))
                self.flows[flow] = self.flows.get(flow, FlowTotals()).add(added)
            told[flow] = totals
        if before is not None:
            self.throttled_s += max(beat.throttled_s - before.throttled_s, 0.0)
        return _Told(told, beat.throttled_s, beat.tells_all or (before is not None and before.is_whole))
