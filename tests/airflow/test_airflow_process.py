"""Detached programs, with real processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from watershed import IMPORT_ROOT
from watershed.plugins.detached_process import (
    DetachedProcess,
    ProcessStartFailed,
    build_clean_environment,
    start_detached,
)

PROGRAM = "tests.airflow.programs.proof"


def begin(folder: Path, verdict: str = "proven", seconds: float = 0.0) -> DetachedProcess:
    arguments = ["--out", str(folder), "--verdict", verdict, "--seconds", str(seconds)]
    return start_detached(folder, PROGRAM, arguments, build_clean_environment())


def wait_for_end(program: DetachedProcess) -> None:
    deadline = time.monotonic() + 180
    while program.alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("verdict", "code"), [("proven", 0), ("different", 1), ("incomplete", 3)])
def test_exit_code_and_log_are_kept(state: Path, verdict: str, code: int) -> None:
    program = begin(state / "p", verdict)
    wait_for_end(program)
    assert program.exit_code() == code
    assert program.tail() == "comparing None\ndone"


def test_second_start_finds_the_first(state: Path) -> None:
    first = begin(state / "p", seconds=30)
    pid = first.pid()
    again = begin(state / "p", seconds=30)
    assert again.alive()
    assert again.pid() == pid
    first.end(grace=5)
    assert not first.alive()


@pytest.mark.parametrize("end", [DetachedProcess.dismiss, DetachedProcess.end])
@pytest.mark.parametrize("elsewhere", [{"pids_of": "another container"}, {"started": 1}])
def test_who_cannot_signal_it_asks_it_to_end_and_signals_nobody_else(
    state: Path, elsewhere: dict[str, object], end: Callable[[DetachedProcess], None]
) -> None:
    """The triggerer's container has other pids than the scheduler's: the same number is another process there."""
    program, bystander = begin(state / "p", seconds=60), subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        pid = program.pid()
        file = state / "p" / "process.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | elsewhere | {"pid": bystander.pid}))
        program.dismiss(signal.SIGUSR1)
        assert not (state / "p" / "asked-to-end").exists()
        end(program)
        wait_for_end(program)
        assert not program.alive()
        assert pid is not None
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_wish_to_end_is_not_kept_for_the_next_program(state: Path) -> None:
    """Nor does a wish reach one that has started since."""
    program = begin(state / "p", seconds=2.5)
    (state / "p" / "asked-to-end").write_text(json.dumps({"id": "an earlier program", "grace": 0, "at": 0}))
    wait_for_end(program)
    assert program.exit_code() == 0


def test_a_program_that_was_left_ends_when_nobody_has_kept_it(state: Path) -> None:
    program = begin(state / "p", seconds=60)
    program.leave(60)
    program.keep()
    assert program.alive()
    assert not (state / "p" / "asked-to-end").exists()
    program.leave(0.1)
    wait_for_end(program)
    assert not program.alive()


def test_nobody_keeps_a_program_that_is_ending(state: Path) -> None:
    program = begin(state / "p", seconds=60)
    program.leave(-1)
    program.keep()
    wait_for_end(program)
    assert not program.alive()


def test_racing_starts_leave_one_program(state: Path) -> None:
    folder = state / "p"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "watershed.plugins.detached_process", str(folder), PROGRAM]
    argv += ["--out", str(folder), "--verdict", "proven", "--seconds", "3"]
    racers = [subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)}) for _ in range(4)]
    assert [racer.wait(180) for racer in racers] == [0, 0, 0, 0]
    assert not DetachedProcess(folder).alive()
    assert DetachedProcess(folder).exit_code() == 0


def test_only_the_program_is_taken_for_one_and_not_others_who_look(state: Path) -> None:
    state.mkdir()
    (state / "lock").touch()
    with (state / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)  # as `alive` does
        assert not DetachedProcess(state).alive()
        fcntl.flock(held, fcntl.LOCK_EX)
        assert DetachedProcess(state).alive()


def test_killed_program_has_no_exit_code(state: Path) -> None:
    program = begin(state / "p", seconds=30)
    os.kill(program.pid() or 0, signal.SIGKILL)
    wait_for_end(program)
    assert program.exit_code() is None


def test_program_survives_who_started_it(state: Path) -> None:
    folder = state / "p"
    code = (
        "from pathlib import Path; from watershed.plugins.detached_process import *;"
        f"start_detached(Path({str(folder)!r}), {PROGRAM!r}, ['--out', {str(folder)!r}, '--verdict', 'proven',"
        " '--seconds', '5'], build_clean_environment())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)})
    program = DetachedProcess(folder)
    assert program.alive()
    wait_for_end(program)
    assert program.exit_code() == 0


def test_crash_is_exit_2_with_its_traceback_in_the_log(state: Path) -> None:
    program = start_detached(state / "p", "no.such.module", [], build_clean_environment())
    wait_for_end(program)
    assert program.exit_code() == 2
    assert "No module named 'no'" in program.tail()


def test_unstartable_program_is_named(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ProcessStartFailed, match=r"spark\.verify did not start"):
        start_detached(state / "p", "watershed.spark.verify", [], build_clean_environment())


def test_environment_holds_no_airflow_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", "y")
    env = build_clean_environment()
    assert "AIRFLOW__API_AUTH__JWT_SECRET" not in env
    assert env["AIRFLOW_CONN_KAFKA"] == "y"
