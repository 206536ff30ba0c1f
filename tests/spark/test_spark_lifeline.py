"""The line between driver and tasks: who works, who stands by, and how everybody ends. Nothing here needs Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from watershed.spark import fleet_connection
from watershed.spark.fleet_connection import FleetConnection, FleetDriver, connect_to_driver
from watershed.spark.replicate import host_worker
from watershed.topology.plan import Plan, encode_plan, seal_plan


class Seen:
    """What the driver heard."""

    def __init__(self) -> None:
        self.working: list[set[str]] = [set()]
        self.reasons: list[str] = []
        self.standing_by = 0

    def changed(self, present: list[dict[str, Any]], standing_by: int) -> None:
        self.standing_by = standing_by
        self.working.append({task["id"] for task in present})


TASKS: list[Task] = []


class Task:
    """An attempt at a task, in a thread; ended with the test, as its process would be otherwise."""

    def __init__(self, driver: FleetDriver, place: int, name: str) -> None:
        TASKS.append(self)
        self.stop, self.held, self.began = threading.Event(), None, threading.Event()
        self._thread = threading.Thread(target=self._run, args=(driver, {"place": place, "id": name}), daemon=True)
        self._thread.start()

    def _run(self, driver: FleetDriver, hello: dict[str, Any]) -> None:
        self.held: FleetConnection | None = connect_to_driver(driver.line, hello, self.stop)
        if self.held is not None:
            self.began.set()

    def end(self) -> None:
        self.stop.wait(10)
        if self.held is not None:
            self.held.release_place()
        self._thread.join(10)

    def ended_without_beginning(self) -> bool:
        self._thread.join(60)
        return not self._thread.is_alive() and not self.began.is_set()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def driver(seen: Seen) -> Iterator[FleetDriver]:
    before = signal.getsignal(signal.SIGHUP)
    driver = FleetDriver("127.0.0.1", "127.0.0.1", seen.changed, seen.reasons.append)
    yield driver
    signal.signal(signal.SIGHUP, before)
    driver.hang_up()
    while TASKS:
        TASKS.pop().end()


def test_a_task_ends_when_the_driver_hangs_up_and_the_driver_sees_tasks_come_and_go(
    driver: FleetDriver, seen: Seen
) -> None:
    a, b = Task(driver, 0, "a"), Task(driver, 1, "b")
    until(lambda: {"a", "b"} in seen.working)
    assert a.began.wait(60)
    assert a.held is not None
    a.held.release_place()
    until(lambda: seen.working[-1] == {"b"})
    assert not b.stop.is_set()
    driver.hang_up()
    assert b.stop.wait(60)


def test_a_second_attempt_at_a_task_stands_by_until_the_first_is_gone(driver: FleetDriver, seen: Seen) -> None:
    first = Task(driver, 0, "first")
    assert first.began.wait(60)
    copy, other = Task(driver, 0, "copy"), Task(driver, 1, "other")
    until(lambda: seen.standing_by == 1)
    assert other.began.wait(60)
    assert not copy.began.is_set()
    until(lambda: seen.working[-1] == {"first", "other"})
    assert first.held is not None
    first.held.release_place()
    assert copy.began.wait(60)
    until(lambda: seen.working[-1] == {"copy", "other"})


def test_a_task_that_says_nothing_any_more_gives_up_its_place(
    driver: FleetDriver, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine hangs: the kernel there still answers keepalives."""
    monkeypatch.setattr(fleet_connection, "_SILENT_S", 4.0)
    said = Task(driver, 1, "says something every second")
    with socket.create_connection((driver.line.host, driver.line.port), timeout=60) as wire:
        wire.sendall(json.dumps({"place": 0, "id": "hangs", "word": driver.line.word}).encode() + b"\n")
        assert wire.recv(3) == b"go\n"
        copy = Task(driver, 0, "copy")
        until(lambda: seen.standing_by == 1)
        assert copy.began.wait(60)
        assert wire.recv(3) == b""  # whoever wakes up again is told to end
    until(lambda: seen.working[-1] == {"copy", "says something every second"})
    assert not said.stop.is_set()
    assert not seen.reasons


