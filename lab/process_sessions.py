"""Sessions: a process we started, with everything that it started in turn.

Programs of the lab lead a session of their own (`lab.detached_process.spawn_detached`).  Airflow's tasks and PySpark's
workers move to process groups of their own, but none of them leaves the session, so a session is what can be ended
whole, even when its leader is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from watershed.lab.detached_process import ProcessIdentity


def list_session_members(leader: ProcessIdentity) -> list[ProcessIdentity]:
    """Every running process of the leader's session; none when its number belongs to somebody else now."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, session, started = _stat(entry)
            if session != leader.pid or state in "ZX":
                continue
            process = ProcessIdentity(int(entry.name), started)
            if process.pid == leader.pid and started != leader.started:
                return []
            if started >= leader.started:
                found.append(process)
    return found


def end_sessions(
    leaders: Iterable[ProcessIdentity], *, grace: float = 12.0, only_leaders: bool = False
) -> list[ProcessIdentity]:
    """End sessions together: SIGTERM to every member, `grace` seconds to comply, then SIGKILL.

    `only_leaders`: SIGTERM goes to the leaders, which end what they started; SIGKILL still goes to everybody.
    Returns the processes that had to be killed. Nothing running is fine.
    """
    leaders = list(leaders)
    told = [p for leader in leaders for p in list_session_members(leader) if p == leader or not only_leaders]
    _signal(told, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := [p for leader in leaders for p in list_session_members(leader)]) and time.monotonic() < deadline:
        _reap(leaders)
        time.sleep(0.1)
    killed = left
    while left:  # a member may fork while it is being killed
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
        left = [p for leader in leaders for p in list_session_members(leader)]
    _reap(leaders)
    return killed


def _stat(entry: Path) -> tuple[str, int, int]:
    """State, session id and start time (ticks since boot) of one /proc entry."""
    text = (entry / "stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[3]), int(fields[19])


def _signal(processes: Iterable[ProcessIdentity], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _reap(leaders: Iterable[ProcessIdentity]) -> None:
    for leader in leaders:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(leader.pid, os.WNOHANG)
