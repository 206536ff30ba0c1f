"""What a worker tells of itself when it is asked: plain data, read by `replicator.worker.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.sync_reports import SyncReport

LIVE_S: Final = 60.0  # a main loop that has not turned for so long does not live; the slowest round waits 15 s


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a process is well. is_live: else it should be started again. is_ready: it does its work. why: what is
    missing, for people; "" where nothing is."""

    is_live: bool
    is_ready: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """reports: of every partition that the worker serves; counters: what its threads count since it started
    (`throttled_seconds`); buffered: bytes of record batches in memory; beside: of what travels
    beside records, as far as this worker keeps it; totals: by flow."""

    reports: Iterable[PartitionStatus]
    counters: Mapping[str, float]
    buffered: int
    beside: Iterable[SyncReport] = ()
    totals: Mapping[str, FlowTotals] = field(default_factory=dict)
