"""The units of docker/systemd: what systemd says of them, and what they start, carried out as it is written there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab.free_ports import find_free_ports

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "docker" / "systemd").glob("*.service"))
PROGRAM = "/opt/watershed/bin/topology"  # as docs/install.md installs it
HERE = str(Path(sys.executable).with_name("topology"))
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@dataclass(frozen=True)
class Unit:
    settings: dict[str, list[str]]  # of [Service], in order; `Environment` may stand several times

    def last(self, name: str) -> str:
        return self.settings[name][-1]


def read_unit(path: Path) -> Unit:
    settings: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text().partition("[Service]\n")[2].partition("\n[Install]")[0].splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings[name].append(value)
    return Unit(dict(settings))


def build_environment(unit: Unit, instance: str, etc: Path) -> dict[str, str]:
    """`Environment=` and `EnvironmentFile=` as systemd reads them; later ones win; with a `-` a file may be missing.
    Nothing else is there but PATH. etc: in place of /etc/watershed."""
    found = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    words = [word for line in unit.settings.get("Environment", []) for word in shlex.split(line)]
    for named in unit.settings.get("EnvironmentFile", []):
        path = etc / Path(named.removeprefix("-").replace("%i", instance)).name
        if path.exists() or not named.startswith("-"):
            words += [word for line in path.read_text().splitlines() if line[:1] != "#" for word in shlex.split(line)]
    return found | dict(word.split("=", 1) for word in words)


def build_command(unit: Unit, environ: dict[str, str]) -> list[str]:
    """`ExecStart=` with its variables, the program being that of this environment."""
    program, *words = shlex.split(unit.last("ExecStart"))
    assert program == PROGRAM
    return [HERE, *(Template(word).substitute(environ) for word in words)]


def test_there_is_a_unit_for_workers_and_one_for_the_exporter() -> None:
    assert [each.name for each in UNITS] == ["watershed-exporter@.service", "watershed-worker@.service"]


@needs_systemd
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_the_unit_and_finds_it_hardened(path: Path, tmp_path: Path) -> None:
    """It wants programs that are there."""
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace(PROGRAM, HERE))
    verified = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout  # an exposure of 2.0 of 10 at most


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_the_options_are_those_of_the_command(path: Path, tmp_path: Path) -> None:
    unit = read_unit(path)
    (tmp_path / "orders.env").write_text("WATERSHED_TOPOLOGY=/etc/watershed/orders.yaml\nWATERSHED_TARGET=cloud\n")
    command = build_command(unit, build_environment(unit, "orders", tmp_path))
    told = subprocess.run([*command[:2], "--help"], capture_output=True, text=True, check=True).stdout
    for word in command[3:]:
        assert not word.startswith("--") or word in told, word
    assert "/etc/watershed/orders.yaml" in command


@contextmanager
def started(unit: Unit, environ: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(build_command(unit, environ), env=environ, stdout=out, stderr=out, cwd="/")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def end(unit: Unit, process: subprocess.Popen[bytes]) -> int:
    """As `systemctl stop`: the signal, and at most the unit's time."""
    process.send_signal(signal.Signals[unit.last("KillSignal")])
    return process.wait(float(unit.last("TimeoutStopSec")))


def wait_shared(lab: Lab, topology: str, workers: int) -> float:
    began = time.monotonic()
    with Admin(ConnectionSettings("cloud", (lab.clusters["cloud"].bootstrap,))) as admin:
        while len(given := read_slot_owners(admin, topology)) < SLOT_COUNT or len(set(given.values())) != workers:
            assert time.monotonic() - began < 180, given
            time.sleep(0.1)
    return time.monotonic() - began


def count(lab: Lab, alias: str, topic: str, partitions: int) -> int:
    with Admin(ConnectionSettings(alias, (lab.clusters[alias].bootstrap,))) as admin:
        return sum(span.end for span in admin.offsets(TopicPartition(topic, n) for n in range(partitions)).values())


