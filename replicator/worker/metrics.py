"""The worker for Prometheus: what it reports of its partitions, and what its links count.

Read at the moment of a scrape; names and meanings are in `topology.metric_catalogue`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from watershed.product_version import describe_product_version
from watershed.replicator.worker.metric_families import build_flow_families, build_partition_families, build_samples
from watershed.replicator.worker.metrics_snapshot import MetricsSnapshot
from watershed.topology import metric_catalogue as catalogue

_THROTTLED: Final = "throttled_seconds"  # as BrokerThreads.counters has it
_FOLLOWERS: Final = "follower_bytes"


class WorkerCollector(Collector):
    """A prometheus_client collector over `scrape`."""

    def __init__(self, scrape: Callable[[], MetricsSnapshot], worker: str, target: str, topology: str) -> None:
        self._scrape, self._worker, self._target, self._topology = scrape, worker, target, topology

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; Prometheus calls it for each scrape."""
        seen = self._scrape()
        reports = list(seen.reports)
        yield from build_partition_families(reports)
        yield from build_flow_families(reports, seen.beside, seen.totals)
        yield build_samples(catalogue.BUFFERED_BYTES, [((), seen.buffered)])
        throttled = seen.counters.get(_THROTTLED, 0.0)
        yield build_samples(catalogue.THROTTLED_SECONDS, [((self._topology, self._target), throttled)])
        yield build_samples(catalogue.FOLLOWER_BYTES, [((), seen.counters.get(_FOLLOWERS, 0.0))])
        labels = self._worker, self._target, str(os.getpid()), describe_product_version()
        yield build_samples(catalogue.WORKER_INFO, [(labels, 1)])
