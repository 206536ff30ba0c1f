"""A limit in bytes a second, shared by the partitions of a flow on one worker."""

from __future__ import annotations

from threading import Lock


class Rate:
    """`quota` bytes a second (None: no limit). An answer that overdraws is paid back by waiting."""

    def __init__(self, quota: float | None) -> None:
        self._quota = quota
        self._free_at = 0.0
        self._lock = Lock()

    def allows(self, now: float) -> bool:
        """Whether another Fetch may be sent at `now` (seconds, monotonic)."""
        return self._quota is None or now >= self._free_at

    def spend(self, size: int, now: float) -> None:
        """`size` bytes came in."""
        if self._quota is not None:
            with self._lock:
                self._free_at = max(self._free_at, now) + size / self._quota
