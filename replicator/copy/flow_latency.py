"""How long the records of a flow take through this worker: from the arrival of the source's answer that holds them to
the target's acknowledgement, or to the commit of their transaction.

Both times are of this process's monotonic clock, so no other clock and no timestamp of a record can spoil them
(decision 0102).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from watershed.clusters.latency_buckets import BUCKET_COUNT, find_latency_bucket

WINDOW_S: Final = 15.0  # heartbeats tell of at least so much time, and of at most twice as much


class LatencyTotals(NamedTuple):
    """Since the worker began. counts: records by bucket, of all buckets. seconds: the latencies of all records, added
    up."""

    counts: tuple[int, ...] = (0,) * BUCKET_COUNT
    seconds: float = 0.0


_NOTHING: Final = LatencyTotals()


class FlowLatency:
    """The latencies of one flow. Threads that send add, the worker's thread reads."""

    def __init__(self) -> None:
        self.records = 0  # that were added
        self._counts = [0] * BUCKET_COUNT
        self._seconds = 0.0
        self._lock = Lock()

    def add(self, seconds: float, records: int) -> None:
        """So many records were stored, so long after they came in."""
        bucket = find_latency_bucket(seconds)
        with self._lock:
            self.records += records
            self._counts[bucket] += records
            self._seconds += seconds * records

    def read(self) -> LatencyTotals:
        """What has been added since the beginning."""
        with self._lock:
            return LatencyTotals(tuple(self._counts), self._seconds)


@dataclass(slots=True)
class FlowLatencies:
    """Those of all flows of a worker."""

    _by_flow: dict[str, FlowLatency] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _newest: dict[str, LatencyTotals] = field(default_factory=dict)  # as of the last heartbeat
    _records: dict[str, int] = field(default_factory=dict)  # how many those are
    _before: Mapping[str, LatencyTotals] = field(default_factory=dict)  # where the window begins
    _between: Mapping[str, LatencyTotals] = field(default_factory=dict)  # where the next one will begin
    _turned_at: float = -math.inf

    def of(self, flow: str) -> FlowLatency:
        """The one of this flow, made when it is asked for first."""
        with self._lock:
            return self._by_flow.setdefault(flow, FlowLatency())

    def read(self) -> dict[str, LatencyTotals]:
        """Flow → what has been added since the worker began."""
        with self._lock:
            known = dict(self._by_flow)
        return {flow: latency.read() for flow, latency in known.items()}

    def read_recent(self, now: float) -> dict[str, dict[int, int]]:
        """Flow → bucket → records of the last WINDOW_S to 2 × WINDOW_S, at `now` (monotonic). Flows and buckets
        without records are left out. Only one thread may call it, at least every WINDOW_S."""
        with self._lock:
            changed = [each for each in self._by_flow.items() if each[1].records != self._records.get(each[0], 0)]
        for flow, latency in changed:
            total = self._newest[flow] = latency.read()
            self._records[flow] = sum(total.counts)
        if now - self._turned_at >= WINDOW_S:
            self._before, self._between, self._turned_at = self._between, dict(self._newest), now
        found = {}
        for flow, total in self._newest.items():
            before = self._before.get(flow, _NOTHING)
            if total is not before:
                pairs = zip(total.counts, before.counts, strict=True)
                found[flow] = {bucket: now - then for bucket, (now, then) in enumerate(pairs) if now > then}
        return found
