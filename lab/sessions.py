"""Sessions: a process we started with everything it started, known by pid and creation time.

Every long-lived program of the lab is started as the leader of a session of its own, so that it can be
ended whole: Airflow's task processes and PySpark's workers move to process groups of their own, but none
of them leaves the session.  A process id alone is not an identity (the kernel uses numbers again), so the
creation time is recorded with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_SLACK_SECONDS = 0.05  # creation times are recorded in clock ticks (10 ms)


@dataclass(frozen=True, slots=True)
class Session:
    """The leader of a session: its process id and its creation time (seconds since the epoch)."""

    pid: int
    created: float

    def to_json(self) -> dict[str, float]:
        return {"pid": self.pid, "created": self.created}


def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path | None = None) -> Session:
    """Start a program as leader of its own session; its output goes to the end of `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    _CHILDREN[process.pid] = process
    return Session(process.pid, psutil.Process(process.pid).create_time())


def alive(session: Session) -> bool:
    """True while the leader itself runs (not a zombie, not another process with the same number)."""
    _reap(session.pid)
    try:
        process = psutil.Process(session.pid)
        return (
            abs(process.create_time() - session.created) < _SLACK_SECONDS and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


def members(session: Session) -> list[psutil.Process]:
    """Every living process of the session, also when the leader is gone."""
    _reap(session.pid)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) != session.pid or process.status() == psutil.STATUS_ZOMBIE:
                continue
            born = process.create_time()
            if process.pid == session.pid and abs(born - session.created) >= _SLACK_SECONDS:
                return []  # the number belongs to somebody else now, and with it the session
            if born >= session.created - _SLACK_SECONDS:
                found.append(process)
    return found


def end(sessions: Iterable[Session], *, grace: float = 12.0) -> list[int]:
    """End sessions together: SIGTERM to all members, `grace` seconds to comply, then SIGKILL.

    Returns the process ids that had to be killed.
    """
    sessions = list(sessions)
    for session in sessions:
        _signal(members(session), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := [p for session in sessions for p in members(session)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    killed = [process.pid for process in left]
    while left:  # a member may fork while it is being killed
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
        left = [p for session in sessions for p in members(session)]
    return killed


_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


def _reap(pid: int) -> None:
    if (child := _CHILDREN.get(pid)) is not None and child.poll() is not None:
        del _CHILDREN[pid]


def _signal(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
