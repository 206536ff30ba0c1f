"""What a worker tells of itself when it is asked: plain data, read by `replicator.worker.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.sync_reports import SyncReport
from watershed.replicator.copy.flow_latency import LatencyTotals


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """reports: of every partition that the worker serves; counters: what its threads count since it started
    (`throttled_seconds`); buffered: bytes of record batches in memory; beside: of what travels
    beside records, as far as this worker keeps it; latencies: by flow."""

    reports: Iterable[PartitionStatus]
    counters: Mapping[str, float]
    buffered: int
    beside: Iterable[SyncReport] = ()
    latencies: Mapping[str, LatencyTotals] = field(default_factory=dict)
