"""The `ledger` thread: what is to happen when control records are acknowledged."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("watershed.worker")

_BUSY_S, _IDLE_S = 0.02, 0.1  # how long a poll waits at most: another thread may have taken the acknowledgement
_AFTER_FAILURE_S = 0.1


class _PolledWriter(Protocol):
    """As `clusters.control_topics.ControlWriter`."""

    @property
    def waiting(self) -> int: ...

    def poll(self, timeout: float) -> None: ...


class LedgerThread(threading.Thread):
    """Polls a writer, so that its `on_done` are called, and runs what they leave for later.

    An exception ends neither the thread nor the worker: it is logged, and `failure` tells it once, since whoever should
    have heard of an acknowledgement may wait for it for ever.
    """

    def __init__(self, writer: _PolledWriter) -> None:
        super().__init__(name="ledger", daemon=True)
        self._writer = writer
        self._after: deque[Callable[[], None]] = deque()
        self._failures: deque[str] = deque(maxlen=1)
        self._ending = threading.Event()

    def later(self, work: Callable[[], None]) -> None:
        """Run it soon, outside any acknowledgement."""
        self._after.append(work)

    def failure(self) -> str:
        """What failed last, told once; "" when nothing did."""
        return self._failures.pop() if self._failures else ""

    def end(self, timeout: float) -> None:
        """Ask the thread to end and wait up to `timeout` seconds."""
        self._ending.set()
        self.join(timeout)

    def run(self) -> None:
        """Poll the producer for acknowledgements, and run what `later` handed over."""
        while not self._ending.is_set():
            try:
                self._writer.poll(_BUSY_S if self._after or self._writer.waiting else _IDLE_S)
                while self._after:
                    self._after.popleft()()
            except Exception as error:
                log.exception("ledger thread")
                self._failures.append(f"{type(error).__name__}: {error}")
                self._ending.wait(_AFTER_FAILURE_S)
