"""What a process and its children have used: CPU time and the highest resident memory, from /proc (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def list_descendants(pid: int) -> list[int]:
    """The process and all its descendants that run now."""
    found = [pid]
    for each in found:
        for task in _paths(Path(f"/proc/{each}/task")):
            with suppress(OSError):
                found.extend(int(child) for child in (task / "children").read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Whether the process is there and not only waits to be reaped."""
    with suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def read_cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, their ended and awaited children included."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/stat").read_text()
            fields = text[text.rindex(")") + 2 :].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / _TICK


def read_peak_mib(pids: Iterable[int]) -> float:
    """The largest VmHWM of these processes, in MiB."""
    peaks = [0.0]
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peaks.append(int(line.split()[1]) / 1024)
    return max(peaks)


def _paths(directory: Path) -> list[Path]:
    with suppress(OSError):
        return list(directory.iterdir())
    return []
