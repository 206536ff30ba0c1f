"""The histories of all clusters of a file of sources: each source by itself, so that one that fails is said and the
others count."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.errors import ClusterError
from watershed.clusters.usage.aws_clients import build_aws_client
from watershed.clusters.usage.cloudwatch_history import read_cloudwatch_history, read_msk_costs
from watershed.clusters.usage.confluent_history import FRESHNESS_S, read_confluent_history
from watershed.clusters.usage.exporter_history import read_exporter_history
from watershed.clusters.usage.history_collector import HistoryCollector
from watershed.clusters.usage.prometheus_history import read_prometheus_history
from watershed.clusters.usage.usage_requests import RequestPace, resolve_usage_server
from watershed.topology.usage.history import ClusterHistory, UsagePeriod
from watershed.topology.usage.sources_file import (
    CloudWatchSource,
    ConfluentSource,
    ExporterSource,
    HistorySource,
    HttpLogin,
    PrometheusSource,
)

GAUGE_STEP_S: Final = 3_600  # logs and partitions change slowly; of a shorter history they are read as often as rates
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """since_s, interval_s: how far back, in which intervals. sample_s: between two readings of exporters' pages.
    environ: holds secrets. clock: seconds that only go forward."""

    since_s: int
    interval_s: int
    sample_s: int = 30
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    pace: RequestPace = field(default_factory=RequestPace)
    clock: Callable[[], float] = time.monotonic


def read_histories(sources: Mapping[str, HistorySource], request: HistoryRequest) -> dict[str, ClusterHistory]:
    """By alias, several at once. Never raises for one source: its history says the failure."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda alias: read_history(alias, sources[alias], request), sources)
        return dict(zip(sources, found, strict=True))


def read_history(alias: str, source: HistorySource, request: HistoryRequest) -> ClusterHistory:
    """One cluster's history; `failure` says why there is none."""
    period, gauge_period = choose_periods(source, request)
    words = _describe_source(source)
    collector = HistoryCollector(alias, words, period, gauge_period)
    try:
        _read(source, collector, request)
    except ClusterError as error:
        return ClusterHistory(alias, words, period, failure=str(error), notes=tuple(collector.notes))
    return collector.build_history()


def choose_periods(source: HistorySource, request: HistoryRequest) -> tuple[UsagePeriod, UsagePeriod]:
    """The intervals of rates, and those of logs and partitions: whole intervals that are over, begun at multiples of
    their length (UTC), as clouds count them. now is the clock of `request.pace`."""
    now = request.pace.wall()
    if isinstance(source, ExporterSource):
        period = UsagePeriod(int(now), int(now) + request.sample_s, request.sample_s)
        return period, period
    now -= FRESHNESS_S if isinstance(source, ConfluentSource) else 0
    period = _choose_period(now, request.since_s, request.interval_s)
    slow = max(request.interval_s, GAUGE_STEP_S if request.since_s >= 2 * GAUGE_STEP_S else 0)
    if isinstance(source, PrometheusSource):  # any moment will do, so the newest sizes are those of the end
        whole = max(request.since_s // slow, 1) * slow
        return period, UsagePeriod(period.end_s - whole, period.end_s, slow)
    return period, _choose_period(now, request.since_s, slow)


def _choose_period(now_s: float, since_s: int, step_s: int) -> UsagePeriod:
    end = int(now_s) // step_s * step_s
    return UsagePeriod(end - max(since_s // step_s, 1) * step_s, end, step_s)


def _read(source: HistorySource, collector: HistoryCollector, request: HistoryRequest) -> None:
    alias, environ, pace = collector.alias, request.environ, request.pace
    if isinstance(source, PrometheusSource):
        server = resolve_usage_server(alias, "prometheus", "Prometheus", source.url, source.login, environ)
        read_prometheus_history(server, collector, source.labels, source.metrics, pace)
    elif isinstance(source, ExporterSource):
        servers = [
            resolve_usage_server(alias, "exporters", "The JMX exporter", url, source.login, environ)
            for url in source.urls
        ]
        read_exporter_history(servers, collector, source.metrics, pace, request.clock)
    elif isinstance(source, ConfluentSource):
        login = HttpLogin(credentials=source.credentials)
        server = resolve_usage_server(alias, "confluent", "The Metrics API", source.url, login, environ)
        read_confluent_history(server, collector, source.cluster, pace)
    else:
        _read_aws(source, collector, request)


def _read_aws(source: CloudWatchSource, collector: HistoryCollector, request: HistoryRequest) -> None:
    client = build_aws_client(collector.alias, "cloudwatch", source, request.environ, source.endpoint)
    read_cloudwatch_history(client, source, collector, request.pace.wall())
    if source.costs:
        try:
            costs = build_aws_client(collector.alias, "ce", source, request.environ, source.cost_endpoint)
            read_msk_costs(costs, source, collector)
        except ClusterError as error:
            collector.add_note(f"What was paid is not known: {error}")


def _describe_source(source: HistorySource) -> str:
    if isinstance(source, PrometheusSource):
        return f"Prometheus at {source.url}"
    if isinstance(source, ExporterSource):
        return f"the JMX exporters of {len(source.urls)} brokers, read twice"
    if isinstance(source, ConfluentSource):
        return f"Confluent's Metrics API, {source.cluster}"
    return f"CloudWatch in {source.region}, {source.cluster}"
