"""A standalone Spark, a topic on two brokers and its topology file, and Spark's own account of an application: what the
files of such clusters share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusters.admin import Admin
from clusters.settings import ConnectionSettings
from lab.spark_standalone import SPARK_JAVA_OPTIONS, SparkStandalone
from tests.replicator.real import producer, put, settings_of

if TYPE_CHECKING:
    from lab.clusters import Lab

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


def build_cluster(directory: Path) -> SparkStandalone:
    """A cluster of two workers of two cores; its processes load their classes from the archive, too."""
    return SparkStandalone(directory, workers=2, cores=2, environ={"SPARK_DAEMON_JAVA_OPTS": _ARCHIVE})


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
        self.run("-m", "cli.main", "apply", str(self.path), "--yes")

    def run(self, *arguments: str) -> None:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Application:
    """One of our Spark applications on a cluster, with Spark's event log."""

    def __init__(self, directory: Path, master: str, arguments: list[str], conf: Mapping[str, str]) -> None:
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
        environ = os.environ | {"WATERSHED_SPARK_MASTER": master, "WATERSHED_SPARK_CONF": str(path)}
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


def until(condition: Callable[[], Any], seconds: float = 240.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
    return answer
