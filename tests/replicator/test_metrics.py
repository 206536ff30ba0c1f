"""What Prometheus gets, by its own client's parser."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.sync_reports import SyncReport
from watershed.product_version import describe_product_version
from watershed.replicator.copy.flow_latency import FlowLatency
from watershed.replicator.worker.metric_families import PARTITION_SERIES_LIMIT
from watershed.replicator.worker.metrics import WorkerCollector
from watershed.replicator.worker.metrics_endpoint import MetricsUnavailable, serve_endpoint
from watershed.replicator.worker.metrics_snapshot import Health, MetricsSnapshot
from watershed.topology.metric_catalogue import METRICS

REPORTS = [
    PartitionStatus(
        "a-to-b",
        "orders",
        "a.orders",
        0,
        "running",
        10,
        12,
        9,
        lag_records=2,
        lag_ms=1500,
        copied_bytes=7,
        saved_bytes=3,
    ),
    PartitionStatus("a-to-b", "orders", "a.orders", 1, "source_expired"),
]


_LATENCY = FlowLatency()
_LATENCY.add(0.002, 98, 0.3)
_LATENCY.add(30.0, 2)
TOTALS = {"a-to-b": _LATENCY.read_totals()}
HEALTH = [Health(True, True)]
BESIDE = [SyncReport("a-to-b", "groups", "billing", "equal"), SyncReport("a-to-b", "groups", "audit", "waiting")]


@pytest.fixture
def endpoint():
    collector = WorkerCollector(
        lambda: MetricsSnapshot(REPORTS, {"throttled_seconds": 0.25}, 4096, BESIDE, TOTALS), "w1", "b", "move"
    )
    server, thread = serve_endpoint(collector, lambda: HEALTH[-1], "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_scrape(endpoint):
    with urllib.request.urlopen(endpoint) as answer:
        text = answer.read().decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    zero = tuple(sorted({"flow": "a-to-b", "topic": "orders", "target_topic": "a.orders", "partition": "0"}.items()))
    one = tuple(sorted(dict(zero, partition="1").items()))
    assert samples["watershed_lag_records", zero] == 2
    assert samples["watershed_lag_seconds", zero] == 1.5
    assert samples["watershed_copied_bytes_total", zero] == 7
    assert samples["watershed_saved_bytes_total", zero] == 3
    below = {labels: value for (name, labels), value in samples.items() if name == "watershed_latency_seconds_bucket"}
    assert below[("flow", "a-to-b"), ("le", "0.0016")] == 0
    assert below[("flow", "a-to-b"), ("le", "0.0032")] == 98
    assert below[("flow", "a-to-b"), ("le", "+Inf")] == 100
    assert samples["watershed_latency_seconds_sum", (("flow", "a-to-b"),)] == pytest.approx(60.196)
    assert ("watershed_lag_records", one) not in samples  # not known is not zero
    assert samples["watershed_partitions", (("flow", "a-to-b"), ("state", "source_expired"))] == 1
    assert samples["watershed_throttled_seconds_total", (("target", "b"), ("topology", "move"))] == 0.25
    assert samples["watershed_copied_records_total", (("flow", "a-to-b"),)] == 100
    assert samples["watershed_replication_latency_seconds_count", (("flow", "a-to-b"),)] == 98
    assert samples["watershed_flow_lag_records", (("flow", "a-to-b"),)] == 2
    assert samples["watershed_flow_lag_seconds", (("flow", "a-to-b"),)] == 1.5
    assert samples["watershed_buffered_bytes", ()] == 4096
    waiting = {"flow": "a-to-b", "kind": "groups", "state": "waiting"}
    assert samples["watershed_beside", tuple(sorted(waiting.items()))] == 1
    assert samples["process_resident_memory_bytes", ()] > 0


def test_a_worker_serves_what_the_catalogue_says_and_nothing_else():
    collector = WorkerCollector(lambda: MetricsSnapshot(REPORTS, {}, 0, BESIDE, TOTALS), "w1", "b", "move")
    served = {(f"{each.name}_total" if each.type == "counter" else each.name): each for each in collector.collect()}
    defined = {each.name: each for each in METRICS if each.served_by != "exporter"}
    assert served.keys() == defined.keys()
    for name, family in served.items():
        assert (family.type, family.documentation) == (defined[name].kind, defined[name].meaning)
        for sample in family.samples:
            assert tuple(label for label in sample.labels if label != "le") == defined[name].labels


def test_many_partitions_are_told_by_flow_only():
    many = [replace(REPORTS[0], partition=number) for number in range(PARTITION_SERIES_LIMIT + 1)]
    collector = WorkerCollector(lambda: MetricsSnapshot(many, {}, 0), "w1", "b", "move")
    families = {family.name: family for family in collector.collect()}
    assert "watershed_lag_records" not in families
    assert families["watershed_flow_lag_records"].samples[0].value == 2 * len(many)


def test_health_is_told_with_a_reason_and_the_version(endpoint):
    base = endpoint.removesuffix("/metrics")

    def ask(path: str) -> tuple[int, dict]:
        try:
            with urllib.request.urlopen(base + path) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    version = {"version": describe_product_version()}
    assert ask("/health/live") == (200, {"live": True, "ready": True, "why": ""} | version)
    assert ask("/health/ready")[0] == 200
    HEALTH.append(Health(True, False, "no slots yet"))
    try:
        assert ask("/health/live")[0] == 200
        assert ask("/health/ready") == (503, {"live": True, "ready": False, "why": "no slots yet"} | version)
    finally:
        HEALTH.pop()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(base + "/health/other")


def test_an_address_that_is_taken(endpoint):
    port = int(endpoint.rpartition(":")[2].split("/")[0])
    with pytest.raises(MetricsUnavailable, match=f"127.0.0.1:{port}.*another address"):
        serve_endpoint(
            WorkerCollector(lambda: MetricsSnapshot((), {}, 0), "w2", "b", "move"),
            lambda: HEALTH[-1],
            "127.0.0.1",
            port,
        )
