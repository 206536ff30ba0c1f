"""The workers of a fleet as processes of their own: what a supervisor starts, ends and watches."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from watershed.replicator.worker.worker_host import WorkerObservation


@dataclass(slots=True)
class ProcessHost:
    """Workers by their places. command: what is run for a place and an epoch.

    Processes do not end with their supervisor: they go on until the next one's are ready (`clusters.fleet`).
    """

    engine: Literal["spark", "process"]
    command: Callable[[int, int], Sequence[str]]
    hosts_whole_fleet: bool = False
    surge: bool = True
    note: str = ""
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, place: int, epoch: int) -> None:
        """Start a process in the supervisor's own process group, so that whoever kills the group leaves none behind."""
        self._processes[place] = subprocess.Popen(self.command(place, epoch))

    def end(self, place: int) -> None:
        """SIGTERM: what is in flight is finished, and the partitions are handed over."""
        self._processes[place].send_signal(signal.SIGTERM)

    def kill(self, place: int) -> None:
        """SIGKILL: what is in flight is what the next owner of the partitions finds out about."""
        self._processes[place].kill()

    def observe(self) -> Mapping[int, WorkerObservation]:
        """Every process; those that have ended are forgotten."""
        found = {}
        for place, process in list(self._processes.items()):
            code = process.poll()
            name = f"{socket.gethostname()}-{process.pid}"
            if code is None:
                found[place] = WorkerObservation(name)
                continue
            del self._processes[place]
            found[place] = WorkerObservation(name, describe_exit(code), failed=code not in (0, -signal.SIGTERM))
        return found


def describe_exit(code: int) -> str:
    """How a process ended, from its exit code as `subprocess` counts it."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
