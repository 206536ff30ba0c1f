"""`topology worker --processes`: no process is dead without anybody saying so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from watershed.cli.process_supervisor import MAX_QUICK_DEATHS, keep_processes_alive

WAITS = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(0)); open({path!r}, 'w'); time.sleep(600)"


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def command(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def appears(path: Path) -> None:
    deadline = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_dies_is_told_and_started_again(tmp_path):
    again, here = tmp_path / "again", tmp_path / "here"
    dies_once = f"""
import os, signal
if not os.path.exists({str(again)!r} + ".first"):
    open({str(again)!r} + ".first", "w")
    os.kill(os.getpid(), signal.SIGKILL)
{WAITS.format(path=str(again))}
"""
    told: list[str] = []

    def stops() -> None:
        appears(again)
        appears(here)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stops)
    stopper.start()
    commands = [command(WAITS.format(path=str(here))), command(dies_once)]
    assert keep_processes_alive(commands, told.append, first_pause_s=0.01) == 0
    stopper.join()
    [line] = told
    assert line.startswith("process 1 ended after")
    assert "by SIGKILL; it is started again in" in line


def test_one_that_never_works_stops_all_with_its_exit_code(tmp_path):
    here, told = tmp_path / "here", []
    commands = [command(WAITS.format(path=str(here))), command("exit(7)")]
    assert keep_processes_alive(commands, told.append, first_pause_s=0.01) == 7
    assert len(told) == MAX_QUICK_DEATHS
    assert "with exit code 7, 5 times in a row; all processes are stopped" in told[-1]


def test_those_that_were_told_to_end_are_not_started_again():
    told: list[str] = []
    assert keep_processes_alive([command("exit(0)")] * 2, told.append) == 0
    assert told == []


def test_a_signal_while_they_start_reaches_all(tmp_path):
    """The handlers are there before the first child."""
    script = f"""
import os, signal, subprocess
from watershed.cli.process_supervisor import keep_processes_alive
real, started = subprocess.Popen, []
def popen(*args, **more):
    started.append(1)
    process = real(*args, **more)
    if len(started) == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return process
subprocess.Popen = popen
raise SystemExit(keep_processes_alive([{command("import time; time.sleep(600)")!r}] * 3, print))
"""
    assert subprocess.run(command(script), check=False, timeout=60).returncode == 0
