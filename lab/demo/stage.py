"""The stage: two clusters, applications that write and read, a preload, Airflow, and one topology file."""

from __future__ import annotations

import json
import shutil
import string
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab import airflow, apps, clusters, sessions
from lab.broker import free_ports
from lab.clusters import Lab
from lab.errors import LabError
from lab.load import create_topics
from lab.process import Process

NAME = "orders-move"
SOURCE, TARGET = "onprem", "cloud"
WAVE = "orders"  # the only one of the topology file
PARTITIONS = 4
_GRACE_S = 8.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the demonstration. share: of the records that are there before anything moves."""

    name: str
    share: float
    compression: str = "none"
    transactional: bool = False


TOPICS = (
    Topic("orders.created", 0.5, compression="lz4"),
    Topic("orders.paid", 0.25, transactional=True),
    Topic("orders.shipped", 0.25),
)
# application -> module and arguments; what they write and read goes on throughout
APPLICATIONS: Mapping[str, tuple[str, ...]] = {
    "checkout": (
        "lab.orders",
        *("--topics", "orders.created,orders.shipped", "--rate", "600", "--compression", "lz4"),
    ),
    "payments": (
        "lab.orders",
        *("--topics", "orders.paid", "--rate", "300", "--transactional-id", "payments"),
    ),
    "billing": ("lab.billing", "--topics", ",".join(topic.name for topic in TOPICS)),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Where everything lies below one directory."""

    directory: Path

    @property
    def brokers(self) -> Path:
        return self.directory / "clusters"

    @property
    def applications(self) -> Path:
        return self.directory / "applications"

    @property
    def topologies(self) -> Path:
        return self.directory / "topologies"

    @property
    def topology(self) -> Path:
        return self.topologies / f"{NAME}.yaml"

    @property
    def airflow(self) -> Path:
        return self.directory / "airflow"

    @property
    def state(self) -> Path:
        """Airflow's side: frozen plans, Spark applications, evidence."""
        return self.directory / "state"


def clear(stage: Stage) -> None:
    """Remove what an earlier demonstration left (its processes must have ended)."""
    shutil.rmtree(stage.directory, ignore_errors=True)
    for folder in (stage.topologies, stage.state, stage.applications):
        folder.mkdir(parents=True)


def start_clusters(stage: Stage) -> Lab:
    """Both clusters, with the topics at the source."""
    lab = clusters.up(stage.brokers, [SOURCE, TARGET])
    create_topics(lab.cluster(SOURCE).bootstrap, [topic.name for topic in TOPICS], PARTITIONS)
    return lab


def write_topology(stage: Stage, lab: Lab) -> dict[str, int]:
    """The topology file with this stage's addresses; returns the control port of every application."""
    ports = dict(zip(APPLICATIONS, free_ports(len(APPLICATIONS)), strict=True))
    values = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    for alias in (SOURCE, TARGET):
        values[alias] = lab.cluster(alias).bootstrap
        values[f"{alias}_id"] = lab.cluster(alias).cluster_id
    template = string.Template((Path(__file__).parent / f"{NAME}.yaml").read_text())
    fresh = stage.topology.with_suffix(".new")
    fresh.write_text(template.substitute(values))
    fresh.replace(stage.topology)
    return ports


def start_applications(stage: Stage, lab: Lab, ports: Mapping[str, int]) -> None:
    """Producers and the consumer group, all at the source."""
    place = ["--cluster", SOURCE, "--bootstrap", lab.cluster(SOURCE).bootstrap]

    def start(name: str) -> None:
        apps.start(stage.applications, name, [*APPLICATIONS[name], *place], port=ports[name])

    with ThreadPoolExecutor() as pool:
        list(pool.map(start, APPLICATIONS))


def preload(stage: Stage, lab: Lab, records: int) -> None:
    """Write this many records into the topics, one loader a topic. Raises LabError."""
    commands = [_loader(stage, lab, topic, int(records * topic.share)) for topic in TOPICS]
    loaders = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        for topic, loader in zip(TOPICS, loaders, strict=True):
            if loader.wait() != 0:
                raise LabError(f"the preload of {topic.name} failed (exit {loader.returncode})")
    finally:
        for loader in loaders:
            loader.kill()
            loader.wait()


def end(stage: Stage) -> None:
    """End everything below the directory: fleets, Airflow, applications, clusters. Nothing there is fine."""

    def the_rest() -> None:
        sessions.end(programs(stage), grace=_GRACE_S, only_leaders=True)
        airflow.down(stage.airflow, grace=_GRACE_S)

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(the_rest), pool.submit(apps.stop, stage.applications, None, _GRACE_S)]:
            done.result()
    sessions.end(programs(stage), grace=0.0)  # what Airflow started in its last moments
    clusters.down(stage.brokers)


def programs(stage: Stage) -> list[Process]:
    """Leaders of the detached programs that Airflow's tasks started (plugins/watershed_process.py)."""
    return list(_programs(stage.state.rglob("process.json")))


def _programs(records: Iterable[Path]) -> Iterable[Process]:
    for record in records:
        known = json.loads(record.read_text())
        yield Process(known["pid"], known["started"])


def _loader(stage: Stage, lab: Lab, topic: Topic, records: int) -> list[str]:
    source = lab.cluster(SOURCE)
    argv = [sys.executable, "-m", "lab.load", "--name", "history", "--topic", topic.name]
    argv += ["--directory", str(stage.applications / f"history-{topic.name}"), "--records", str(records)]
    argv += ["--cluster", SOURCE, "--bootstrap", source.bootstrap, "--compression", topic.compression]
    return argv + (["--transactional-id", f"history-{topic.name}"] if topic.transactional else [])
