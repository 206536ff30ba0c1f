"""The fleet on Spark: it copies, shares with a plain process, survives a killed worker, ends on SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Producer

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.settings import ConnectionSettings
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 60_000
TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - {{source: onprem, target: cloud, suffix: {name}, topics: {{include: ["{name}"]}}, naming: {{policy: identity}}}}
"""


def test_a_fleet_survives_a_killed_worker_and_ends_when_told(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    onprem, cloud = (kafka_pair.clusters[alias].bootstrap for alias in ("onprem", "cloud"))
    path, state = tmp_path / "t.yaml", tmp_path / "state.json"
    path.write_text(TOPOLOGY.format(name=topic_name, onprem=onprem, cloud=cloud), encoding="utf-8")
    source = ConnectionSettings("onprem", (onprem,))
    with Admin(source) as admin:
        admin.create_topic(topic_name, 4, 1, {})
    fill(source, topic_name, RECORDS)
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    command = ["-m", "watershed.spark.replicate", "--topology", str(path), "--target", "cloud", "--workers", "2"]
    with (tmp_path / "log").open("wb") as log:
        fleet = subprocess.Popen([sys.executable, *command, "--state", str(state)], stderr=log, stdout=log)
    try:
        first = until(lambda: running(state, fleet), 300)
        with one_more(path, tmp_path):
            shared_by(3, kafka_pair, topic_name)
        shared_by(2, kafka_pair, topic_name)
        family = psutil.Process(fleet.pid).children(recursive=True)
        os.kill(first["workers"][0]["pid"], signal.SIGKILL)
        fill(source, topic_name, RECORDS)
        gone = first["workers"][0]["pid"]
        until(lambda: (now := running(state, fleet)) and gone not in pids(now) and len(pids(now)) == 2, 300)
        summary = prove_flows(
            compile_path(path), ProofRequest(wait=120.0, final=True), tmp_path / "out", session=lambda: spark
        )
        assert (summary["verdict"], summary["proven"], summary["unproven"]) == ("proven", 2 * RECORDS, 0)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(180) == 0
        assert json.loads(state.read_text(encoding="utf-8"))["state"] == "stopped"
        until(lambda: not [process for process in family if runs(process)], 180)
    finally:
        fleet.kill()
        fleet.wait()


@contextmanager
def one_more(path: Path, tmp_path: Path) -> Iterator[None]:
    """A worker as a plain process, in the same fleet as those that Spark hosts; it leaves by SIGTERM."""
    with (tmp_path / "process").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "watershed.cli.main", "worker", str(path), "--target", "cloud"],
            stderr=log,
            stdout=log,
        )
    try:
        yield
        worker.terminate()
        assert worker.wait(180) == 0
    finally:
        worker.kill()
        worker.wait()


def shared_by(workers: int, lab: Lab, topology: str) -> None:
    """Until the slots are shared among so many workers."""
    with Admin(ConnectionSettings("cloud", (lab.clusters["cloud"].bootstrap,))) as admin:
        until(
            lambda: (
                len(given := read_slot_owners(admin, topology)) == SLOT_COUNT and len(set(given.values())) == workers
            ),
            180,
        )


def fill(settings: ConnectionSettings, topic: str, records: int) -> None:
    producer = Producer(settings.librdkafka({"linger.ms": 20, "queue.buffering.max.messages": 1_000_000}))
    for i in range(records):
        producer.produce(topic, key=b"%d" % (i % 997), value=b"value %d" % i)
        if i % 5000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def running(state: Path, fleet: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    assert fleet.poll() is None, "the fleet has ended"
    if not state.exists():
        return None
    facts: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
    return facts if facts["state"] == "running" else None


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids(facts: dict[str, Any]) -> set[int]:
    return {worker["pid"] for worker in facts["workers"]}


def until(condition: Callable[[], Any], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)
    return answer
