"""A fleet that Spark hosts, seen by a real Prometheus through the exporter alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.exported import build_file, running_command, wait_answer
from tests.replicator.real import producer, put, settings_of
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.lab.free_ports import find_free_ports
from watershed.lab.prometheus_server import end_prometheus, is_prometheus_built, query_prometheus, start_prometheus

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]


def test_executors_are_seen_without_being_reached(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 4, 1)
    path, log = tmp_path / "t.yaml", tmp_path / "log"
    path.write_text(build_file(kafka_pair, topic_name, "spark"))
    assert main(["apply", str(path), "--yes"]) == 0
    flow = f'{{flow="onprem-to-cloud-{topic_name}"}}'
    [port] = find_free_ports(1)
    with ExitStack() as stack:
        stack.enter_context(running_command(log, "exporter", str(path), "--listen", f"127.0.0.1:{port}"))
        server = start_prometheus(tmp_path / "prometheus", {"exporter": [f"127.0.0.1:{port}"]}, interval_s=0.5)
        stack.callback(end_prometheus, server)
        wait_answer(server, f"watershed_copied_records_total{flow}", 0)
        words = ["-m", "watershed.spark.replicate", "--topology", str(path), "--target", "cloud", "--workers", "2"]
        with (tmp_path / "spark").open("wb") as output:
            spark = subprocess.Popen([sys.executable, *words], stdout=output, stderr=output, start_new_session=True)
        try:
            wait_answer(server, 'watershed_fleet_workers{kind="present"}', 2, 180)
            assert len(query_prometheus(server, "watershed_worker_info")) == 2
            sending = producer(settings["onprem"])
            put(sending, topic_name, 2_000)
            sending.flush()
            wait_answer(server, f"watershed_copied_records_total{flow}", 2_000)
            wait_answer(server, f"watershed_replication_latency_seconds_count{flow}", 2_000)
            wait_answer(server, f"watershed_flow_lag_records{flow}", 0)
        finally:
            os.killpg(spark.pid, signal.SIGTERM)
            try:
                spark.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(spark.pid, signal.SIGKILL)
                spark.wait()
        wait_answer(server, 'watershed_fleet_workers{kind="present"}', 0)
