"""A limit in bytes a second, shared by the partitions of a flow on one worker: a token bucket."""

from __future__ import annotations

from threading import Lock
from typing import Final

BURST_S: Final = 0.1  # how much of the quota may come at once after a pause
SMALLEST: Final = 16 << 10  # bytes that are worth a question
_TICK_S: Final = 0.001


class Rate:
    """`quota` bytes a second (None: no limit). What comes in beyond it (a batch is never cut) is paid back by waiting,
    so that the quota holds over any time that is long against BURST_S. Times are monotonic seconds."""

    def __init__(self, quota: float | None) -> None:
        self.quota = quota
        self._tokens = 0.0
        self._at: float | None = None
        self._lock = Lock()

    def allowance(self, now: float) -> int | None:
        """Bytes that may be asked for now; None without a limit, 0 when it is too early."""
        if self.quota is None:
            return None
        with self._lock:
            tokens = self._refilled(now)
            return int(tokens) if tokens >= min(SMALLEST, self.quota * BURST_S) else 0

    def wait(self, now: float) -> float:
        """Seconds until `allowance` is more than 0, when it is 0 now; never so few that a clock cannot tell."""
        if self.quota is None:
            return 0.0
        with self._lock:
            return max(_TICK_S, (min(SMALLEST, self.quota * BURST_S) - self._refilled(now)) / self.quota)

    def spend(self, size: int, now: float) -> None:
        """`size` bytes came in."""
        if self.quota is not None:
            with self._lock:
                self._tokens = self._refilled(now) - size

    def _refilled(self, now: float) -> float:
        assert self.quota is not None
        if self._at is not None:
            self._tokens = min(self._tokens + (now - self._at) * self.quota, self.quota * BURST_S)
        self._at = now
        return self._tokens
