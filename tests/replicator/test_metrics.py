"""What Prometheus gets, by its own client's parser."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.sync_reports import SyncReport
from watershed.replicator.copy.flow_latency import FlowLatency
from watershed.replicator.worker.metrics import MetricsUnavailable, WorkerCollector, serve_metrics
from watershed.replicator.worker.metrics_snapshot import MetricsSnapshot

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
_LATENCY.add(0.002, 98)
_LATENCY.add(30.0, 2)
LATENCIES = {"a-to-b": _LATENCY.read()}
BESIDE = [SyncReport("a-to-b", "groups", "billing", "equal"), SyncReport("a-to-b", "groups", "audit", "waiting")]


@pytest.fixture
def endpoint():
    collector = WorkerCollector(
        lambda: MetricsSnapshot(REPORTS, {"throttled_seconds": 0.25}, 4096, BESIDE, LATENCIES), "w1", "b"
    )
    server, thread = serve_metrics(collector, "127.0.0.1", 0)
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
    assert samples["watershed_throttled_seconds_total", ()] == 0.25
    assert samples["watershed_buffered_bytes", ()] == 4096
    waiting = {"flow": "a-to-b", "kind": "groups", "state": "waiting"}
    assert samples["watershed_beside", tuple(sorted(waiting.items()))] == 1
    assert samples["process_resident_memory_bytes", ()] > 0


def test_an_address_that_is_taken(endpoint):
    port = int(endpoint.rpartition(":")[2].split("/")[0])
    with pytest.raises(MetricsUnavailable, match=f"127.0.0.1:{port}.*--metrics"):
        serve_metrics(WorkerCollector(lambda: MetricsSnapshot((), {}, 0), "w2", "b"), "127.0.0.1", port)
