"""How fast a task reads: bytes a second, a broker's throttling, and pauses while a flow lags."""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST_S = 0.25  # what one answer may hold of a rate
_SMALLEST = 128 << 10  # bytes of an answer, where a broker's quota for us left no room for what was asked for
_CAREFUL_S = 60.0  # since then


class ReadRate:
    """rate: bytes a second, None without a bound. `hold` is called before each question and waits as long as it must.
    largest: bytes that one answer should bring at most, for whoever wants a few records only.

    What was read is paid for before the next question, so that over any second it is the rate and one answer at most.
    Where a broker's quota for us leaves no room for an answer it sends none (KIP-219), and never would while somebody
    else uses some of that quota, too; so less is asked for then.
    """

    def __init__(
        self, rate: int | None = None, hold: Callable[[], None] | None = None, largest: int | None = None
    ) -> None:
        self._rate, self._hold, self._largest = rate, hold, largest
        self._free_at = 0.0  # of the monotonic clock
        self._seen = 0  # bytes of the largest answer
        self._no_room = float("-inf")  # when the quota left no room for one

    def answer_bytes(self, most: int) -> int:
        """How many bytes one answer should bring at most; a broker sends one whole batch all the same."""
        if time.monotonic() - self._no_room < _CAREFUL_S:
            most = min(most, max(self._seen // 8, _SMALLEST))
        most = most if self._largest is None else min(most, self._largest)
        return most if self._rate is None else max(1, min(most, int(self._rate * _BURST_S)))

    def record_answer(self, size: int, throttle_ms: int = 0) -> None:
        """An answer of so many bytes came; throttle_ms: for how long the broker asks to be left alone (KIP-219)."""
        now = time.monotonic()
        if self._rate is not None:
            self._free_at = max(self._free_at, now) + size / self._rate
        if size == 0 and throttle_ms > 0:
            self._no_room = now
        self._seen = max(self._seen, size)
        if throttle_ms > 0:
            self._free_at = max(self._free_at, now + throttle_ms / 1000)

    def wait(self) -> None:
        """Waits until the next fetch may be sent."""
        if self._hold is not None:
            self._hold()
        left = self._free_at - time.monotonic()
        if left > 0:
            time.sleep(left)
