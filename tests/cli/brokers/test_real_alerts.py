"""Real brokers, a worker, the exporter, a real Prometheus with the rules of `topology alerts`: which alert each fault
fires, after how many seconds, and that no other fires; none in quiet traffic, and no query of a dashboard is refused.

$WATERSHED_QUIET_MINUTES: how long the quiet traffic is (1; 30 for the whole promise).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.brokers.test_real_exporter import running_command, wait_answer
from tests.replicator.real import applied, settings_of, wait_copied, workers
from tests.replicator.states_scene import (
    QUICK,
    create,
    delete_records,
    delete_topics,
    in_state,
    produce,
    typed,
)
from watershed.cli.main import main
from watershed.lab.clusters import freeze_lab_broker, kill_lab_broker
from watershed.lab.free_ports import find_free_ports
from watershed.lab.prometheus_server import (
    PrometheusServer,
    end_prometheus,
    is_prometheus_built,
    list_firing_alerts,
    query_prometheus,
    start_prometheus,
)
from watershed.replicator.alerting.dashboard_files import list_queries, read_dashboards
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.soak,
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]
GOAL_S = 60
QUIET_S = 60 * float(os.environ.get("WATERSHED_QUIET_MINUTES", "1"))
FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: watched, owner: tests}}
clusters:
  onprem: {{bootstrap: [{onprem}]}}
  cloud: {{bootstrap: [{cloud}]}}
flows:
  - source: onprem
    target: cloud
    topics: {{include: [{topics}]}}
    workers: {{engine: process, discovery: 1s}}
    slo: {{lag: {{p99: 30s, max: 2m}}, rpo: 5m, outage_allowance: 1d}}
"""
TOPICS = ("expired", "recreated", "gone", "lost", "foreign", "fine")
HALTED = {  # fault, topic, state
    "F11": ("expired", "source_expired"),
    "F13": ("recreated", "source_recreated"),
    "F14": ("gone", "source_gone"),
    "F16": ("lost", "target_gone"),
    "foreign writer": ("foreign", "target_foreign_write"),
}
Alert = tuple[str, str]  # name, state


def read_alerts(server: PrometheusServer) -> set[Alert]:
    return {(each["alertname"], each.get("state", "")) for each in list_firing_alerts(server)}


def wait_alerts(server: PrometheusServer, began: float, wanted: dict[str, Alert]) -> None:
    """Until all fire; no other may fire meanwhile."""
    late = dict(wanted)
    while late:
        firing = read_alerts(server)
        assert firing <= set(wanted.values()), firing
        for fault in [each for each, alert in late.items() if alert in firing]:
            print(f"{fault}: {late.pop(fault)} after {time.monotonic() - began:.0f} s")
        assert time.monotonic() < began + GOAL_S, late
        time.sleep(0.5)


def wait_calm(server: PrometheusServer, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while firing := read_alerts(server):
        assert time.monotonic() < deadline, firing
        time.sleep(0.5)


def watch_quiet(server: PrometheusServer, seconds: float, write: Callable[[], None]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        write()
        assert read_alerts(server) == set()
        time.sleep(1)


@contextmanager
def watched_file(path: Path, folder: Path) -> Iterator[PrometheusServer]:
    """The exporter of the file, and Prometheus with its rules."""
    assert main(["alerts", str(path), "--out", str(folder / "rules")]) == 0
    port = find_free_ports(1)[0]
    with ExitStack() as stack:
        stack.enter_context(running_command(folder / "log", "exporter", str(path), "--listen", f"127.0.0.1:{port}"))
        rules = list((folder / "rules").iterdir())
        server = start_prometheus(folder / "prometheus", {"exporter": [f"127.0.0.1:{port}"]}, rules)
        stack.callback(end_prometheus, server)
        wait_answer(server, 'watershed_cluster_up{cluster="cloud"}', 1)
        yield server


def test_faults_fire_their_alerts_and_quiet_traffic_fires_none(own_pair: Lab, tmp_path: Path) -> None:
    settings = settings_of(own_pair)
    onprem, cloud = settings["onprem"], settings["cloud"]
    path = tmp_path / "watched.yaml"
    addresses = {alias: each.bootstrap[0] for alias, each in settings.items()}
    path.write_text(FILE.format(**addresses, topics=", ".join(TOPICS)))
    plan = compile_path(path)
    create(onprem, *TOPICS)
    for each in TOPICS:
        produce(onprem, each, 0, 100)
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        first = start()
        for each in TOPICS:
            wait_copied(settings, plan, each, 1)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            watch_quiet(server, QUIET_S, lambda: produce(onprem, "fine", 100, 10))

            for name, text in read_dashboards().items():
                for query in list_queries(text):
                    asked = query.replace("$__rate_interval", "1m")
                    for variable in ("flow", "target", "migration"):
                        asked = asked.replace(f"${variable}", ".*")
                    found = query_prometheus(server, asked)
                    has_reason = any(
                        each in asked for each in ("proof", "migration", "wanted", "28d", "beside", "left")
                    )
                    assert found or has_reason, (name, query)

            assert typed("topology flow pause onprem-to-cloud FILE", path) == 0
            in_state(settings, plan, "fine", "paused")
            for each in TOPICS:
                produce(onprem, each, 200, 50)
            delete_records(onprem, "expired", 130)
            delete_topics(onprem, "recreated", "gone")
            delete_topics(cloud, "lost")
            create(onprem, "recreated")
            produce(onprem, "recreated", 1_000, 10)
            produce(cloud, "foreign", 9_000, 5)
            assert typed("topology flow resume onprem-to-cloud FILE", path) == 0
            began = time.monotonic()
            wait_alerts(
                server, began, {fault: ("WatershedPartitionHalted", state) for fault, (_, state) in HALTED.items()}
            )

            first.kill()
            began = time.monotonic()
            while ("WatershedNoWorker", "") not in (firing := read_alerts(server)):
                assert {name for name, _ in firing} <= {"WatershedPartitionHalted"}, firing
                assert time.monotonic() < began + GOAL_S
                time.sleep(0.5)
            print(f"no worker: WatershedNoWorker after {time.monotonic() - began:.0f} s")


def test_clusters_that_do_not_answer(own_pair: Lab, tmp_path: Path) -> None:
    settings = settings_of(own_pair)
    path = tmp_path / "watched.yaml"
    addresses = {alias: each.bootstrap[0] for alias, each in settings.items()}
    path.write_text(FILE.format(**addresses, topics="steady").replace("watched,", "steady,"))
    text = path.read_text().replace("    topics:", "    suffix: steady\n    topics:")
    path.write_text(text)
    plan = compile_path(path)
    create(settings["onprem"], "steady")
    produce(settings["onprem"], "steady", 0, 100)
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        wait_copied(settings, plan, "steady", 1)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            freeze_lab_broker(own_pair.home, "onprem")
            began = time.monotonic()
            try:
                wait_alerts(server, began, {"source frozen (F20)": ("WatershedPartitionsRetry", "")})
            finally:
                freeze_lab_broker(own_pair.home, "onprem", frozen=False)
            wait_calm(server)
            kill_lab_broker(own_pair.home, "cloud")
            wait_alerts(server, time.monotonic(), {"target killed": ("WatershedClusterUnreachable", "")})
