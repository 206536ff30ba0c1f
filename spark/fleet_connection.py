"""A connection from every task of the fleet to the driver: tasks say who works where, the driver says when to begin and
to end.

A task connects and says which of the fleet's places it takes. The driver answers `go` once nobody else holds that
place; until then a second attempt at the same task (speculation, or a task that Spark takes for lost) stands by.
Afterwards a task sends an empty line every second, and its last words, if it fails. When the driver hangs up, the task
ends gracefully; when the driver dies, however hard, the kernel hangs up for it, and when its machine is lost, keepalive
does. A task that says nothing for 15 s holds its place no more: its machine is lost, or hangs. That serves on one
machine as on many, which a stop file does not, and ends this application's workers only, where the fleet's record would
end everybody's.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from watershed.spark.progress import DriverAddress

_HELLO_S = 10.0
_SILENT_S = 15.0  # after which a task is taken for lost, as Spark takes its executor
_ALIVE_S = 1.0
_END_S = 30.0  # from the word to end to the hard end of a task that does not
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000))


@dataclass(slots=True)
class FleetDriver:
    """The driver's end. bind, host: the address to listen at, and the one by which tasks reach it.

    `changed` is called at every change with the tasks that work (what each said of itself) and how many stand by,
    `failed` with a task's last words. A hello has `place`: of all tasks that say the same, one works.
    """

    bind: str
    host: str
    changed: Callable[[list[dict[str, Any]], int], None]
    failed: Callable[[str], None] = lambda _reason: None
    line: DriverAddress = field(init=False)
    _server: socket.socket = field(init=False)
    _working: dict[Any, tuple[socket.socket, dict[str, Any]]] = field(init=False, default_factory=dict)
    _standing_by: list[tuple[socket.socket, dict[str, Any]]] = field(init=False, default_factory=list)
    _lock: threading.RLock = field(init=False, default_factory=threading.RLock)
    _closed: bool = field(init=False, default=False)
    _closed_places: set[Any] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._server = socket.create_server((self.bind, 0))
        self.line = DriverAddress(self.host, self._server.getsockname()[1], secrets.token_hex(8))
        threading.Thread(target=self._accept, name="lifeline", daemon=True).start()

    def hang_up(self) -> None:
        """Tell every task to end, also those that have not connected yet; those that stand by, when no other works.

        A task that stands by has nothing to finish. Were it to end first, Spark would take it for the task's result and
        kill the attempt that works.
        """
        with self._lock:
            self._closed = True
            for line, _ in self._working.values():
                _end_of_words(line)
            self._dismiss()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        self._server.close()

    def close_place(self, place: Any) -> bool:
        """Tell the task at this place to end, and nobody to begin there. Returns whether one works there."""
        with self._lock:
            self._closed_places.add(place)
            working = self._working.get(place)
            if working is not None:
                _end_of_words(working[0])
            self._dismiss()
            return working is not None

    def open_place(self, place: Any) -> None:
        """A task may begin at this place, again."""
        with self._lock:
            self._closed_places.discard(place)

    def list_working(self) -> dict[Any, dict[str, Any]]:
        """Place → what the task that works there said of itself."""
        with self._lock:
            return {place: hello for place, (_, hello) in self._working.items()}

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
                _keep_alive(line)
                line.settimeout(_HELLO_S)
                told = line.makefile("r", encoding="utf-8")
                hello = json.loads(told.readline())
                if hello.pop("word") != self.line.word:
                    return
                line.settimeout(_SILENT_S)
            except (OSError, ValueError, KeyError):
                return
            with self._lock:
                if self._closed:
                    return
                self._standing_by.append((line, hello))
                self._let_go()
                self._dismiss()
            with contextlib.suppress(OSError, ValueError):
                for words in told:  # ends when either end hangs up
                    if words.strip():
                        self.failed(str(json.loads(words)["failed"]))
            with self._lock:
                self._standing_by = [each for each in self._standing_by if each[0] is not line]
                for place, (other, _) in list(self._working.items()):
                    if other is line:
                        del self._working[place]
                self._let_go()
                self._dismiss()

    def _let_go(self) -> None:
        """Whoever stands by for a place that is free begins. Called with the lock held."""
        if self._closed:
            return
        for line, hello in list(self._standing_by):
            if hello["place"] in self._working or hello["place"] in self._closed_places:
                continue
            self._standing_by = [each for each in self._standing_by if each[0] is not line]
            with contextlib.suppress(OSError):
                line.sendall(b"go\n")
                self._working[hello["place"]] = line, hello
        self.changed([hello for _, hello in self._working.values()], len(self._standing_by))

    def _dismiss(self) -> None:
        """Those that stand by end as soon as nobody works at their place, or anywhere when all are to end."""
        for line, hello in self._standing_by:
            place = hello["place"]
            closed = place in self._closed_places and place not in self._working
            if closed or (self._closed and not self._working):
                _end_of_words(line)


def connect_to_driver(line: DriverAddress, hello: dict[str, Any], stop: threading.Event) -> FleetConnection | None:
    """A task's end: returns when the driver lets this task begin, None when it is to end without having begun.

    From then on `stop` is set when the driver hangs up, or our parent process changes, or is about to end (SIGHUP from
    Spark's Python daemon); one that has not ended _END_S later is ended hard. Raises OSError when the driver cannot be
    reached: it has ended, or there is no way to it from here.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: stop.set())  # what a lost executor's daemon sends: time to finish
    wire = socket.create_connection((line.host, line.port), timeout=_HELLO_S)
    _keep_alive(wire)
    wire.sendall(json.dumps(hello | {"word": line.word}).encode() + b"\n")
    held = FleetConnection(wire, stop)
    threading.Thread(target=held.watch, name="lifeline", daemon=True).start()
    held.told.wait()
    if stop.is_set():
        held.release_place()
        return None
    return held


@dataclass(slots=True)
class FleetConnection:
    """A task's end of the connection."""

    _wire: socket.socket
    _stop: threading.Event
    told: threading.Event = field(init=False, default_factory=threading.Event)  # `go`, or to end
    _ended: threading.Event = field(init=False, default_factory=threading.Event)

    def watch(self) -> None:
        """Waits until the driver says that it is time to end, then makes sure that the task ends."""
        parent = os.getppid()
        self._wire.settimeout(_ALIVE_S)
        while not self._stop.is_set() and os.getppid() == parent:
            try:
                if not self._wire.recv(16):
                    break
                self.told.set()
            except TimeoutError:
                with contextlib.suppress(OSError):
                    self._wire.sendall(b"\n")
            except OSError:
                break
        self._stop.set()
        self.told.set()
        if not self._ended.wait(_END_S):
            os._exit(70)  # nobody is left who would

    def fail(self, reason: str) -> None:
        """Sends the reason for which the task ends, for the driver to show."""
        with contextlib.suppress(OSError):
            self._wire.sendall(json.dumps({"failed": reason}).encode() + b"\n")

    def release_place(self) -> None:
        """Says that the task has ended, so that another may have its place."""
        self._ended.set()
        self._stop.set()
        with contextlib.suppress(OSError):
            self._wire.close()


def _end_of_words(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_WR)


def _keep_alive(line: socket.socket) -> None:
    """Notice within half a minute that the other machine is gone."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if option := getattr(socket, name, None):  # macOS has others
            line.setsockopt(socket.IPPROTO_TCP, option, value)
