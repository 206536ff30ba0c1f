"""A worker, the exporter and a real Prometheus: what PromQL answers is what really happened."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.exported import ask_health, build_file, running_command, wait_answer, wait_until
from tests.replicator.real import producer, put, settings_of
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.lab.free_ports import find_free_ports
from watershed.lab.prometheus_server import (
    end_prometheus,
    is_prometheus_built,
    query_prometheus,
    start_prometheus,
)

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.soak,
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]


def test_prometheus_sees_what_happened(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1, {"message.timestamp.type": "LogAppendTime"})
    path, away, log = tmp_path / "t.yaml", tmp_path / "away.yaml", tmp_path / "log"
    path.write_text(build_file(kafka_pair, topic_name))
    address = kafka_pair.clusters["cloud"].bootstrap
    nobody = build_file(kafka_pair, f"{topic_name}-away").replace("cloud", "away").replace(address, "127.0.0.1:9")
    away.write_text(nobody)
    assert main(["apply", str(path), "--yes"]) == 0
    flow = f'{{flow="onprem-to-cloud-{topic_name}",job="%s"}}'
    own, all_ = flow % "worker", flow % "exporter"
    first, second, exported = find_free_ports(3)
    worker = ["worker", str(path), "--target", "cloud", "--log", "json", "--metrics"]
    with ExitStack() as stack:
        stack.enter_context(running_command(log, "exporter", str(path), str(away), "--listen", f"127.0.0.1:{exported}"))
        targets = {
            "worker": [f"127.0.0.1:{first}", f"127.0.0.1:{second}"],
            "exporter": [f"127.0.0.1:{exported}"],
        }
        server = start_prometheus(tmp_path / "prometheus", targets, interval_s=0.5)
        stack.callback(end_prometheus, server)
        wait_answer(server, 'watershed_cluster_up{cluster="cloud"}', 1)
        wait_answer(server, 'watershed_cluster_up{cluster="away"}', 0)
        wait_answer(server, 'watershed_fleet_workers{target="cloud",kind="present"}', 0)
        wait_answer(server, 'watershed_fleet_workers{target="cloud",kind="wanted"}', 1)
        wait_answer(server, f"watershed_copied_records_total{all_}", 0)
        with running_command(log, *worker, f"127.0.0.1:{first}") as running:
            wait_answer(server, 'watershed_fleet_workers{target="cloud",kind="present"}', 1)
            wait_until(lambda: ask_health(first, "ready")[0] == 200)
            assert ask_health(first, "live")[1]["version"]
            assert ask_health(exported, "ready")[0] == 200
            sending = producer(settings["onprem"])
            put(sending, topic_name, 1_000)
            sending.flush()
            for where in (own, all_):
                wait_answer(server, f"watershed_copied_records_total{where}", 1_000)
                wait_answer(server, f"watershed_latency_seconds_count{where}", 1_000)
                wait_answer(server, f"watershed_replication_latency_seconds_count{where}", 1_000)
                wait_answer(server, f"watershed_flow_lag_records{where}", 0)
                wait_answer(server, f"sum(watershed_source_position{where})", 1_000)
            through, whole = (
                query_prometheus(server, f"watershed_{name}_seconds_sum{all_} / 1000")[0].value
                for name in ("latency", "replication_latency")
            )
            print(f"mean latency: {through * 1000:.1f} ms through the worker, {whole * 1000:.1f} ms from the source")
            assert 0 < through < 30
            assert 0 < whole < 30
            running.kill()  # its lag is not known from now on: nobody reads the source
            print("killed")
            wait_answer(server, 'watershed_fleet_workers{target="cloud",kind="present"}', 0)
            wait_answer(server, f"watershed_partitions_silent{all_}", 2)
        put(sending, topic_name, 500, start=1_000)
        sending.flush()
        with running_command(log, *worker, f"127.0.0.1:{second}"):
            wait_answer(server, f"watershed_copied_records_total{all_}", 1_500)
            wait_answer(server, f"sum(watershed_copied_records_total{own})", 500)
            wait_answer(server, f"watershed_partitions_silent{all_}", 0)
            wait_answer(server, 'watershed_worker_starts_total{target="cloud"}', 2)
            increase = query_prometheus(server, f"increase(watershed_copied_records_total{all_}[10m])")
            assert main(["flow", "pause", f"onprem-to-cloud-{topic_name}", str(path)]) == 0
            wait_answer(server, f"sum by (state) (watershed_flow_state{all_[:-1]},state='paused'}})", 1)
        assert [each.value for each in increase] == [pytest.approx(1_500, rel=0.1)], "over a kill and a restart"
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    assert all(json.loads(line)["event"] for line in lines), "each line is an object of its own"
