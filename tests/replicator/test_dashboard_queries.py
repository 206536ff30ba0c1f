"""A real Prometheus with every metric of the catalogue: no query of a dashboard is refused, and none finds nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tests.replicator.test_alert_rules import build_groups
from watershed.clusters.latency_buckets import list_doubling_ends_s
from watershed.lab.prometheus_server import end_prometheus, is_prometheus_built, query_prometheus, start_prometheus
from watershed.replicator.alerting.dashboard_files import list_queries, read_dashboards
from watershed.replicator.alerting.rule_group import render_rule_file
from watershed.replicator.worker.metric_families import build_samples
from watershed.topology.metric_catalogue import METRICS, MetricDefinition

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]
VALUES = {"flow": "a-to-b", "target": "b", "cluster": "b", "migration": "move", "state": "waiting", "kind": "present"}
WAIT_S = 60


class EveryMetric(Collector):
    """One series of each metric, or two where kinds are told apart. Counters grow with each scrape, gauges are 1."""

    def __init__(self) -> None:
        self._scrapes = 0

    def collect(self) -> Iterator[Metric]:
        self._scrapes += 1
        grown = float(self._scrapes)
        for each in METRICS:
            if each.kind == "histogram":
                ends = [*map("{:g}".format, list_doubling_ends_s()), "+Inf"]
                family = HistogramMetricFamily(each.name, each.meaning, labels=each.labels)
                counts = [(end, 0.0 if index < 10 else 10.0 * self._scrapes) for index, end in enumerate(ends)]
                family.add_metric(self._list_labels(each)[0], counts, 1.0 * self._scrapes)
                yield family
            else:
                yield build_samples(
                    each, ((labels, grown if each.kind == "counter" else 1.0) for labels in self._list_labels(each))
                )

    def _list_labels(self, metric: MetricDefinition) -> list[tuple[str, ...]]:
        labels = tuple(VALUES.get(name, "x") for name in metric.labels)
        return [labels, (*labels[:-1], "wanted")] if metric.labels[-1:] == ("kind",) else [labels]


def test_no_query_is_refused_or_finds_nothing(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(EveryMetric())
    served, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
    rules = tmp_path / "move.rules.yaml"
    rules.write_text(render_rule_file(build_groups(), "move", "prometheus").replace("interval: 2m", "interval: 1s"))
    server = start_prometheus(tmp_path / "prometheus", {"all": [f"127.0.0.1:{served.server_port}"]}, [rules])
    try:
        deadline = time.monotonic() + WAIT_S
        asked = {query: fill_variables(query) for text in read_dashboards().values() for query in list_queries(text)}
        while empty := [query for query, filled in asked.items() if not query_prometheus(server, filled)]:
            assert time.monotonic() < deadline, empty
            time.sleep(1)
    finally:
        end_prometheus(server)
        served.shutdown()
        served.server_close()


def fill_variables(query: str) -> str:
    """As Grafana does it for the choice *All*."""
    for name in ("flow", "target", "migration"):
        query = query.replace(f"${name}", ".*")
    return query.replace("$__rate_interval", "1m")
