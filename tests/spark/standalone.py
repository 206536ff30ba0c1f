"""A standalone Spark, a topic on two brokers and its topology file, and Spark's own account of an application: what the
files of such clusters share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.replicator.real import producer, put, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.spark_standalone import SPARK_JAVA_OPTIONS, SparkStandalone
from watershed.replicator.worker.fleet_status import FleetRow, read_fleet_rows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

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
PARTITIONS = 4
_ARCHIVE = os.environ.get("SPARK_SUBMIT_OPTS", "")  # what drivers load classes from (tests/conftest.py)


def build_cluster(directory: Path, workers: int = 2, secrets: Sequence[str] = ()) -> SparkStandalone:
    """A cluster of workers of two cores; its processes load their classes from the archive, too. secrets: variables of
    this process that executors have as well."""
    environ = {"SPARK_DAEMON_JAVA_OPTS": _ARCHIVE, **{name: os.environ[name] for name in secrets}}
    return SparkStandalone(directory, workers=workers, cores=2, environ=environ)


class Scene:
    """A topic with records at the source, and the file that wants it copied by a flow that no other test has."""

    def __init__(self, lab: Lab, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self.settings: dict[str, ConnectionSettings] = settings_of(lab)
        addresses = {alias: cluster.bootstrap for alias, cluster in lab.clusters.items()}
        self.path = directory / "t.yaml"
        self.path.write_text(TOPOLOGY.format(name=name, **addresses), encoding="utf-8")
        with Admin(self.settings["onprem"]) as admin:
            admin.create_topic(name, PARTITIONS, 1, {})
        self.written = 0

    def fill(self, records: int) -> None:
        writer = producer(self.settings["onprem"])
        put(writer, self.name, records, self.written)
        assert writer.flush(60) == 0
        self.written += records

    def apply(self) -> None:
        self.run("-m", "watershed.cli.main", "apply", str(self.path), "--yes")

    def run(self, *arguments: str) -> None:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Application:
    """One of our Spark applications on a cluster, with Spark's event log."""

    def __init__(
        self, directory: Path, cluster: SparkStandalone, arguments: list[str], conf: Mapping[str, str]
    ) -> None:
        directory.mkdir()
        self.directory, self.log = directory, directory / "log"
        self._events = directory / "events"
        self._events.mkdir()
        told = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": f"{SPARK_JAVA_OPTIONS} {_ARCHIVE}",  # executors live for seconds
            **conf,
        }
        path = directory / "spark.conf"
        path.write_text("".join(f"{key} {value}\n" for key, value in told.items()), encoding="utf-8")
        environ = os.environ | {"WATERSHED_SPARK_MASTER": cluster.url, "WATERSHED_SPARK_CONF": str(path)}
        environ["WATERSHED_SPARK_PAGE"] = cluster.page
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, *arguments], env=environ, stderr=log, stdout=log)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Spark's own events of one kind, as far as they are on disk."""
        found = []
        for path in self._events.iterdir():
            for line in path.read_text(encoding="utf-8").splitlines():
                if f'"{name}"' in line and line.endswith("}"):
                    found.append(json.loads(line))
        return found

    def until(self, condition: Callable[[], Any], seconds: float = 240.0) -> Any:
        """Wait for it while the application runs."""

        def checked() -> Any:
            answer = condition()
            assert answer or self.process.poll() is None, f"it ended early:\n{self.said()[-3000:]}"
            return answer

        return until(checked, seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Supervised(Application):
    """`topology fleet supervise` with a driver on the cluster; orders and state go through the target cluster."""

    def __init__(
        self, scene: Scene, cluster: SparkStandalone, directory: Path, conf: Mapping[str, str] | None = None
    ) -> None:
        self._plan, self._settings = compile_path(scene.path), scene.settings
        self.path = scene.path
        words = ["-m", "watershed.cli.main", "fleet", "supervise", str(scene.path), "--target", "cloud"]
        super().__init__(directory, cluster, words, conf or {})

    def order(self, scene: Scene, *words: str) -> None:
        scene.run("-m", "watershed.cli.main", "fleet", words[0], str(scene.path), "--target", "cloud", *words[1:])

    def wait_size(self, size: int, without: frozenset[str] = frozenset()) -> FleetRow:
        """Until so many workers are there, none of `without`, and no restart goes on."""
        seen: list[FleetRow] = []
        began = time.monotonic()

        def there() -> bool:
            time.sleep(0.3)  # each look opens connections, and processor time is what the fleet waits for
            seen[:] = read_fleet_rows(self._plan, self._settings.__getitem__, "cloud")
            row = seen[0]
            return row.present == row.wanted == size and not row.restarting and not without & set(row.workers)

        self.until(there, 600)
        print(f"size {size} after {time.monotonic() - began:.1f} s")
        return seen[0]

    def row(self) -> FleetRow:
        """The fleet as a reader of the target cluster sees it."""
        return read_fleet_rows(self._plan, self._settings.__getitem__, "cloud")[0]

    def driver(self) -> psutil.Process:
        """The Spark driver: its Python process."""
        children = psutil.Process(self.process.pid).children()
        return next(each for each in children if "watershed.spark.replicate" in each.cmdline())

    def end(self) -> None:
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for each in family:
            if runs(each.pid):
                each.kill()


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], Any], seconds: float = 240.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
    return answer
