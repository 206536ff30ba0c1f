"""A limit in bytes a second, shared by the partitions of a flow on one worker: a token bucket."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

QUOTA_BURST_S: Final = 0.1  # how much of the quota may come at once after a pause
MIN_ALLOWANCE_BYTES: Final = 16 << 10  # bytes that are worth a question
_TICK_S: Final = 0.001


class FlowRateLimits:
    """The limits of the flows of one worker. A flow's quota is for all workers together; each takes the part of it
    that its partitions are of all."""

    def __init__(self) -> None:
        self._rates: dict[str, RateLimit] = {}
        self._quotas: dict[str, float | None] = {}
        self._parts: dict[str, float] = {}

    def of(self, flow: str, quota: float | None) -> RateLimit:
        """The limit of a flow whose quota is so many bytes a second."""
        rate = self._rates.setdefault(flow, RateLimit(None))
        self._quotas[flow] = quota
        self._set(flow)
        return rate

    def share(self, parts: Mapping[str, float]) -> None:
        """From now on this worker has these parts of the flows, more than 0 and at most 1 where it has any."""
        self._parts = dict(parts)
        for flow in self._rates:
            self._set(flow)

    def forget(self, flow: str) -> None:
        """Active copies made from now on get a fresh limit."""
        self._rates.pop(flow, None)

    def _set(self, flow: str) -> None:
        quota, part = self._quotas[flow], self._parts.get(flow, 1.0)
        self._rates[flow].quota = None if quota is None else quota * (part or 1.0)


class RateLimit:
    """`quota` bytes a second (None: no limit). What comes in beyond it (a batch is never cut) is paid back by waiting,
    so that the quota holds over any time that is long against QUOTA_BURST_S. Times are monotonic seconds."""

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
            return int(tokens) if tokens >= min(MIN_ALLOWANCE_BYTES, self.quota * QUOTA_BURST_S) else 0

    def wait(self, now: float) -> float:
        """Seconds until `allowance` is more than 0, when it is 0 now; never so few that a clock cannot tell."""
        if self.quota is None:
            return 0.0
        with self._lock:
            return max(
                _TICK_S, (min(MIN_ALLOWANCE_BYTES, self.quota * QUOTA_BURST_S) - self._refilled(now)) / self.quota
            )

    def spend(self, size: int, now: float) -> None:
        """`size` bytes came in."""
        if self.quota is not None:
            with self._lock:
                self._tokens = self._refilled(now) - size

    def _refilled(self, now: float) -> float:
        assert self.quota is not None
        if self._at is not None:
            self._tokens = min(self._tokens + (now - self._at) * self.quota, self.quota * QUOTA_BURST_S)
        self._at = now
        return self._tokens
