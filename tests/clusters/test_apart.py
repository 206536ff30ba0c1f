"""Questions in a process apart: what becomes of them when it dies, hangs, lies, or whoever started it dies."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from watershed.clusters import crash_isolated_client as apart_module
from watershed.clusters.crash_isolated_client import (
    BACKOFF_RESET_S,
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    MAX_CLIENT_PROCESSES,
    CallFailed,
    ClientProcess,
    ClientProcessEnded,
    ClientProcesses,
    describe_exit_code,
)
from watershed.clusters.errors import ClusterError

HERE = f"{__name__}:"
ROOT = Path(__file__).resolve().parents[2]


def until(what: Callable[[], Any], timeout: float = 120) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
    return found


# -- in the process apart ---------------------------------------------------------------------------------------


def add(a: int, b: int) -> dict[str, Any]:
    print("this is no answer")
    return {"sum": a + b, "pid": os.getpid()}


def abort() -> None:
    os.abort()


def leave(code: int) -> None:
    os._exit(code)


def wait() -> None:
    threading.Event().wait()


def refuse(kind: str) -> None:
    raise ClusterError("cluster hub refuses") if kind == "cluster" else KeyError("x")


def say(inode: int, line: str) -> None:
    """To the parent, on the pipe of the answers, whatever it expects."""
    pipe = next(int(each) for each in os.listdir("/proc/self/fd") if int(each) > 2 and _inode(int(each)) == inode)
    os.write(pipe, line.encode())
    wait()


def _inode(number: int) -> int:
    try:
        return os.fstat(number).st_ino
    except OSError:
        return -1


# -- one process ------------------------------------------------------------------------------------------------


@pytest.fixture
def ended() -> list[ClientProcess]:
    return []


@pytest.fixture
def child(ended: list[ClientProcess]) -> Iterator[ClientProcess]:
    found = ClientProcess(ended.append)
    yield found
    found.end("the test is over")
    found.join(60)
    assert not Path(f"/proc/{found.pid}").exists()


def test_a_call_is_answered_whatever_is_printed(child: ClientProcess) -> None:
    assert child.call(f"{HERE}add", {"a": 2, "b": 3}) == {"sum": 5, "pid": child.pid}
    assert child.pid != os.getpid()


def test_what_a_call_raises_comes_back_and_the_process_goes_on(child: ClientProcess) -> None:
    with pytest.raises(CallFailed, match=r"^cluster hub refuses$") as told:
        child.call(f"{HERE}refuse", {"kind": "cluster"})
    assert told.value.kind == "ClusterError"
    with pytest.raises(CallFailed) as told:
        child.call(f"{HERE}refuse", {"kind": "other"})
    assert told.value.kind == "KeyError"
    assert child.call(f"{HERE}add", {"a": 1, "b": 1})["sum"] == 2


@pytest.mark.parametrize(
    ("function", "arguments", "how"),
    [("abort", {}, "signal 6, SIGABRT"), ("leave", {"code": 3}, "exit code 3")],
    ids=["abort", "exit"],
)
def test_who_waits_is_told_how_the_process_ended(
    child: ClientProcess, ended: list[ClientProcess], function: str, arguments: dict[str, Any], how: str
) -> None:
    others: list[str] = []

    def other() -> None:
        try:
            child.call(f"{HERE}wait", {})
        except ClientProcessEnded as problem:
            others.append(str(problem))

    waiting = threading.Thread(target=other)
    waiting.start()
    until(lambda: child._waiting)
    with pytest.raises(ClientProcessEnded, match=how):
        child.call(f"{HERE}{function}", arguments)
    waiting.join(60)
    assert others == [f"the process has ended ({how})"]
    with pytest.raises(ClientProcessEnded, match=how):
        child.call(f"{HERE}add", {"a": 1, "b": 1})
    assert ended == [child]


def test_a_process_that_hangs_is_ended(child: ClientProcess, ended: list[ClientProcess]) -> None:
    with pytest.raises(ClientProcessEnded, match=r"no answer for 0 s"):
        child.call(f"{HERE}wait", {}, timeout=0.01)
    until(lambda: ended)
    assert not Path(f"/proc/{child.pid}").exists()


@pytest.mark.parametrize(
    "line",
    ["no JSON\n", "[]\n", '{"id": "x"}\n', '{"id": 99, "gives": 1}\n', "[" * 100_000 + "\n", "x" * 60_000],
    ids=["text", "list", "id", "nobody", "deep", "long"],
)
def test_a_process_that_says_what_is_no_answer_is_ended(
    ended: list[ClientProcess], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart_module, "MAX_CALL_ANSWER_BYTES", 50_000 if line[0] == "x" else 1 << 20)
    child = ClientProcess(ended.append)
    assert child._process.stdout is not None
    with pytest.raises(ClientProcessEnded, match="its answer is none"):
        child.call(f"{HERE}say", {"inode": os.fstat(child._process.stdout.fileno()).st_ino, "line": line})
    assert ended == [child]


def test_the_process_has_no_key_of_airflow(monkeypatch: pytest.MonkeyPatch, ended: list[ClientProcess]) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "canary")
    monkeypatch.setenv("AIRFLOW_CONN_WATERSHED_HUB", "kafka://ann:secret@")
    found = ClientProcess(ended.append)
    try:
        kept = dict(
            each.split("=", 1) for each in Path(f"/proc/{found.pid}/environ").read_text().split("\0") if "=" in each
        )
        command = Path(f"/proc/{found.pid}/cmdline").read_text()
    finally:
        found.end("read")
        found.join(60)
    assert "AIRFLOW__API_AUTH__JWT_SECRET" not in kept
    assert kept["AIRFLOW_CONN_WATERSHED_HUB"] == "kafka://ann:secret@"
    assert "secret" not in command


PARENT = """
import time
from watershed.clusters.crash_isolated_client import ClientProcess
child = ClientProcess(lambda child: None)
print(child.call("tests.clusters.test_apart:add", {"a": 1, "b": 1})["pid"], flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_the_process_ends_with_whoever_started_it(number: signal.Signals) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_there(pid)
        parent.send_signal(number)
        parent.wait(60)
    until(lambda: not is_there(pid))


def is_there(pid: int) -> bool:
    """A zombie is not: nobody may be there to wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


# -- who shares a process ---------------------------------------------------------------------------------------


class Fake:
    """A process in memory. Dies when told."""

    def __init__(self, on_end: Callable[[Any], None]) -> None:
        self.on_end, self.pid, self.how, self.done = on_end, 1, "", ""

    def die(self, how: str = "signal 6, SIGABRT") -> None:
        self.how = how
        self.on_end(self)

    def end(self, why: str) -> None:
        self.done = why
        self.die(why)

    def join(self, timeout: float) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asked(clock: Clock) -> ClientProcesses:
    return ClientProcesses(Fake, clock)  # type: ignore[arg-type]


def enter(asked: ClientProcesses, key: str) -> Any:
    return asked.enter(key, f"cluster {key}")


def test_all_share_one_process(asked: ClientProcesses) -> None:
    assert enter(asked, "a") is enter(asked, "b") is enter(asked, "a")


def test_who_was_not_answered_is_parted_from_who_was(asked: ClientProcesses, clock: Clock) -> None:
    shared = enter(asked, "bad")
    for key in ("good", "fine"):
        asked.hear(key, enter(asked, key))
    shared.die()
    with pytest.raises(ClientProcessEnded, match=r"cluster good and 2 others ended \(signal 6, SIGABRT\)") as told:
        enter(asked, "good")
    assert "bad" not in str(told.value)  # whoever may see one cluster may not see all
    clock.now += FIRST_WAIT_S
    good, bad = enter(asked, "good"), enter(asked, "bad")
    assert enter(asked, "fine") is good is not bad
    bad.die()
    assert enter(asked, "good") is good
    with pytest.raises(ClientProcessEnded, match="the process that asks cluster bad, and nothing else, ended") as told:
        enter(asked, "bad")
    assert "fine" not in str(told.value)


@pytest.mark.parametrize("number", [2, 3, 10, 100])
def test_one_that_kills_is_alone_after_few_deaths(asked: ClientProcesses, clock: Clock, number: int) -> None:
    """It answers first, so that nothing tells it from the others; whatever its place is."""
    keys = [f"k{each}" for each in range(number)]
    bad = keys[number * 2 // 3]
    deaths = 0
    while True:
        children = {key: enter(asked, key) for key in keys}
        for key, child in children.items():
            asked.hear(key, child)
        if list(children.values()).count(children[bad]) == 1:
            break
        children[bad].die()
        deaths += 1
        clock.now += LONGEST_WAIT_S
    assert deaths <= number.bit_length()


def test_one_that_kills_again_and_again_waits_longer_and_longer(asked: ClientProcesses, clock: Clock) -> None:
    waits = []
    child = enter(asked, "bad")
    for _ in range(9):
        child.die()
        begun = clock.now
        while asked.why("bad", "cluster bad"):
            clock.now += 0.5
        child = enter(asked, "bad")
        waits.append(clock.now - begun)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_one_that_lived_long_begins_with_the_first_wait(asked: ClientProcesses, clock: Clock) -> None:
    for _ in range(5):
        enter(asked, "bad").die()
        clock.now += LONGEST_WAIT_S
    child = enter(asked, "bad")
    clock.now += BACKOFF_RESET_S + 1
    child.die()
    clock.now += FIRST_WAIT_S
    assert enter(asked, "bad")


def test_who_is_new_joins_those_that_harmed_nobody(asked: ClientProcesses, clock: Clock) -> None:
    enter(asked, "bad").die()
    new = enter(asked, "new")
    clock.now += FIRST_WAIT_S
    assert enter(asked, "bad") is not new


def test_processes_are_few_whoever_kills(asked: ClientProcesses, clock: Clock) -> None:
    keys = [f"k{each}" for each in range(100)]
    for _ in range(40):
        for child in {id(each): each for each in [enter(asked, key) for key in keys]}.values():
            child.die()
        clock.now += LONGEST_WAIT_S
    assert len({id(enter(asked, key)) for key in keys}) == MAX_CLIENT_PROCESSES


def test_who_is_not_asked_is_not_suspected(asked: ClientProcesses, clock: Clock) -> None:
    child = enter(asked, "a")
    enter(asked, "b")
    asked.leave("a", child)
    child.die()
    assert "nothing else" in asked.why("b", "cluster b")
    other = enter(asked, "a")  # at once
    clock.now += FIRST_WAIT_S
    enter(asked, "b").die()
    assert "2 times in a row" in asked.why("b", "cluster b")
    assert enter(asked, "a") is other


def test_who_asked_last_is_suspected_when_nobody_asks(asked: ClientProcesses) -> None:
    for key in ("a", "b", "c"):
        child = enter(asked, key)
        asked.leave(key, child)
    child.die()
    assert all("2 others" in asked.why(key, f"cluster {key}") for key in ("a", "b", "c"))


def test_a_process_that_nobody_uses_is_ended_and_one_that_is_used_is_not(clock: Clock) -> None:
    asked = ClientProcesses(Fake, time.monotonic, linger_s=0.05)  # type: ignore[arg-type]
    child = enter(asked, "a")
    enter(asked, "b")
    asked.leave("a", child)
    asked.leave("b", child)
    assert enter(asked, "a") is child
    asked.leave("a", child)
    until(lambda: child.done == "not used")
    again = enter(asked, "a")
    assert again is not child
    assert again.done == ""


def test_a_process_that_cannot_be_started_is_told(clock: Clock) -> None:
    def start(_on_end: object) -> ClientProcess:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with pytest.raises(
        ClientProcessEnded, match=r"no process to ask cluster a could be started: .*temporarily unavailable"
    ):
        enter(ClientProcesses(start, clock), "a")


def test_nothing_is_started_once_it_stops(asked: ClientProcesses) -> None:
    child = enter(asked, "a")
    asked.stop()
    assert child.done == "stopped"
    with pytest.raises(ClientProcessEnded, match="this program ends"):
        enter(asked, "a")


def test_a_call_that_meets_the_end_says_who_was_asked() -> None:
    asked = ClientProcesses()
    try:
        with pytest.raises(
            ClientProcessEnded, match=r"that asks the topology shop, and nothing else, ended \(signal 6"
        ):
            asked.call("shop", "the topology shop", f"{HERE}abort", {})
        with pytest.raises(ClientProcessEnded, match="started again in"):
            asked.call("shop", "the topology shop", f"{HERE}add", {"a": 1, "b": 1})
        until(lambda: not asked.why("shop", "the topology shop"))
        assert asked.call("shop", "the topology shop", f"{HERE}add", {"a": 1, "b": 1})["sum"] == 2
    finally:
        asked.stop()


def test_endings_have_names() -> None:
    assert describe_exit_code(-9) == "signal 9, SIGKILL"
    assert describe_exit_code(-99) == "signal 99"
    assert describe_exit_code(0) == "exit code 0"


@pytest.mark.parametrize("error", [CallFailed("no", "KeyError"), ClientProcessEnded("gone")], ids=["failed", "ended"])
def test_they_can_be_pickled_as_all_errors_of_clusters(error: ClusterError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
