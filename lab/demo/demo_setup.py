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

from watershed.clusters.kafka_release import parse_release
from watershed.lab import airflow, clusters, process_sessions, sample_applications
from watershed.lab.clusters import Lab
from watershed.lab.detached_process import ProcessIdentity
from watershed.lab.errors import LabError
from watershed.lab.free_ports import find_free_ports
from watershed.lab.preload import create_lab_topics
from watershed.lab.releases import DEFAULT_RELEASE

DEMO_NAME = "orders-move"
DEMO_SOURCE, DEMO_TARGET = "onprem", "cloud"
DEMO_WAVE = "orders"  # the only one of the topology file
DEMO_PARTITIONS = 4
_GRACE_S = 8.0
_OLDEST_TARGET = "2.4.1"  # topology/delivery_guarantee.py
_OF_THE_WAY_BACK: Mapping[str, str] = {
    "failback": "{reverse: declared_paused, on_divergence: stop}",
    "rollback": "{until: 24h, reverse: cloud-to-onprem}",
}
_WITHOUT_WAY_BACK: Mapping[str, str] = {
    "failback": "{reverse: none, on_divergence: stop}",
    "rollback": '{none: "the source is older than Kafka 2.4, to which nothing is copied"}',
}


@dataclass(frozen=True, slots=True)
class DemoTopic:
    """A topic of the demonstration. share: of the records that are there before anything moves."""

    name: str
    share: float
    compression: str = "none"
    transactional: bool = False


DEMO_TOPICS = (
    DemoTopic("orders.created", 0.5, compression="lz4"),
    DemoTopic("orders.paid", 0.25, transactional=True),
    DemoTopic("orders.shipped", 0.25),
)
# How `make demo` moves each application; $url is the address of its control endpoint. `make up` uses http for all.
EVERY_WAY: Mapping[str, str] = {
    "billing": '{person: "The demonstration does it, as the team of billing would", timeout: 10m}',
    "checkout": '{http: "$url"}',
    "payments": "{command: demo-switch}",
}
BY_HTTP: Mapping[str, str] = dict.fromkeys(EVERY_WAY, '{http: "$url"}')
# application -> module and arguments; what they write and read goes on throughout
DEMO_APPLICATIONS: Mapping[str, tuple[str, ...]] = {
    "checkout": (
        "watershed.lab.orders_producer",
        *("--topics", "orders.created,orders.shipped", "--rate", "600", "--compression", "lz4"),
    ),
    "payments": (
        "watershed.lab.orders_producer",
        *("--topics", "orders.paid", "--rate", "300", "--transactional-id", "payments"),
    ),
    "billing": ("watershed.lab.billing_consumer", "--topics", ",".join(topic.name for topic in DEMO_TOPICS)),
}


@dataclass(frozen=True, slots=True)
class DemoFolders:
    """Where everything lies below one directory."""

    directory: Path

    @property
    def brokers(self) -> Path:
        """State, data and logs of the two clusters."""
        return self.directory / "clusters"

    @property
    def applications(self) -> Path:
        """One folder an application, with its records and its log."""
        return self.directory / "applications"

    @property
    def topologies(self) -> Path:
        """What `WATERSHED_TOPOLOGIES` names."""
        return self.directory / "topologies"

    @property
    def topology(self) -> Path:
        """The topology file of the demonstration."""
        return self.topologies / f"{DEMO_NAME}.yaml"

    @property
    def commands(self) -> Path:
        """The host's settings: which programs may stop and start applications (`WATERSHED_COMMANDS`)."""
        return self.directory / "commands.yaml"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME."""
        return self.directory / "airflow"

    @property
    def state(self) -> Path:
        """Airflow's side: frozen plans, Spark applications, evidence."""
        return self.directory / "state"


def clear_demo_folders(stage: DemoFolders) -> None:
    """Remove what an earlier demonstration left (its processes must have ended)."""
    shutil.rmtree(stage.directory, ignore_errors=True)
    for folder in (stage.topologies, stage.state, stage.applications):
        folder.mkdir(parents=True)


def start_demo_clusters(stage: DemoFolders, source: str = DEFAULT_RELEASE) -> Lab:
    """Both clusters, with the topics at the source. source: the Kafka release of that cluster (lab/releases.py)."""
    lab = clusters.start_clusters(stage.brokers, [DEMO_SOURCE, DEMO_TARGET], kafka={DEMO_SOURCE: source})
    create_lab_topics(lab.cluster(DEMO_SOURCE).bootstrap, [topic.name for topic in DEMO_TOPICS], DEMO_PARTITIONS)
    return lab


def list_declared_runs(source: str) -> tuple[str, ...]:
    """The kinds of runs besides the migration that the topology file declares, for a source of this release."""
    return ("rollback", "failover", "failback") if can_be_target(source) else ("rollback", "failover")


