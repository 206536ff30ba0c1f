"""Runs the Kafka client in a child process: when a broker's answer makes librdkafka abort, only the child dies.

An abort cannot be caught (docs/upstream/librdkafka-apiversions.md). A process that serves others (Airflow's api-server,
its triggerer) therefore sends its questions to `clusters.crash_isolated_client_child`. It checks the child's answers
like those of a broker: their length first, then their type.

Each cluster or topology that is asked about has a key. All keys share one child until it dies. Then the keys are split
into two groups, each with a child of its own: those that had answered and those that had not; if all or none had
answered, two halves. After a few deaths the cluster that kills the child has one for itself, and that child is started
again after longer and longer waits (decision 0057).
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from watershed import IMPORT_ROOT
from watershed.clusters.crash_isolated_client_child import MAX_CALL_ANSWER_BYTES
from watershed.clusters.errors import ClusterError

log = logging.getLogger("watershed.apart")

_ANSWER_S = 120.0  # a call that takes longer has met a process that hangs
MAX_CLIENT_PROCESSES = 16  # processes
_LINGER_S = 60.0  # a process that nobody uses is kept, for who asks again and again
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0  # before a process that died is started again
BACKOFF_RESET_S = 120.0  # who lived so long begins with the first wait again


class ClientProcessEnded(ClusterError):
    """The process that asked has ended, or waits to be started again."""


class CallFailed(ClusterError):
    """What the call raised in its process. kind: the name of its class, `ClusterError` for all of those."""

    def __init__(self, text: str, kind: str = "ClusterError") -> None:
        super().__init__(text)
        self.kind = kind


class ClientProcess:
    """One process. on_end is called once, when it has ended, before those who wait for answers are told."""

    def __init__(self, on_end: Callable[[ClientProcess], None]) -> None:
        self.how = ""  # it ended
        self._on_end = on_end
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._why = ""  # we ended it
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "watershed.clusters.crash_isolated_client_child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        self.pid = self._process.pid
        self._listener = threading.Thread(target=self._listen, name=f"apart {self.pid}", daemon=True)
        self._listener.start()

    def call(self, function: str, arguments: Mapping[str, Any], timeout: float | None = _ANSWER_S) -> Any:
        """function: `module:name`; arguments and answer are JSON. Raises CallFailed, ProcessEnded."""
        found: Future[Any] = Future()
        number = next(self._numbers)
        line = json.dumps({"id": number, "call": function, "with": arguments}).encode() + b"\n"
        with self._lock:
            if self.how:
                raise ClientProcessEnded(f"the process has ended ({self.how})")
            self._waiting[number] = found
        assert self._process.stdin is not None
        with self._writing, suppress(OSError, ValueError):  # it has just ended: the listener tells
            self._process.stdin.write(line)
            self._process.stdin.flush()
        try:
            return found.result(timeout)
        except TimeoutError:
            self.end(why := f"no answer for {timeout:.0f} s")
            raise ClientProcessEnded(f"the process has ended ({why})") from None

    def end(self, why: str) -> None:
        """At once: it holds nothing that has to be put away."""
        self._why = self._why or why
        self._process.kill()

    def join(self, timeout: float) -> None:
        """Wait until the child has closed its output, at most so many seconds."""
        self._listener.join(timeout)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        try:
            while line := self._process.stdout.readline(MAX_CALL_ANSWER_BYTES + 1):
                self._take(line)
        except Exception as error:  # noqa: BLE001 (whatever it sends: it is ended, and who asked is told)
            self._why = self._why or f"its answer is none: {error}"[:300]
        self._process.kill()
        code = self._process.wait()
        with self._lock:
            self.how = self._why or describe_exit_code(code)
            waiting = list(self._waiting.values())
            self._waiting.clear()
        self._on_end(self)
        for each in waiting:
            each.set_exception(ClientProcessEnded(f"the process has ended ({self.how})"))
        self._process.stdout.close()
        with suppress(OSError):  # what it did not read
            self._process.stdin.close()

    def _take(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            raise ValueError(f"no line of at most {MAX_CALL_ANSWER_BYTES} bytes")
        told = json.loads(line)
        if not isinstance(told, dict) or not isinstance(told.get("id"), int):
            raise ValueError("no object with an id")
        with self._lock:
            found = self._waiting.pop(told["id"], None)
        if found is None:
            raise ValueError("nobody has asked for it")
        if "error" in told:
            found.set_exception(CallFailed(str(told["error"]), str(told.get("kind"))))
        else:
            found.set_result(told.get("gives"))


@dataclass(eq=False)
class _Group:
    """Keys that share a process. names: what each is called, for messages. inside: who uses the process. used: who
    has, since it began. heard: who was answered by it."""

    names: dict[Hashable, str] = field(default_factory=dict)
    child: ClientProcess | None = None
    inside: Counter[Hashable] = field(default_factory=Counter)
    used: set[Hashable] = field(default_factory=set)
    heard: set[Hashable] = field(default_factory=set)
    deaths: int = 0  # in a row
    since: float = 0.0
    not_before: float = 0.0
    parted: int = 0  # how many shared the process when it died
    how: str = ""  # it died last; empty for those that have harmed nobody
    unused_since: float | None = None
    watched: bool = False  # whether it is ended when nobody uses it


class ClientProcesses:
    """Maps each key (a cluster, a topology) to the child process that asks about it. Safe to share by threads."""

    def __init__(
        self,
        start: Callable[[Callable[[ClientProcess], None]], ClientProcess] = ClientProcess,
        clock: Callable[[], float] = time.monotonic,
        linger_s: float = _LINGER_S,
    ) -> None:
        self._start, self._clock, self._linger_s = start, clock, linger_s
        self._groups: list[_Group] = []
        self._lock = threading.RLock()
        self._stopped = False

    def enter(self, key: Hashable, name: str) -> ClientProcess:
        """The process that asks about `key`; `leave` it. Raises ProcessEnded while it waits to be started again."""
        with self._lock:
            group = self._group_of(key)
            group.names[key] = name
            if self._stopped:
                raise ClientProcessEnded(f"nobody asks {name} any more: this program ends")
            if group.child is None:
                wait_s = group.not_before - self._clock()
                if wait_s > 0:
                    raise ClientProcessEnded(_told(group, name, wait_s))
                group.used, group.heard, group.since = set(), set(), self._clock()
                try:
                    group.child = self._start(lambda child: self._ended(group, child))
                except OSError as error:
                    raise ClientProcessEnded(f"no process to ask {name} could be started: {error}") from None
            group.inside[key] += 1
            group.used.add(key)
            group.unused_since = None
            return group.child

    def hear(self, key: Hashable, child: ClientProcess) -> None:
        """It was answered: should the process die now, others are suspected first."""
        with self._lock:
            group = self._group_of(key)
            if group.child is child:
                group.heard.add(key)

    def leave(self, key: Hashable, child: ClientProcess) -> None:
        """One call or follower of `key` has ended; a child that serves nobody may be stopped later."""
        with self._lock:
            group = self._group_of(key)
            if group.child is not child:
                return
            group.inside[key] -= 1
            group.inside += Counter()  # without those that are gone
            if not group.inside:
                group.unused_since = self._clock()
                if not group.watched:
                    group.watched = True
                    self._end_later(group, self._linger_s)

    def call(
        self, key: Hashable, name: str, function: str, arguments: Mapping[str, Any], timeout: float | None = _ANSWER_S
    ) -> Any:
        """One call. Raises CallFailed, ProcessEnded."""
        with self.using(key, name) as child:
            given = child.call(function, arguments, timeout)
            self.hear(key, child)
            return given

    @contextmanager
    def using(self, key: Hashable, name: str) -> Iterator[ClientProcess]:
        """The process for as long as the block lasts; that it ended is told with the name of who is asked."""
        child = self.enter(key, name)
        try:
            yield child
        except ClientProcessEnded as ended:
            raise ClientProcessEnded(self.why(key, name) or str(ended)) from None
        finally:
            self.leave(key, child)

    def why(self, key: Hashable, name: str) -> str:
        """Why nobody asks about it now; empty when somebody may."""
        with self._lock:
            group = self._group_of(key)
            wait_s = group.not_before - self._clock()
            return _told(group, name, wait_s) if group.child is None and wait_s > 0 else ""

    def stop(self, timeout: float = 2.0) -> None:
        """End all processes."""
        with self._lock:
            self._stopped = True
            children = [group.child for group in self._groups if group.child is not None]
            for group in self._groups:
                group.child = None
        for child in children:
            child.end("stopped")
        for child in children:
            child.join(timeout)

    def _group_of(self, key: Hashable) -> _Group:
        """Who is new joins those that have harmed nobody."""
        for group in self._groups:
            if key in group.names:
                return group
        group = next((each for each in self._groups if not each.how), None) or self._new_group()
        group.names[key] = ""
        return group

    def _new_group(self) -> _Group:
        if len(self._groups) >= MAX_CLIENT_PROCESSES:
            return min(self._groups, key=lambda group: group.deaths)
        self._groups.append(_Group())
        return self._groups[-1]

    def _end_later(self, group: _Group, wait_s: float) -> None:
        timer = threading.Timer(wait_s, self._end_unused, (group,))
        timer.daemon = True
        timer.start()

    def _end_unused(self, group: _Group) -> None:
        with self._lock:
            group.watched = False
            child, since = group.child, group.unused_since
            if child is None or since is None:
                return
            left_s = since + self._linger_s - self._clock()
            if left_s > 0:
                group.watched = True
                self._end_later(group, left_s)
                return
            group.child = None
        child.end("not used")

    def _ended(self, group: _Group, child: ClientProcess) -> None:
        with self._lock:
            if group.child is not child:
                return  # ended by us
            now, suspects = self._clock(), list(group.inside or group.used)
            lived_s, group.child = now - group.since, None
            group.inside.clear()
            names = [group.names[key] for key in suspects]
            parts = self._parted(group, suspects)
            for each in parts:
                each.how, each.parted = child.how, len(suspects)
                each.deaths = 0 if len(parts) > 1 else 1 if lived_s > BACKOFF_RESET_S else each.deaths + 1
                wait_s = min(FIRST_WAIT_S * 2.0 ** min(max(each.deaths - 1, 0), 10), LONGEST_WAIT_S)
                each.not_before = now + wait_s
        log.warning(
            "process ended",
            extra={"reason": child.how, "pid": child.pid, "asked": names, "groups": len(parts)},
        )

    def _parted(self, group: _Group, suspects: list[Hashable]) -> list[_Group]:
        """The groups of those who may have ended the process; who was not asked by it stays, suspected of nothing."""
        heard = [key for key in suspects if key in group.heard]
        unheard = [key for key in suspects if key not in group.heard]
        half = len(suspects) // 2
        found: list[_Group] = []
        for part in (heard, unheard) if heard and unheard else (suspects[:half], suspects[half:]):
            if part and len(part) < len(group.names) and len(self._groups) < MAX_CLIENT_PROCESSES:
                self._groups.append(_Group({key: group.names.pop(key) for key in part}))
                found.append(self._groups[-1])
            elif part and group not in found:
                found.append(group)
        return found


def describe_exit_code(code: int) -> str:
    """Of a process, by its exit code as `subprocess` has it."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {-code}, {signal.Signals(-code).name}"
    return f"signal {-code}"


def _told(group: _Group, name: str, wait_s: float) -> str:
    """Others are counted, not named: whoever reads this may not be allowed to know of them."""
    again = f"It is started again in {max(wait_s, 1):.0f} s."
    others = group.parted - 1
    if others > 0:
        return (
            f"the process that asked {name} and {others} other{'s' * (others > 1)} ended ({group.how}). {again} Those "
            "that were asked together are then divided, until the one whose brokers end it is alone."
        )
    times = f" {group.deaths} times in a row" if group.deaths > 1 else ""
    return (
        f"the process that asks {name}, and nothing else, ended{times} ({group.how}): what the brokers send may be the "
        f"reason. {again} Check the bootstrap addresses, and what listens there."
    )


def _environment() -> dict[str, str]:
    """Ours without Airflow's configuration (it holds signing keys). Connections and secrets stay: the process resolves
    references itself, by the same settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}
    path = [str(IMPORT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path)}
