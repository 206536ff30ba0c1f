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
    """A count has grown since it was last asked for: nothing in this process ran for more than its limit in between."""

    def __init__(self, *limits_s: float, clock: Callable[[], float] = lambda: time.clock_gettime(_CLOCK)) -> None:
        self._limits_s, self._clock = limits_s, clock
        self._stalls = tuple(0 for _ in limits_s)
        self._at = clock()
        self._lock = threading.Lock()
        self._beating = False

    def count_stalls(self) -> tuple[int, ...]:
        """How often the process stood still so far, for longer than each limit. Whoever comes first after a stall
        notices it, for everybody."""
        with self._lock:
            now = self._clock()
            stood_s, self._at = now - self._at, now
            self._stalls = tuple(
                count + (stood_s > limit_s) for count, limit_s in zip(self._stalls, self._limits_s, strict=True)
            )
            return self._stalls

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
