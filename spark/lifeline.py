"""A line from every task to the driver: it tells the driver who works where, and the task when to end.

A task connects and introduces itself; afterwards nothing is sent. When the driver hangs up, the task ends gracefully;
when the driver dies, however hard, the kernel hangs up for it. That serves on one machine as on many, which a stop
file does not, and ends this application's workers only, where the fleet's record would end everybody's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HELLO_S = 10.0


@dataclass(slots=True)
class Driver:
    """The driver's end. `changed` is called with the list of tasks (what each said of itself) at every change."""

    host: str
    changed: Callable[[list[dict[str, Any]]], None]
    _server: socket.socket = field(init=False)
    _lines: dict[socket.socket, dict[str, Any]] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _closed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._server = socket.create_server((self.host, 0))
        threading.Thread(target=self._accept, name="lifeline", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.getsockname()[:2]
        return host, port

    def hang_up(self) -> None:
        """Tell every task to end, also those that have not connected yet."""
        with self._lock:
            self._closed = True
            lines = list(self._lines)
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._hold, args=(line,), name="lifeline", daemon=True).start()

    def _hold(self, line: socket.socket) -> None:
        with line:
            try:
                line.settimeout(HELLO_S)
                hello = json.loads(line.makefile("r").readline())
                line.settimeout(None)
            except (OSError, ValueError):
                return
            with self._lock:
                if self._closed:
                    return
                self._lines[line] = hello
            self._tell()
            with contextlib.suppress(OSError):
                line.recv(1)  # returns when either end hangs up
            with self._lock:
                self._lines.pop(line, None)
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            if self._closed:
                return
            present = list(self._lines.values())
        self.changed(present)


def hold(address: tuple[str, int], hello: dict[str, Any], stop: threading.Event) -> Callable[[], None]:
    """A task's end: `stop` is set when the driver hangs up or our parent process changes. Answers how to let go.

    A driver that cannot be reached has ended: `stop` is set at once.
    """
    try:
        line = socket.create_connection(address, timeout=HELLO_S)
        line.sendall(json.dumps(hello).encode() + b"\n")
    except OSError:
        stop.set()
        return lambda: None
    parent = os.getppid()

    def watch() -> None:
        line.settimeout(1.0)
        while not stop.is_set() and os.getppid() == parent:
            try:
                if not line.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        stop.set()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()

    def let_go() -> None:
        stop.set()
        with contextlib.suppress(OSError):
            line.close()

    return let_go