def test_who_stands_by_is_dismissed_last_so_that_spark_does_not_kill_who_works(driver: FleetDriver) -> None:
    first = Task(driver, 0, "first")
    assert first.began.wait(60)
    copy = Task(driver, 0, "copy")
    until(lambda: len(driver._standing_by) == 1)
    driver.hang_up()
    assert first.stop.wait(60)
    assert not copy.stop.is_set()  # the first is still finishing what is in flight
    assert first.held is not None
    first.held.release_place()
    assert copy.ended_without_beginning()


def test_a_place_is_closed_alone_and_its_second_attempt_ends_behind_the_first(driver: FleetDriver, seen: Seen) -> None:
    first, other = Task(driver, 0, "first"), Task(driver, 1, "other")
    assert first.began.wait(60)
    assert other.began.wait(60)
    copy = Task(driver, 0, "copy")
    until(lambda: seen.standing_by == 1)
    assert driver.close_place(0)
    assert first.stop.wait(60)
    assert not copy.stop.is_set()
    assert first.held is not None
    first.held.release_place()
    assert copy.ended_without_beginning()
    assert not driver.close_place(0)  # nobody works there
    assert Task(driver, 0, "late").ended_without_beginning()
    driver.open_place(0)
    assert Task(driver, 0, "again").began.wait(60)
    assert not other.stop.is_set()
    assert {place: hello["id"] for place, hello in driver.list_working().items()} == {0: "again", 1: "other"}


def test_last_words_reach_the_driver(driver: FleetDriver, seen: Seen) -> None:
    task = Task(driver, 0, "a")
    assert task.began.wait(60)
    assert task.held is not None
    task.held.fail("the password file is not there")
    task.held.release_place()
    until(lambda: seen.reasons == ["the password file is not there"])


def test_a_task_that_cannot_reach_the_driver_says_so(driver: FleetDriver) -> None:
    driver.hang_up()
    with pytest.raises(ConnectionRefusedError):
        connect_to_driver(driver.line, {"place": 0, "id": "late"}, threading.Event())
    plan = encode_plan(seal_plan(Plan("t", (), ())))
    [reason] = host_worker(plan, "cloud", driver.line, None, 0, 0, iter(()))
    assert f"cannot reach the driver at 127.0.0.1:{driver.line.port}" in reason


LOST = """
import sys, threading
from watershed.spark.fleet_connection import connect_to_driver
from watershed.spark.progress import DriverAddress
import watershed.spark.fleet_connection
watershed.spark.fleet_connection._END_S = 0.2
stop = threading.Event()
held = connect_to_driver(DriverAddress("127.0.0.1", int(sys.argv[1]), sys.argv[2]), {"place": 0, "id": "task"}, stop)
print("began", flush=True)
stop.wait()
print("told to end", flush=True)
if sys.argv[3] == "ends":
    held.release_place()
else:
    threading.Event().wait()
"""


@pytest.mark.parametrize(("way", "code"), [("ends", 0), ("hangs", 70)])
def test_a_task_whose_executor_is_lost_finishes_and_one_that_does_not_is_ended(
    driver: FleetDriver, seen: Seen, way: str, code: int
) -> None:
    """Spark's Python daemon sends SIGHUP to its workers when its executor is gone."""
    command = [sys.executable, "-c", LOST, str(driver.line.port), driver.line.word, way]
    task = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert task.stdout is not None
        assert task.stdout.readline() == "began\n"
        os.kill(task.pid, signal.SIGHUP)
        assert task.stdout.readline() == "told to end\n"
        assert task.wait(60) == code
        until(lambda: seen.working[-1] == set())
    finally:
        task.kill()
        task.wait()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
