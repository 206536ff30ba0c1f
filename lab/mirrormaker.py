"""MirrorMaker 2 of the same Kafka release as the brokers, as one process on this machine.

It runs in Kafka Connect's standalone mode, so that connectors come and go in a warm JVM and each can be measured on
its own; source connector, task and the framework's producer are those of the dedicated mode. Heap and collector are
those of `connect-mirror-maker.sh` and `kafka-run-class.sh`.
"""

from __future__ import annotations

import http.client
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watershed.lab import class_data_archive
from watershed.lab.broker import LOG4J_CONFIG
from watershed.lab.detached_process import ProcessIdentity, end_processes, is_alive, send_signal, spawn_detached
from watershed.lab.errors import LabError
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports
from watershed.lab.jars import fetch_jars, find_java, list_jvm_options

_READY_S = 180.0
_STOP_S = 60.0
_JVM = (
    "-Xms256m",
    "-Xmx2g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Xlog:disable",
)
_TRAINED = "classes.jsa"
_CONNECTOR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
_CHECKPOINTS = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"


@dataclass(frozen=True, slots=True)
class ConnectMirrorMaker:
    """A running process. `home` holds its configuration, its offsets and its log."""

    home: Path
    port: int
    process: ProcessIdentity

    @property
    def log(self) -> Path:
        """What the process prints."""
        return self.home / "output.log"

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector and wait until all of its tasks run. Raises LabError when one fails."""
        self._ask("PUT", f"/connectors/{name}/config", config)
        deadline = time.monotonic() + _READY_S
        while True:
            states = self.states(name)
            if "FAILED" in states:
                raise LabError(f"connector {name} failed, see {self.log}")
            if len(states) > 1 and set(states) == {"RUNNING"}:
                return
            if time.monotonic() > deadline:
                raise LabError(f"connector {name} has no running task after {_READY_S:.0f} s, see {self.log}")
            time.sleep(0.05)

    def states(self, name: str) -> list[str]:
        """State of the connector and of each task; nothing while Connect does not know it yet."""
        try:
            found = self._ask("GET", f"/connectors/{name}/status")
        except LabError:
            return []
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]

    def delete(self, name: str) -> None:
        """Deletes a connector and waits until its tasks are gone."""
        self._ask("DELETE", f"/connectors/{name}")
        deadline = time.monotonic() + _READY_S
        while self.states(name) and time.monotonic() < deadline:
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the process, also one that is suspended (SIGSTOP)."""
        send_signal(self.process, signal.SIGCONT)  # it may be stopped, and then hears nothing
        if end_processes([self.process], grace=_STOP_S):
            class_data_archive.keep_archive(self.home / _TRAINED, "mirrormaker")

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://{LOOPBACK_HOST}:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise LabError(f"Connect answers {error.code} to {method} {path}: {error.read().decode()[:300]}") from None
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"Connect does not answer {method} {path} ({error}), see {self.log}") from None


def start_connect_mirrormaker(home: Path, target: str, more: Mapping[str, str] | None = None) -> ConnectMirrorMaker:
    """A process without connectors, next to the cluster at `target` (bootstrap). Raises ToolMissing, LabError.

    more: settings of the Connect worker.
    """
    home.mkdir(parents=True, exist_ok=True)
    (port,) = find_free_ports(1)
    worker = {
        "bootstrap.servers": target,
        "listeners": f"http://{LOOPBACK_HOST}:{port}",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "offset.storage.file.filename": str(home / "offsets"),
        "plugin.discovery": "service_load",
        **(more or {}),
    }
    settings = home / "worker.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in worker.items()))
    training = class_data_archive.list_archiving_options(home / _TRAINED, "mirrormaker")
    main = ["org.apache.kafka.connect.cli.ConnectStandalone", str(settings)]
    process = spawn_detached([*_java(home), *training, *main], home / "output.log")
    running = ConnectMirrorMaker(home, port, process)
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            running._ask("GET", "/connectors")
            return running
        except LabError:
            if not is_alive(process) or time.monotonic() > deadline:
                running.stop()
                raise LabError(f"MirrorMaker 2 did not start, see {running.log}") from None
            time.sleep(0.1)