def can_be_target(source: str) -> bool:
    """Whether records can be copied back to a source of this release: it would be a target then."""
    return parse_release(source) >= parse_release(_OLDEST_TARGET)


def write_host_settings(stage: DemoFolders) -> None:
    """Lets Airflow's workers run the program that moves an application."""
    argv = json.dumps([sys.executable, "-m", "watershed.lab.demo.application_switch", str(stage.applications)])
    stage.commands.touch(mode=0o600)
    stage.commands.write_text(f"programs:\n  demo-switch: {{argv: {argv}, airflow: true}}\n")


def write_demo_topology(stage: DemoFolders, lab: Lab, ways: Mapping[str, str] = BY_HTTP) -> dict[str, int]:
    """The topology file with this stage's addresses; returns the control port of every application. ways: how each
    application is stopped and started."""
    ports = dict(zip(DEMO_APPLICATIONS, find_free_ports(len(DEMO_APPLICATIONS)), strict=True))
    values = {
        name: string.Template(ways[name]).substitute(url=f"http://127.0.0.1:{port}") for name, port in ports.items()
    }
    for alias in (DEMO_SOURCE, DEMO_TARGET):
        values[alias] = lab.cluster(alias).bootstrap
        values[f"{alias}_id"] = lab.cluster(alias).cluster_id
    values |= _OF_THE_WAY_BACK if can_be_target(lab.cluster(DEMO_SOURCE).brokers[0].kafka) else _WITHOUT_WAY_BACK
    template = string.Template((Path(__file__).parent / f"{DEMO_NAME}.yaml").read_text())
    fresh = stage.topology.with_suffix(".new")
    fresh.write_text(template.substitute(values))
    fresh.replace(stage.topology)
    return ports


def start_demo_applications(stage: DemoFolders, lab: Lab, ports: Mapping[str, int]) -> None:
    """Producers and the consumer group, all at the source."""
    place = ["--cluster", DEMO_SOURCE, "--bootstrap", lab.cluster(DEMO_SOURCE).bootstrap]

    def start(name: str) -> None:
        sample_applications.start_application(
            stage.applications, name, [*DEMO_APPLICATIONS[name], *place], port=ports[name]
        )

    with ThreadPoolExecutor() as pool:
        list(pool.map(start, DEMO_APPLICATIONS))


def preload_demo_topics(stage: DemoFolders, source: str, records: int) -> None:
    """Write this many records into the topics at the source, one loader a topic. source: its bootstrap servers.

    Raises LabError.
    """
    commands = [_loader(stage, source, topic, int(records * topic.share)) for topic in DEMO_TOPICS]
    loaders = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        for topic, loader in zip(DEMO_TOPICS, loaders, strict=True):
            if loader.wait() != 0:
                raise LabError(f"the preload of {topic.name} failed (exit {loader.returncode})")
    finally:
        for loader in loaders:
            loader.kill()
            loader.wait()


def end_demo(stage: DemoFolders) -> None:
    """End everything below the directory: fleets, Airflow, applications, clusters. Nothing there is fine."""

    def the_rest() -> None:
        process_sessions.end_sessions(find_detached_programs(stage), grace=_GRACE_S, only_leaders=True)
        airflow.stop_airflow(stage.airflow, grace=_GRACE_S)

    with ThreadPoolExecutor() as pool:
        for done in [
            pool.submit(the_rest),
            pool.submit(sample_applications.stop_applications, stage.applications, None, _GRACE_S),
        ]:
            done.result()
    process_sessions.end_sessions(find_detached_programs(stage), grace=0.0)  # what Airflow started in its last moments
    clusters.end_clusters(stage.brokers)


def find_detached_programs(stage: DemoFolders) -> list[ProcessIdentity]:
    """Leaders of the detached programs that Airflow's tasks started (plugins/detached_process.py)."""
    return list(_programs(stage.state.rglob("process.json")))


def _programs(records: Iterable[Path]) -> Iterable[ProcessIdentity]:
    for record in records:
        known = json.loads(record.read_text())
        yield ProcessIdentity(known["pid"], known["started"])


def _loader(stage: DemoFolders, source: str, topic: DemoTopic, records: int) -> list[str]:
    argv = [sys.executable, "-m", "watershed.lab.preload", "--name", "history", "--topic", topic.name]
    argv += ["--directory", str(stage.applications / f"history-{topic.name}"), "--records", str(records)]
    argv += ["--cluster", DEMO_SOURCE, "--bootstrap", source, "--compression", topic.compression]
    return argv + (["--transactional-id", f"history-{topic.name}"] if topic.transactional else [])
