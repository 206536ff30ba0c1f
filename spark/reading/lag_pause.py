"""Reading pauses while a flow lags: copying comes before proving."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from watershed.clusters.partition_status_records import (
    PartitionStatus,
    StatusFollower,
    read_partition_statuses,
    renew_report,
)
from watershed.clusters.settings import resolve_connection_settings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.partition_states import PAUSED
from watershed.topology.plan import PlanCluster
from watershed.topology.quantities import render_duration

log = logging.getLogger("watershed.verify")

_LOOK_S = 1.0  # between two looks at the reports
STALE_REPORT_MS = 30_000  # a report that is older says nothing of now


@dataclass(frozen=True, slots=True)
class LagLimit:
    """A flow whose records must not wait longer than `most_ms`; its reports are at `target`."""

    flow: str
    target: PlanCluster
    most_ms: int

    def lagging(self, reports: Iterable[PartitionStatus], now_ms: float) -> int | None:
        """How long the flow's records wait, in ms; None while that is within the limit."""
        waiting = [
            report.lag_ms
            for report in reports
            if report.flow == self.flow
            and report.lag_ms is not None
            and report.state != PAUSED  # nobody copies it, however long a proof waits
            and now_ms - report.at_ms <= STALE_REPORT_MS
        ]
        worst = max(waiting, default=0)
        return worst if worst > self.most_ms else None


class _StatusSource(Protocol):
    """Reports as they come in."""

    heartbeats: dict[str, WorkerHeartbeat]

    def read(self) -> list[PartitionStatus]: ...
    def close(self) -> None: ...


class LagPause:
    """Waits while one of the flows lags, `patience_s` in all; then no longer.

    A task follows what workers report from now on, because to read the topic whole would take longer than many a task.
    """

    def __init__(
        self,
        pauses: tuple[LagLimit, ...],
        patience_s: float,
        follow: Callable[[PlanCluster], _StatusSource] = lambda cluster: StatusFollower(
            resolve_connection_settings(cluster)
        ),
        say: Callable[[str], None] = log.warning,
    ) -> None:
        self._pauses, self._left, self._say = pauses, patience_s, say
        self._followers = {pause.target.alias: follow(pause.target) for pause in pauses}
        self._reports: dict[tuple[str, str], PartitionStatus] = {}
        self._looked = float("-inf")
        self.held_s = 0.0

    def __call__(self) -> None:
        """Returns when nothing lags, or when patience has run out."""
        began: float | None = None
        while self._left > 0 and (why := self._why()) is not None:
            if began is None:
                began = time.monotonic()
                self._say(f"reading waits: {why}")
            time.sleep(_LOOK_S)
            self._left -= _LOOK_S
        if began is not None:
            held = time.monotonic() - began
            self.held_s += held
            over = "no flow lags any more" if self._left > 0 else "flows lag still, but a proof does not wait for ever"
            self._say(f"reading goes on after {held:.0f} s: {over}")

    def tell(self, reports: Iterable[PartitionStatus], alias: str) -> None:
        """Adds status reports of flows into this cluster."""
        self._reports |= {(alias, report.key): report for report in reports}

    def close(self) -> None:
        """Closes the followers of the flows' status topics."""
        for follower in self._followers.values():
            follower.close()

    def _why(self) -> str | None:
        if time.monotonic() - self._looked >= _LOOK_S:
            self._looked = time.monotonic()
            for alias, follower in self._followers.items():
                self.tell(follower.read(), alias)
        for pause in self._pauses:
            heartbeats = self._followers[pause.target.alias].heartbeats
            mine = [
                renew_report(report, heartbeats)
                for (alias, _), report in self._reports.items()
                if alias == pause.target.alias and report.flow == pause.flow
            ]
            behind = pause.lagging(mine, time.time() * 1000)
            if behind is not None:
                most = render_duration(pause.most_ms)
                return f"records of flow {pause.flow} wait for {behind / 1000:.0f} s (verify.pause_at_lag: {most})"
        return None


def wait_for_lag(pauses: tuple[LagLimit, ...], patience_s: float, say: Callable[[str], None]) -> float:
    """Waits before a round of reading while flows lag, by the workers' last reports. Returns the seconds waited. Raises
    ClusterError.
    """
    if not pauses:
        return 0.0
    hold = LagPause(pauses, patience_s, say=say)
    try:
        for target in {pause.target.alias: pause.target for pause in pauses}.values():
            hold.tell(read_partition_statuses(resolve_connection_settings(target)), target.alias)
        hold()
        return hold.held_s
    finally:
        hold.close()
