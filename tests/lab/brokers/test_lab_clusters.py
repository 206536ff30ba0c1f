"""`topology lab`: up, status and down are idempotent, survive crashes, and end only what the lab started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from watershed.cli.lab import lab as command
from watershed.lab import clusters, sample_applications
from watershed.lab.account import build_account, find_applications
from watershed.lab.detached_process import ProcessIdentity, end_processes, find_by_argument, is_alive, spawn_detached
from watershed.lab.preload import create_lab_topics

pytestmark = pytest.mark.kafka


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "lab"
    try:
        yield directory
    finally:
        clusters.end_clusters(directory)


def topology_lab(*arguments: str, home: Path) -> Result:
    return CliRunner().invoke(command, [*arguments, "--dir", str(home)])


def processes(home: Path) -> list[ProcessIdentity]:
    found = clusters.read_lab(home).clusters.values()
    return [broker.process for cluster in found for broker in cluster.brokers if broker.process]


def test_up_status_down(home: Path) -> None:
    assert topology_lab("status", "--format", "json", home=home).exit_code == 0
    first = topology_lab("up", "--names", "alpha", "--format", "json", home=home)
    assert first.exit_code == 0, first.output
    shape = json.loads(first.output)
    (cluster,) = shape["clusters"]
    (broker,) = cluster["brokers"]
    assert cluster["alias"] == "alpha"
    assert cluster["bootstrap"] == f"127.0.0.1:{broker['port']}"
    assert Path(broker["data"]).is_dir()
    create_lab_topics(cluster["bootstrap"], ["kept"], 3)

    again = topology_lab("up", "--names", "alpha", "--format", "json", home=home)
    assert json.loads(again.output) == shape

    (process,) = processes(home)
    os.kill(broker["pid"], signal.SIGKILL)
    while is_alive(process):
        time.sleep(0.01)
    assert topology_lab("status", home=home).exit_code == 1
    revived = json.loads(topology_lab("up", "--names", "alpha", "--format", "json", home=home).output)
    assert revived["clusters"][0]["cluster_id"] == cluster["cluster_id"]
    assert revived["clusters"][0]["brokers"][0]["port"] == broker["port"]
    assert revived["clusters"][0]["brokers"][0]["pid"] != broker["pid"]
    assert "kept" in AdminClient({"bootstrap.servers": cluster["bootstrap"]}).list_topics(timeout=60).topics

    refused = topology_lab("up", "--names", "alpha", "--brokers", "3", home=home)
    assert refused.exit_code == 2
    assert "has 1 broker(s), not 3" in refused.output

    (process,) = processes(home)
    assert topology_lab("down", home=home).exit_code == 0
    assert not is_alive(process)
    assert not home.exists()
    assert topology_lab("down", home=home).exit_code == 0


def test_what_a_killed_up_left_is_found_and_ended(home: Path) -> None:
    program = "import sys; from watershed.lab import clusters; clusters.start_clusters(sys.argv[1], ['alpha', 'beta'])"
    up = subprocess.Popen([sys.executable, "-c", program, str(home)])
    deadline = time.monotonic() + 180
    while not processes(home) and time.monotonic() < deadline:
        time.sleep(0.02)
    up.kill()
    up.wait()
    time.sleep(2)  # one that was just being started has its arguments by then
    left = processes(home)
    assert left
    state = json.loads((home / "lab.json").read_text())
    state["clusters"][0]["brokers"][0] |= {"pid": None, "started": None}  # as if killed before it wrote the pid
    (home / "lab.json").write_text(json.dumps(state))

    assert processes(home) == left
    clusters.end_clusters(home)

    assert not [process for process in left if is_alive(process)]


def test_down_spares_a_stranger_with_a_recorded_pid(home: Path, tmp_path: Path) -> None:
    stranger = spawn_detached(["/bin/sleep", "60"], tmp_path / "stranger.log")
    try:
        home.mkdir()
        broker = {"id": 1, "pid": stranger.pid, "started": stranger.started - 1, "port": 1, "controller_port": 2}
        cluster = {"alias": "a", "cluster_id": "x", "brokers": [{**broker, "home": str(home / "a" / "1")}]}
        (home / "lab.json").write_text(json.dumps({"schema": 1, "clusters": [cluster]}))
        clusters.end_clusters(home)
        assert is_alive(stranger)
    finally:
        end_processes([stranger])
    assert not is_alive(stranger)
    assert find_by_argument("no process has this argument") is None


@pytest.mark.slow
@pytest.mark.soak
def test_a_killed_broker_costs_the_applications_nothing(home: Path, tmp_path: Path) -> None:
    here = clusters.start_clusters(home, ["alpha"]).clusters["alpha"]
    create_lab_topics(here.bootstrap, ["plain", "careful"], 2)
    at = ["--cluster", here.alias, "--bootstrap", here.bootstrap]
    rate = ["--rate", "200"]
    try:
        plain = sample_applications.start_application(
            tmp_path, "plain", ["watershed.lab.orders_producer", "--topics", "plain", *rate, *at]
        )
        transactional = ["--transactional-id", "careful", "--topics", "careful"]
        careful = sample_applications.start_application(
            tmp_path, "careful", ["watershed.lab.orders_producer", *transactional, *rate, *at]
        )
        billing = sample_applications.start_application(
            tmp_path, "billing", ["watershed.lab.billing_consumer", "--topics", "plain,careful", *at]
        )
        for app in (plain, careful):
            sample_applications.wait_for_count(app, "acked", 200, seconds=180)
        clusters.kill_lab_broker(home, "alpha")
        clusters.restart_lab_broker(home, "alpha")
        for app in (plain, careful):
            sample_applications.wait_for_count(
                app, "acked", sample_applications.ask_application(app)["acked"] + 200, seconds=180
            )
            sample_applications.stop_client(app)
        deadline = time.monotonic() + 180
        while build_account(find_applications(tmp_path)).lost and time.monotonic() < deadline:
            time.sleep(0.3)
        sample_applications.stop_client(billing)
        result = build_account(find_applications(tmp_path))
        assert (result.lost, result.repeated, result.out_of_order_per_key) == (0, 0, 0)
        assert result.acked > 800
        assert max(result.longest_pause_s.values()) > 1.0
    finally:
        sample_applications.stop_applications(tmp_path)