def write_settings(lab: Lab, name: str, etc: Path) -> None:
    clusters = "".join(f'  {each.alias}: {{bootstrap: ["{each.bootstrap}"]}}\n' for each in lab.clusters.values())
    topology = etc / "orders.yaml"
    topology.write_text(
        f"apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {{name: {name}}}\nclusters:\n{clusters}"
        f"flows:\n  - {{source: onprem, target: cloud, suffix: {name}, topics: {{include: [{name}]}},\n"
        "     workers: {engine: process, placement: external, count: 2}}\n"
    )
    for number in range(2):
        (etc / f"orders-{number}.env").write_text(
            f"WATERSHED_TOPOLOGY={topology}\nWATERSHED_TARGET=cloud\nWATERSHED_METRICS=127.0.0.1:0\n"
        )
    assert main(["apply", str(topology), "--yes"]) == 0


def read_health(process: subprocess.Popen[bytes], port: int, question: str) -> dict[str, Any]:
    """What is answered with 200, waited for."""
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/{question}", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.kafka
def test_a_worker_of_a_stopped_fleet_waits_and_is_well(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    """Probes ask it meanwhile: whoever got no answer would start it again and again."""
    unit = read_unit(UNITS[1])
    write_settings(kafka_pair, topic_name, tmp_path)
    topology = str(tmp_path / "orders.yaml")
    assert main(["fleet", "stop", topology, "--target", "cloud"]) == 0
    [port] = find_free_ports(1)
    environ = build_environment(unit, "orders-0", tmp_path) | {"WATERSHED_METRICS": f"127.0.0.1:{port}"}
    with started(unit, environ, tmp_path / "log") as worker:
        assert "waits for `topology fleet start`" in read_health(worker, port, "ready")["why"]
        assert main(["fleet", "start", topology, "--target", "cloud"]) == 0
        wait_shared(kafka_pair, topic_name, 1)
        assert read_health(worker, port, "ready")["why"] == ""
        assert main(["fleet", "stop", topology, "--target", "cloud"]) == 0
        while "waits for" not in read_health(worker, port, "ready")["why"]:
            time.sleep(0.2)
        assert end(unit, worker) == 0


@pytest.mark.soak
@pytest.mark.kafka
def test_a_unit_that_is_stopped_hands_its_partitions_over(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    """Two workers as the unit starts them; one is stopped as systemd stops it, while records are written."""
    unit, partitions, records = read_unit(UNITS[1]), 6, 20_000
    with Admin(ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))) as admin:
        admin.create_topic(topic_name, partitions, 1)
    write_settings(kafka_pair, topic_name, tmp_path)
    producer = Producer({"bootstrap.servers": kafka_pair.clusters["onprem"].bootstrap, "linger.ms": 5})

    def write() -> None:
        for number in range(records):
            producer.produce(topic_name, b"%d" % number, partition=number % partitions)
            producer.poll(0)
        assert producer.flush(120) == 0

    environs = [build_environment(unit, f"orders-{number}", tmp_path) for number in range(2)]
    environs = [each | {"WATERSHED_ALLOW_PLAINTEXT": os.environ["WATERSHED_ALLOW_PLAINTEXT"]} for each in environs]
    with (
        started(unit, environs[0], tmp_path / "0.log") as first,
        started(unit, environs[1], tmp_path / "1.log") as second,
    ):
        wait_shared(kafka_pair, topic_name, 2)
        write()
        assert end(unit, first) == 0
        sys.stdout.write(f"handed over after {wait_shared(kafka_pair, topic_name, 1):.1f} s\n")
        write()
        deadline = time.monotonic() + 120
        while (found := count(kafka_pair, "cloud", topic_name, partitions)) < 2 * records:
            assert time.monotonic() < deadline, (found, (tmp_path / "1.log").read_text()[-2000:])
            time.sleep(0.2)
        assert end(unit, second) == 0
    assert count(kafka_pair, "cloud", topic_name, partitions) == 2 * records
    log = (tmp_path / "0.log").read_text()
    assert all(line.startswith("{") for line in log.splitlines() if line), log
