"""The ZooKeeper of a cluster whose Kafka release needs one: one small process beside its brokers."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watershed.lab.broker import build_java_command
from watershed.lab.detached_process import ProcessIdentity, find_by_argument, is_alive, spawn_detached
from watershed.lab.errors import LabError
from watershed.lab.free_ports import LOOPBACK_HOST
from watershed.lab.releases import ZOOKEEPER_MAIN, find_release

_HEAP = ("-Xmx64m",)
_READY_S = 120.0  # on an idle machine 1 s


@dataclass(frozen=True, slots=True)
class LabZooKeeper:
    """`kafka`: the release whose jars it runs on; `home` holds configuration, data and logs."""

    kafka: str
    port: int
    home: Path
    process: ProcessIdentity | None = None

    @property
    def pid(self) -> int | None:
        """The pid while it runs, else None."""
        return self.process.pid if self.process and is_alive(self.process) else None

    def to_json(self) -> dict[str, Any]:
        """For the state file; the other way is `from_json`."""
        process = self.process
        return {
            "pid": process.pid if process else None,
            "started": process.started if process else None,
            "port": self.port,
            "home": str(self.home),
            "kafka": self.kafka,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LabZooKeeper:
        """Reads the ZooKeeper of a cluster in the lab's state file; `pid` is null for a stopped one."""
        process = ProcessIdentity(value["pid"], value["started"]) if value["pid"] is not None else None
        return LabZooKeeper(value["kafka"], value["port"], Path(value["home"]), process)


def start_zookeeper(zookeeper: LabZooKeeper) -> ProcessIdentity:
    """Starts it, detached, on the data that it has. Raises ToolMissing, LabError."""
    home = zookeeper.home
    home.mkdir(parents=True, exist_ok=True)
    (home / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in _build_properties(zookeeper).items()))
    command = build_java_command(find_release(zookeeper.kafka), home / "logs", _HEAP)
    main = [ZOOKEEPER_MAIN, str(home / "zoo.cfg")]
    return spawn_detached([*command, _build_marker(zookeeper), *main], home / "logs" / "output.log")


def find_zookeeper_process(zookeeper: LabZooKeeper) -> ProcessIdentity | None:
    """Its process, also when the command that started it died before writing its pid down."""
    return zookeeper.process if is_alive(zookeeper.process) else find_by_argument(_build_marker(zookeeper))


def await_absence(zookeeper: LabZooKeeper, broker_id: int) -> None:
    """Returns when it serves and does not take this broker for alive: a killed one is there until its session ends, and
    one that starts meanwhile ends with "node already exists". Raises LabError.
    """
    deadline = time.monotonic() + _READY_S
    while True:
        dump = _ask_sessions(zookeeper)
        if "phemeral" in dump and str(broker_id) not in re.findall(r"/brokers/ids/(\d+)", dump):
            return
        log = zookeeper.home / "logs" / "output.log"
        if not is_alive(zookeeper.process):
            raise LabError(f"the ZooKeeper in {zookeeper.home} ended; its log: {log}")
        if time.monotonic() > deadline:
            says = f"takes broker {broker_id} for alive" if "phemeral" in dump else "does not answer"
            raise LabError(f"the ZooKeeper in {zookeeper.home} still {says} after {_READY_S:.0f} s; its log: {log}")
        time.sleep(0.05)


def _build_properties(zookeeper: LabZooKeeper) -> dict[str, str | int | Path]:
    return {
        "dataDir": zookeeper.home / "data",
        "clientPort": zookeeper.port,
        "clientPortAddress": LOOPBACK_HOST,
        "maxClientCnxns": 0,
        "tickTime": 500,  # of a session that nobody keeps up, it notices the end once a tick
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "dump",  # releases before 3.5 answer all
        "preAllocSize": 1024,  # KB; default 64 MB
        "forceSync": "no",
    }


def _build_marker(zookeeper: LabZooKeeper) -> str:
    return f"-Dwatershed.zookeeper={zookeeper.home}"


def _ask_sessions(zookeeper: LabZooKeeper) -> str:
    """What it answers to `dump`: its sessions with their ephemeral nodes; nothing while it does not serve."""
    try:
        with socket.create_connection((LOOPBACK_HOST, zookeeper.port), timeout=2) as asking:
            asking.sendall(b"dump")
            answer = b""
            while part := asking.recv(1 << 16):
                answer += part
            return answer.decode(errors="replace")
    except OSError:
        return ""
