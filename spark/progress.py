"""How far the reading is: tasks tell the driver what they have read, each over a line of its own.

One short line of text a range, and a range that is read twice (a task tried again, a speculative copy) counts once. It
serves people only: a task that cannot reach the driver reads on in silence, and nothing of a proof rests on it. Spark's
own counts go by tasks, of which there are few; its accumulators reach the driver when a task ends.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from watershed.spark.reading.range_requests import RangeRequest, SumKind
    from watershed.spark.reading.range_sums import RangeSum

_CONNECT_S = 3.0
_EVERY_S = 5.0  # between two lines for people
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """A round of reading. done, of: chunks, each side for itself; size: bytes of records or batches read so far."""

    by: SumKind
    done: int
    of: int
    records: int
    size: int
    seconds: float

    @property
    def line(self) -> str:
        """`read 120 of 480 chunks by batches (25%), 6,000,000 records, 310 MB, 62.0 MB/s, about 15 s left`"""
        rate = self.size / _MB / self.seconds if self.seconds else 0.0
        return (
            f"read {self.done:,} of {self.of:,} chunks by {self.by} ({100 * self.done // max(1, self.of)}%), "
            f"{self.records:,} records, {self.size // _MB:,} MB, {rate:.1f} MB/s{self._left}"
        )

    @property
    def _left(self) -> str:
        """By chunks, which are cut to like sizes; nothing before there is something to go by."""
        if not self.done or self.done >= self.of:
            return ""
        seconds = self.seconds * (self.of - self.done) / self.done
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


ProgressCallback = Callable[[ReadingProgress], None]


def build_progress_printer(say: Callable[[str], None], every: float = _EVERY_S) -> ProgressCallback:
    """Progress as lines for people: the first at once, at most one in `every` seconds, and one when a round ends."""
    last = -every

    def changed(now: ReadingProgress) -> None:
        nonlocal last
        if now.done == now.of or time.monotonic() - last >= every:
            last = time.monotonic()
            say(now.line)

    return changed


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """What a task needs to know to tell the driver: where it listens, and a word that shows whose task it is."""

    host: str
    port: int
    word: str


class ProgressListener:
    """The driver's end, for one round of reading. `changed` is called from one thread at a time, `of` is known before.

    bind, host: the address to listen at, and the one by which executors reach it.
    """

    def __init__(self, requests: Sequence[RangeRequest], changed: ProgressCallback, *, bind: str, host: str) -> None:
        self._by: SumKind = requests[0].by if requests else "batches"
        self._expected = {request.id for request in requests}
        self._of, self._changed = len(requests), changed
        self._records = self._size = 0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._server = socket.create_server((bind, 0))
        self.line = DriverAddress(host, self._server.getsockname()[1], secrets.token_hex(8))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            lines = list(self._lines)
        for each in (*lines, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(line,), name="progress", daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        with self._lock:
            self._lines.add(line)
        try:
            with line, line.makefile("r", encoding="ascii") as told:
                if told.readline(64).strip() != self.line.word:
                    return
                for text in told:
                    request, records, size = (int(word) for word in text.split())
                    self._count(request, records, size)
        except (OSError, ValueError):
            pass  # the task has ended, or it is not one of ours
        finally:
            with self._lock:
                self._lines.discard(line)

    def complete(self, sums: Iterable[RangeSum]) -> None:
        """Count what has been read and was not told of, so that a round always ends with all of it."""
        for each in sums:
            self._count(each.request_id, each.sums.n, each.sums.size)

    def _count(self, request: int, records: int, size: int) -> None:
        with self._lock:
            if request not in self._expected:
                return
            self._expected.discard(request)
            self._records += records
            self._size += size
            done, seconds = self._of - len(self._expected), time.monotonic() - self._began
            self._changed(ReadingProgress(self._by, done, self._of, self._records, self._size, seconds))


@dataclass(slots=True)
class ProgressReporter:
    """A task's end."""

    line: DriverAddress | None
    _socket: socket.socket | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        if self.line is not None:
            with contextlib.suppress(OSError):
                self._socket = socket.create_connection((self.line.host, self.line.port), timeout=_CONNECT_S)
                self._socket.sendall(f"{self.line.word}\n".encode())
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def tell(self, read: RangeSum) -> None:
        """Say that a range is read; a driver that does not listen is not told again."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(f"{read.request_id} {read.sums.n} {read.sums.size}\n".encode())
        except OSError:
            self._socket.close()
            self._socket = None
