"""Whether this process stood still (SIGSTOP, a paused machine), told by a thread that never waits for others.

A thread cannot tell by its own pace: it waits for brokers, and a slow one would look like a frozen process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

# session.timeout.ms of a worker in its fleet's group. A process that stands still for longer loses its partitions.
WORKER_SESSION_MS = 10_000
_BEAT_S: Final = 0.5
# Also while the machine is suspended, where the system can tell (Linux).
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class StallDetector:
    """`stops` has grown since it was last asked: nothing in this process ran for more than `limit_s` in between."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = lambda: time.clock_gettime(_CLOCK)) -> None:
        self._limit_s, self._clock = limit_s, clock
        self._stops = 0
        self._at = clock()
        self._lock = threading.Lock()
        self._beating = False

    def count_stalls(self) -> int:
        """How often the process stood still so far. Whoever comes first after a stop notices it, for everybody."""
        with self._lock:
            now = self._clock()
            if now - self._at > self._limit_s:
                self._stops += 1
            self._at = now
            return self._stops

    def start(self) -> None:
        """Beat from now on, as long as the process lives."""
        with self._lock:
            if self._beating:
                return
            self._beating, self._at = True, self._clock()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def _beat(self) -> None:
        while True:
            self.count_stalls()
            time.sleep(_BEAT_S)
