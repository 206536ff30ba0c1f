"""Processes that outlive the command that started them, and are never mistaken for others.

A pid alone is no identity: the kernel hands it out again. Identity here is pid plus start time (field 22 of
/proc/<pid>/stat, in clock ticks since boot), checked while a pidfd is held, so that a signal never reaches a
stranger. Should a command die between starting a process and writing that down, `find` recovers the
process by an argument that nothing else has (the absolute path of its own directory).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from watershed.lab.errors import LabError


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """pid, and when it started (clock ticks since boot)."""

    pid: int
    started: int


def spawn_detached(argv: Sequence[str], output: Path, environ: Mapping[str, str] | None = None) -> ProcessIdentity:
    """Starts argv[0] (an absolute path) in a session of its own; stdout and stderr are appended to `output`.

    Descriptors are not inherited (PEP 446). Raises LabError when the program cannot be started.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    env = dict(os.environ if environ is None else environ)
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT],
        )
    except OSError as error:
        raise LabError(f"cannot start {argv[0]}: {error.strerror}") from error
    stat = _stat(pid)
    # Not yet reaped, so the entry is there even if the program has ended already.
    return ProcessIdentity(pid, stat.started if stat else -1)


def is_alive(process: ProcessIdentity | None) -> bool:
    """Whether exactly this process still runs (a zombie does not)."""
    if process is None:
        return False
    stat = _stat(process.pid)
    running = stat is not None and stat.started == process.started and stat.state not in "ZX"
    if not running:
        _reap(process.pid)
    return running


def send_signal(process: ProcessIdentity, number: int) -> bool:
    """Sends a signal to exactly this process; False when it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def wait_for_end(process: ProcessIdentity, seconds: float) -> bool:
    """Waits until the process has ended; True when it has."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if is_alive(process):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(seconds * 1000)
    finally:
        os.close(descriptor)
    return not is_alive(process)


def end_processes(processes: Sequence[ProcessIdentity], grace: float = 15.0) -> bool:
    """SIGTERM to all, then SIGKILL to those that still run after `grace` seconds (shared by all).

    True when none had to be killed.
    """
    in_good_order = True
    asked = [process for process in processes if send_signal(process, signal.SIGTERM)]
    deadline = time.monotonic() + grace
    for process in asked:
        if not wait_for_end(process, max(0.0, deadline - time.monotonic())):
            kill_process(process)
            in_good_order = False
    return in_good_order


def kill_process(process: ProcessIdentity) -> None:
    """SIGKILL, and waits until the kernel has ended it."""
    if send_signal(process, signal.SIGKILL):
        wait_for_end(process, 10.0)


def find_by_argument(argument: str) -> ProcessIdentity | None:
    """The running process of this user with exactly this command-line argument, if any."""
    wanted = argument.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid != os.getuid() or wanted not in (entry / "cmdline").read_bytes().split(b"\0"):
                continue
            stat = _stat(int(entry.name))
            if stat and stat.state not in "ZX":
                return ProcessIdentity(int(entry.name), stat.started)
    return None


def list_children(parent: ProcessIdentity) -> list[ProcessIdentity]:
    """The processes that this one has started and that run still."""
    if not is_alive(parent):
        return []
    found = []
    for entry in Path("/proc").iterdir():
        stat = _stat(int(entry.name)) if entry.name.isdigit() else None
        if stat and stat.parent == parent.pid and stat.state not in "ZX":
            found.append(ProcessIdentity(int(entry.name), stat.started))
    return found


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name (field 2) may contain blanks and parentheses; the last ")" ends it.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(fields[0], int(fields[1]), int(fields[19]))


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
