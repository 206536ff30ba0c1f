"""The worker for Prometheus: what it reports of its partitions, and what its links count.

Names follow Prometheus' conventions (base units, `_total` for counters). Read at the moment of a scrape.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from watershed.clusters.latency_buckets import BUCKET_COUNT, BUCKETS_PER_DOUBLING, compute_bucket_end_ms
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.replicator.copy.flow_latency import LatencyTotals
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.worker.metrics_snapshot import MetricsSnapshot

_LABELS = ("flow", "topic", "target_topic", "partition")


class MetricsUnavailable(ReplicatorError):
    """The metrics endpoint cannot be opened."""


class WorkerCollector:
    """A prometheus_client collector over `scrape`."""

    def __init__(self, scrape: Callable[[], MetricsSnapshot], worker: str, target: str) -> None:
        self._scrape, self._worker, self._target = scrape, worker, target

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; Prometheus calls it for each scrape."""
        seen = self._scrape()
        reports = list(seen.reports)
        yield from _partitions(reports)
        states = GaugeMetricFamily(
            "watershed_partitions", "Partitions by state; loud states need a person.", labels=("flow", "state")
        )
        for (flow, state), count in sorted(Counter((each.flow, each.state) for each in reports).items()):
            states.add_metric((flow, state), count)
        yield states
        beside = GaugeMetricFamily(
            "watershed_beside", "What travels beside records, by state.", labels=("flow", "kind", "state")
        )
        for (flow, kind, state), count in sorted(Counter((e.flow, e.kind, e.state) for e in seen.beside).items()):
            beside.add_metric((flow, kind, state), count)
        yield beside
        yield _latencies(seen.latencies)
        yield GaugeMetricFamily("watershed_buffered_bytes", "Record batches in memory.", value=seen.buffered)
        for name, value in sorted(seen.counters.items()):
            yield CounterMetricFamily(f"watershed_{name}", "Counted by the worker's links.", value=value)
        info = GaugeMetricFamily("watershed_worker_info", "Who this is.", labels=("worker", "target", "pid"))
        info.add_metric((self._worker, self._target, str(os.getpid())), 1)
        yield info


def _partitions(reports: list[PartitionStatus]) -> Iterator[Metric]:
    rows: tuple[tuple[str, str, Callable[[PartitionStatus], float | None]], ...] = (
        ("lag_records", "Source offsets not copied yet.", lambda each: each.lag_records),
        ("lag_bytes", "Their estimated size.", lambda each: each.lag_bytes),
        ("lag_seconds", "How long the oldest uncopied record has been waiting.", lambda each: _seconds(each.lag_ms)),
        ("event_age_seconds", "Age of the last copied record's timestamp.", lambda each: _seconds(each.event_age_ms)),
        ("open_records", "Offsets that wait for a source transaction to end.", lambda each: each.open_records),
        ("filling_offsets", "Offsets to fill before an aligned copy begins.", lambda each: _left(each.aligning)),
        ("source_position", "Next source offset to copy.", lambda each: _known(each.source_position)),
        ("target_end", "Log end of the target partition.", lambda each: _known(each.target_end)),
    )
    for name, meaning, value in rows:
        family = GaugeMetricFamily(f"watershed_{name}", meaning, labels=_LABELS)
        for each in reports:
            found = value(each)
            if found is not None:
                family.add_metric(_labels(each), found)
        yield family
    copied = CounterMetricFamily(
        "watershed_copied_bytes", "Bytes copied since the partition was taken, before compression.", labels=_LABELS
    )
    saved = CounterMetricFamily(
        "watershed_saved_bytes", "Of these, bytes that compression by the worker saved.", labels=_LABELS
    )
    for each in reports:
        copied.add_metric(_labels(each), each.copied_bytes)
        saved.add_metric(_labels(each), each.saved_bytes)
    yield copied
    yield saved


def _latencies(latencies: Mapping[str, LatencyTotals]) -> Metric:
    """A bucket for each doubling: several of those that are counted."""
    family = HistogramMetricFamily(
        "watershed_latency_seconds",
        "Time from the arrival of records at the worker to their acknowledgement by the target.",
        labels=("flow",),
    )
    for flow, totals in sorted(latencies.items()):
        below = list(accumulate(totals.counts))
        ends = range(0, BUCKET_COUNT - 1, BUCKETS_PER_DOUBLING)
        buckets: list[tuple[str, float]] = [(f"{compute_bucket_end_ms(end) / 1000:g}", below[end]) for end in ends]
        family.add_metric((flow,), [*buckets, ("+Inf", below[-1])], totals.seconds)
    return family


def _labels(report: PartitionStatus) -> tuple[str, str, str, str]:
    return report.flow, report.topic, report.target_topic, str(report.partition)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _left(aligning: Mapping[str, float | None] | None) -> float | None:
    return None if aligning is None else (aligning["of"] or 0) - (aligning["done"] or 0)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


def serve_metrics(collector: WorkerCollector, address: str, port: int) -> tuple[WSGIServer, Thread]:
    """Answer scrapes at http://address:port/metrics until the server is shut down. Port 0 takes a free one.

    Raises MetricsUnavailable when the address is taken or not ours.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        return start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise MetricsUnavailable(
            f"metrics cannot be served at {address}:{port}: {error.strerror or error}; choose another --metrics address"
        ) from None
