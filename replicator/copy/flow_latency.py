"""How long the records of a flow take: through this worker, and from the source to the target.

Through the worker: from the arrival of the source's answer that holds them to the target's acknowledgement, or to the
commit of their transaction. Both times are of this process's monotonic clock, so no other clock and no timestamp of a
record can spoil them (decision 0102).

From the source: from the newest timestamp of their batch to the same acknowledgement, by the wall clock of this
machine. Where the source's topic has `message.timestamp.type=LogAppendTime`, that timestamp is the append, by the
broker's clock. Else it is what the producer said. A difference of clocks adds to every latency, and what would be
negative counts as 0 (decision 0129).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.latency_buckets import BUCKET_COUNT, find_latency_bucket, fold_latency_buckets

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
        self._ages = [0] * BUCKET_COUNT
        self._age_seconds = 0.0
        self._folded = FlowTotals()  # as of the last `read_totals`; flows that rest are folded once
        self._lock = Lock()

    def add(self, seconds: float, records: int, age_s: float | None = None) -> None:
        """So many records were stored, so long after they came in, and so long after their append at the source. None:
        their batch has no timestamp."""
        bucket = find_latency_bucket(seconds)
        age = None if age_s is None else max(age_s, 0.0)
        age_bucket = 0 if age is None else find_latency_bucket(age)
        with self._lock:
            self.records += records
            self._counts[bucket] += records
            self._seconds += seconds * records
            if age is not None:
                self._ages[age_bucket] += records
                self._age_seconds += age * records

    def read(self) -> LatencyTotals:
        """What has been added since the beginning."""
        with self._lock:
            return LatencyTotals(tuple(self._counts), self._seconds)

    def read_totals(self) -> FlowTotals:
        """The same, and from the source, in doublings."""
        with self._lock:
            if self.records == self._folded.records:
                return self._folded
            records, counts, seconds = self.records, tuple(self._counts), self._seconds
            ages, age_seconds = tuple(self._ages), self._age_seconds
        folded = FlowTotals(records, seconds, fold_latency_buckets(counts), age_seconds, fold_latency_buckets(ages))
        self._folded = folded
        return folded


def measure_age_s(now_ms: int, timestamp_ms: int) -> float | None:
    """How old a timestamp is, in seconds; both in milliseconds since 1970. None without one (-1: Kafka before 0.10)."""
    return None if timestamp_ms < 0 else (now_ms - timestamp_ms) / 1000


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

    def count_flows(self) -> int:
        """How many flows were copied, or are to be."""
        return len(self._by_flow)

    def read_totals(self, flows: Collection[str] | None = None) -> dict[str, FlowTotals]:
        """Flow → what has been added since the worker began; of these flows, None: of all. Flows of which nothing was
        copied are left out."""
        with self._lock:
            known = dict(self._by_flow)
        return {
            flow: latency.read_totals()
            for flow, latency in known.items()
            if latency.records and (flows is None or flow in flows)
        }

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
