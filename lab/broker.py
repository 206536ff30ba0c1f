"""One broker process: its configuration, its life. Clusters of them are in lab/clusters.py."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watershed.lab import class_data_archive
from watershed.lab.detached_process import (
    ProcessIdentity,
    end_processes,
    find_by_argument,
    is_alive,
    kill_process,
    send_signal,
    spawn_detached,
)
from watershed.lab.errors import BrokerFailed
from watershed.lab.free_ports import LOOPBACK_HOST
from watershed.lab.jars import fetch_release, find_cache_folder, find_java, list_jvm_options
from watershed.lab.releases import DEFAULT_RELEASE, KafkaRelease, find_release

_HEAP = ("-Xms128m", "-Xmx512m")
_JVM = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Xlog:disable",
    "-Xshare:auto",
)
_TRAINED = "classes.jsa"
LOG4J_CONFIG = Path(__file__).with_name("log4j2.properties")
_SESSION_MS = 6000


@dataclass(frozen=True, slots=True)
class LabBroker:
    """A combined KRaft node (broker and controller), or a broker with a ZooKeeper; `home` holds configuration, data and
    logs."""

    alias: str
    id: int
    port: int
    controller_port: int
    home: Path
    process: ProcessIdentity | None = None
    settings: tuple[tuple[str, str], ...] = ()  # server properties of its own; see `_blanks` for what is filled in
    kafka: str = DEFAULT_RELEASE
    zookeeper_port: int | None = None  # of its cluster's; None: KRaft

    @property
    def address(self) -> str:
        """`host:port` of the listener for clients."""
        return f"{LOOPBACK_HOST}:{self.port}"

    @property
    def data(self) -> Path:
        """The folder of the logs (log.dirs)."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """What the broker's process prints."""
        return self.home / "logs" / "server.log"

    @property
    def release(self) -> KafkaRelease:
        """What is particular to the Kafka that it is. Raises LabError when this lab does not offer it."""
        return find_release(self.kafka)

    @property
    def pid(self) -> int | None:
        """The pid while the broker runs, else None."""
        return self.process.pid if self.process and is_alive(self.process) else None

    def to_json(self) -> dict[str, Any]:
        """For the state file; the other way is `from_json`."""
        process = self.process
        return {
            "id": self.id,
            "pid": process.pid if process else None,
            "started": process.started if process else None,
            "port": self.port,
            "controller_port": self.controller_port,
            "home": str(self.home),
            "settings": dict(self.settings),
            "kafka": self.kafka,
            "zookeeper_port": self.zookeeper_port,
        }

    @staticmethod
    def from_json(alias: str, value: Mapping[str, Any]) -> LabBroker:
        """Reads one broker of the lab's state file; `pid` is null for a stopped one."""
        process = ProcessIdentity(value["pid"], value["started"]) if value["pid"] is not None else None
        return LabBroker(
            alias,
            value["id"],
            value["port"],
            value["controller_port"],
            Path(value["home"]),
            process,
            tuple(value.get("settings", {}).items()),
            value.get("kafka", DEFAULT_RELEASE),
            value.get("zookeeper_port"),
        )


def build_process_marker(broker: LabBroker) -> str:
    """The command-line argument that only this broker's process has."""
    return f"-Dwatershed.broker={broker.home}"


def create_kafka_uuid() -> str:
    """16 bytes, base64url; never with a leading hyphen, which tools take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def find_broker_process(broker: LabBroker) -> ProcessIdentity | None:
    """The broker's process, also when the command that started it died before writing its pid down."""
    return broker.process if is_alive(broker.process) else find_by_argument(build_process_marker(broker))


