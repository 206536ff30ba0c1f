"""The fault: kill -9 one worker in mid-copy, once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from watershed.clusters.errors import ClusterError
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.clusters.settings import ConnectionSettings

_POLL_S = 0.1


class WorkerFault(threading.Thread):
    """Waits until a worker reports that it has copied something and has more to copy, then kills its process.

    `done` tells what happened, once it did.
    """

    def __init__(self, alias: str, bootstrap: str, say: Callable[[str], None]) -> None:
        super().__init__(name="fault", daemon=True)
        self._settings = ConnectionSettings(alias, tuple(bootstrap.split(",")))
        self._say = say
        self._stop_asked = threading.Event()
        self.done = False

    def run(self) -> None:
        """Waits for a worker in mid-copy, kills it once (SIGKILL), and ends."""
        while not self._stop_asked.wait(_POLL_S):
            try:
                reports = read_partition_statuses(self._settings)
            except ClusterError:
                continue
            busy = [r for r in reports if r.pid and r.source_position > 0 and (r.lag_records or 0) > 0]
            if not busy:
                continue
            victim = max(busy, key=lambda r: r.lag_records or 0)
            try:
                os.kill(victim.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            left = sum(r.lag_records or 0 for r in reports)
            self.done = True
            self._say(
                f"FAULT: killed worker {victim.worker} (pid {victim.pid}) with SIGKILL while it copied "
                f"{victim.topic}-{victim.partition}; {left:,} records were still to copy"
            )
            return

    def stop(self) -> None:
        """Lets the thread end at its next look when it has killed nobody yet."""
        self._stop_asked.set()
