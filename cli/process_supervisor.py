"""Several processes kept alive by one: those that die are started again, signals reach all of them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watershed.replicator.worker.worker_processes import describe_exit

_QUICK_DEATH_S = 30.0  # one that lived shorter has not worked
MAX_QUICK_DEATHS = 5  # of one process in a row; then it is something that starting again does not mend
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LOOK_S = 0.05


@dataclass(slots=True)
class _Child:
    number: int
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0  # when it is started (again)
    quick_deaths: int = 0
    pause: float = 0.0
    code: int | None = None  # how it ended for good

    def start(self) -> None:
        self.process, self.started = subprocess.Popen(self.command), time.monotonic()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def keep_processes_alive(
    commands: Sequence[Sequence[str]], say: Callable[[str], None], *, first_pause_s: float = _FIRST_PAUSE_S
) -> int:
    """Run all commands until SIGTERM or SIGINT, which they get as SIGTERM, or until each ended with exit code 0.

    One that dies (any other code, or a signal) is said at once and started again after a pause that doubles with each
    quick death; after MAX_QUICK_DEATHS of them all others are stopped as well. Returns the worst exit code of those
    that were there in the end, of a signal its number.
    """
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):  # before there is anybody whom a signal could miss
        signal.signal(number, lambda number, _frame: asked.append(number))
    children = [_Child(number, command, pause=first_pause_s) for number, command in enumerate(commands)]
    while not asked and any(child.code is None for child in children):
        for child in children:
            if child.code is None and not asked:
                _attend(child, say, first_pause_s)
        if any(child.code for child in children):
            break
        time.sleep(_LOOK_S)
    return _ended(children)


def _attend(child: _Child, say: Callable[[str], None], first_pause_s: float) -> None:
    """Start it when that is due; see whether it has died."""
    now = time.monotonic()
    if child.process is None:
        if now >= child.due:
            child.start()
        return
    code = child.process.poll()
    if code is None:
        return
    child.process = None
    if code == 0:  # the fleet's record says stopped
        child.code = 0
        return
    lived = now - child.started
    if lived >= _QUICK_DEATH_S:
        child.quick_deaths, child.pause = 0, first_pause_s
    child.quick_deaths += 1
    told = f"process {child.number} ended after {lived:.0f} s {describe_exit(code)}"
    if child.quick_deaths >= MAX_QUICK_DEATHS:
        child.code = code
        say(f"{told}, {MAX_QUICK_DEATHS} times in a row; all processes are stopped. Its own last lines say why.")
        return
    say(f"{told}; it is started again in {child.pause:g} s, the others go on")
    child.due, child.pause = now + child.pause, min(child.pause * 2, _LONGEST_PAUSE_S)


def _ended(children: list[_Child]) -> int:
    """Stop whoever is alive and wait for all of them."""
    for child in children:
        if child.alive and child.process is not None:
            child.process.send_signal(signal.SIGTERM)
    for child in children:
        if child.process is not None:
            code = child.process.wait()
            # SIGTERM comes through only before the worker has its own handler, when there was nothing to hand over
            child.code = 0 if code == -signal.SIGTERM else code
    return max(abs(child.code or 0) for child in children)