def prepare_storage(broker: LabBroker, cluster_id: str, quorum: Sequence[LabBroker]) -> None:
    """Writes server.properties and, for KRaft, formats the storage; does nothing to storage that is formatted.

    What Kafka's tool writes is the same for every broker of a release but for meta.properties (KIP-858), and a Java for
    each costs a third of a broker's start: the cache keeps it from the first one. Raises BrokerFailed, ToolMissing.
    """
    broker.home.mkdir(parents=True, exist_ok=True)
    settings = broker.home / "server.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in build_broker_properties(broker, quorum).items()))
    meta, features = broker.data / "meta.properties", broker.data / "bootstrap.checkpoint"
    if meta.exists() or broker.zookeeper_port is not None:
        return
    kept = find_cache_folder(os.environ) / f"{fetch_release(broker.release).name}.checkpoint"
    usual = "log.dirs" not in dict(broker.settings)
    if usual and kept.exists():
        broker.data.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, features)
        lines = {"version": 1, "cluster.id": cluster_id, "node.id": broker.id}
        lines |= {"directory.id": create_kafka_uuid()} if broker.release.names_log_folders else {}
        meta.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return
    command = [*_java(broker), broker.release.formatter, "format"]
    done = subprocess.run(
        [*command, "--ignore-formatted", "-t", cluster_id, "-c", str(settings)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
        raise BrokerFailed(broker.alias, broker.id, f"could not format its storage ({last[0]})", broker.log)
    if usual:
        scratch = kept.with_suffix(f".{os.getpid()}")
        shutil.copyfile(features, scratch)
        scratch.replace(kept)


def start_broker(broker: LabBroker, train: bool = False) -> ProcessIdentity:
    """Starts the prepared broker, detached; with `train` it writes a class-data archive when it ends.

    Raises ToolMissing, LabError.
    """
    settings = broker.home / "server.properties"
    extra = [
        *(_list_training_options(broker) if train else []),
        build_process_marker(broker),
    ]
    main = [broker.release.main, str(settings)]
    return spawn_detached([*_java(broker), *extra, *main], broker.home / "logs" / "output.log")


def stop_brokers(brokers: Iterable[LabBroker], grace: float = 15.0) -> None:
    """SIGTERM to all, SIGKILL after `grace` seconds to those left."""
    stopped = [(broker, process) for broker in brokers if (process := find_broker_process(broker))]
    if end_processes([process for _, process in stopped], grace):
        for broker, _ in stopped:
            if (broker.home / _TRAINED).exists():
                class_data_archive.keep_archive(broker.home / _TRAINED, jars=fetch_release(broker.release))


def kill_broker(broker: LabBroker) -> None:
    """SIGKILL; returns when the process is gone."""
    if process := find_broker_process(broker):
        kill_process(process)


def freeze_process(broker: LabBroker, frozen: bool) -> None:
    """SIGSTOP or SIGCONT: a broker that is there but does not answer."""
    if process := find_broker_process(broker):
        send_signal(process, signal.SIGSTOP if frozen else signal.SIGCONT)


def lacks_archive(broker: LabBroker) -> bool:
    """Whether the machine has no class-data archive yet for a broker like this one."""
    return not class_data_archive.list_archive_options(jars=fetch_release(broker.release))


def build_broker_properties(broker: LabBroker, quorum: Sequence[LabBroker]) -> dict[str, str | int]:
    """server.properties of one broker of a cluster; suited to tests: small, quick, few threads. Only what its release
    knows, and what its own settings say."""
    copies = min(3, len(quorum))
    in_sync = max(1, copies - 1)
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    sizes: dict[str, str | int] = {f"{topic}.replication.factor": copies for topic in internal}
    sizes |= {f"{topic}.num.partitions": 8 for topic in internal}
    usual = {
        **(_describe_quorum(broker, quorum) if broker.zookeeper_port is None else _describe_zookeeper(broker)),
        "advertised.listeners": f"PLAINTEXT://{broker.address}",
        "log.dirs": str(broker.data),
        **sizes,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.min.isr": in_sync,
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "log.retention.check.interval.ms": 5000,
        "log.segment.delete.delay.ms": 1000,
        "log.initial.task.delay.ms": 5000,
        "log.cleaner.backoff.ms": 3000,
        "log.cleaner.dedupe.buffer.size": 16 << 20,  # default 128 MB of the heap
        "num.network.threads": 2,
        "num.io.threads": 4,
        "num.recovery.threads.per.data.dir": 2,
        "background.threads": 2,
    }
    known = {key: value for key, value in usual.items() if key not in broker.release.unknown}
    return {**known, **{key: value.format(**_blanks(broker)) for key, value in broker.settings}}


def _describe_quorum(broker: LabBroker, quorum: Sequence[LabBroker]) -> dict[str, str | int]:
    return {
        "process.roles": "broker,controller",
        "node.id": broker.id,
        "controller.quorum.voters": ",".join(f"{each.id}@{LOOPBACK_HOST}:{each.controller_port}" for each in quorum),
        "listeners": f"PLAINTEXT://{LOOPBACK_HOST}:{broker.port},CONTROLLER://{LOOPBACK_HOST}:{broker.controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        # A killed broker is fenced, and may register again, after this time (default 9000).
        "broker.session.timeout.ms": _SESSION_MS,
        "broker.heartbeat.interval.ms": 1000,
        # Of an idle broker's processor time a third goes to records that say nothing (default: one every 500 ms).
        "metadata.max.idle.interval.ms": 10_000,
    }


def _describe_zookeeper(broker: LabBroker) -> dict[str, str | int]:
    return {
        "broker.id": broker.id,
        "zookeeper.connect": f"{LOOPBACK_HOST}:{broker.zookeeper_port}",
        "zookeeper.session.timeout.ms": _SESSION_MS,
        "listeners": f"PLAINTEXT://{LOOPBACK_HOST}:{broker.port}",
    }


def _blanks(broker: LabBroker) -> dict[str, str | int | Path]:
    """What a setting of a broker's own may name in braces."""
    return {
        "host": LOOPBACK_HOST,
        "id": broker.id,
        "port": broker.port,
        "controller_port": broker.controller_port,
        "home": broker.home,
    }


def build_java_command(release: KafkaRelease, logs: Path, heap: Sequence[str] = _HEAP) -> list[str]:
    """A Java with a release's jars that logs to `logs`, but for what it runs. Raises ToolMissing, LabError."""
    jars = fetch_release(release)
    return [
        find_java(),
        *heap,
        *_JVM,
        *list_jvm_options(),
        *class_data_archive.list_archive_options(jars=jars),
        *release.java_options,
        f"{release.log.option}{release.log.configuration}",
        f"-Dkafka.logs.dir={logs}",
        "-cp",
        f"{jars}/*",
    ]


def _java(broker: LabBroker) -> list[str]:
    return build_java_command(broker.release, broker.home / "logs")


def _list_training_options(broker: LabBroker) -> list[str]:
    return class_data_archive.list_archiving_options(broker.home / _TRAINED, jars=fetch_release(broker.release))


def find_last_error(broker: LabBroker) -> str:
    """The most telling line of the broker's output, for a message."""
    for path in (broker.home / "logs" / "output.log", broker.log):
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        telling = [line for line in lines if re.search(r"ERROR|FATAL|Exception", line)]
        if telling:
            return telling[-1][:300]
    return "no error in its log"