def build_source_connector(
    source: str, target: str, alias: str, topics: str, more: Mapping[str, str]
) -> dict[str, str]:
    """Configuration of a source connector that copies `topics` (a regular expression) to `<alias>.<topic>`.

    Only what one broker a cluster needs (replication factor 1) differs from the defaults; `more` overrides.
    """
    return {
        "connector.class": _CONNECTOR,
        **_clusters(source, target, alias),
        "topics": topics,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",  # no authorizer here
        **more,
    }


def build_checkpoint_connector(
    source: str, target: str, alias: str, topics: str, more: Mapping[str, str]
) -> dict[str, str]:
    """Configuration of the checkpoint connector beside such a source connector: it moves the groups' offsets.

    It has no task while no group has committed offsets of `topics`, and `MirrorMaker.put` waits for one.
    """
    return {
        "connector.class": _CHECKPOINTS,
        **_clusters(source, target, alias),
        "topics": topics,
        "checkpoints.topic.replication.factor": "1",
        **more,
    }


def _clusters(source: str, target: str, alias: str) -> dict[str, str]:
    return {
        "source.cluster.alias": alias,
        "target.cluster.alias": "target",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
    }


@dataclass(frozen=True, slots=True)
class _DedicatedMirrorMaker:
    """`connect-mirror-maker.sh` as people run it: its notes are topics on the clusters. `home` holds its properties and
    its log."""

    home: Path
    process: ProcessIdentity

    @property
    def log(self) -> Path:
        return self.home / "output.log"

    def runs(self) -> bool:
        return is_alive(self.process)

    def stop(self) -> None:
        """As by SIGTERM: what it has copied is noted, its group is left. Raises LabError where it had to be killed."""
        if not end_processes([self.process], grace=_STOP_S):
            raise LabError(f"MirrorMaker 2 did not stop within {_STOP_S:.0f} s, see {self.log}")

    def kill(self) -> None:
        send_signal(self.process, signal.SIGKILL)
        end_processes([self.process])


def start_dedicated_mirrormaker(
    home: Path, source: tuple[str, str], target: tuple[str, str], topics: str, more: Mapping[str, str] | None = None
) -> _DedicatedMirrorMaker:
    """A process of its own that copies `topics` (a regular expression) from `source` to `target`, each (alias,
    bootstrap). It does not wait: the first records may take half a minute. Raises ToolMissing.

    Only what one broker a cluster needs differs from the defaults, and how often it looks for topics; `more` overrides.
    """
    home.mkdir(parents=True, exist_ok=True)
    (here, from_), (there, to) = source, target
    pair = f"{here}->{there}"
    properties = {
        "clusters": f"{here}, {there}",
        f"{here}.bootstrap.servers": from_,
        f"{there}.bootstrap.servers": to,
        f"{pair}.enabled": "true",
        f"{pair}.topics": topics,
        f"{there}->{here}.enabled": "false",
        f"{there}->{here}.emit.heartbeats.enabled": "false",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "sync.topic.acls.enabled": "false",  # no authorizer here
        "refresh.topics.interval.seconds": "5",
        "plugin.discovery": "service_load",
        "task.shutdown.graceful.timeout.ms": f"{_STOP_S / 2 * 1000:.0f}",  # a busy machine needs it for the notes
        **(more or {}),
    }
    settings = home / "mm2.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    main = ["org.apache.kafka.connect.mirror.MirrorMaker", str(settings), "--clusters", there]
    return _DedicatedMirrorMaker(home, spawn_detached([*_java(home), *main], home / "output.log"))


def _java(home: Path) -> list[str]:
    """A Java that logs to `home`, but for what it runs."""
    archive = class_data_archive.list_archive_options("mirrormaker")
    places = [f"-Dlog4j2.configurationFile={LOG4J_CONFIG}", f"-Dkafka.logs.dir={home}", "-cp", f"{fetch_jars()}/*"]
    return [find_java(), *_JVM, *list_jvm_options(), *archive, *places]
