"""What a proof says while it reads: every chunk once, whoever tells of it and however often."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from watershed.spark.fingerprint import ChunkSum
from watershed.spark.progress import (
    DriverAddress,
    ProgressListener,
    ProgressReporter,
    ReadingProgress,
    build_progress_printer,
)
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.range_sums import RangeSum

UNITS = [RangeRequest(number, "onprem", "orders", "id", 0, 10 * number, 10 * number + 10) for number in range(4)]


def read(number: int) -> RangeSum:
    return RangeSum(number, "read", "", -1, ChunkSum(n=10, size=1000), 1)


class Heard:
    """The counts as they came, and a way to wait for one."""

    def __init__(self) -> None:
        self.done: list[ReadingProgress] = []
        self._news = threading.Condition()

    def __call__(self, now: ReadingProgress) -> None:
        with self._news:
            self.done.append(now)
            self._news.notify_all()

    def wait(self, done: int) -> ReadingProgress:
        with self._news:
            assert self._news.wait_for(lambda: any(each.done == done for each in self.done), 60)
            return self.done[-1]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def listener(heard: Heard) -> Iterator[ProgressListener]:
    with ProgressListener(UNITS, heard, bind="127.0.0.1", host="127.0.0.1") as listener:
        yield listener


def test_units_count_once_although_two_tasks_read_them(listener: ProgressListener, heard: Heard) -> None:
    with ProgressReporter(listener.line) as first, ProgressReporter(listener.line) as copy:
        for teller in (first, copy):
            teller.tell(read(0))
            teller.tell(read(1))
        heard.wait(2)
        copy.tell(read(2))
        now = heard.wait(3)
    assert (now.done, now.of, now.records, now.size) == (3, 4, 30, 3000)
    assert [each.done for each in heard.done] == [1, 2, 3]


def test_a_round_ends_with_all_of_it_although_nobody_could_tell(listener: ProgressListener, heard: Heard) -> None:
    with ProgressReporter(listener.line) as teller:
        teller.tell(read(3))
    heard.wait(1)
    listener.complete(read(number) for number in range(4))
    assert heard.done[-1].done == 4
    assert [each.done for each in heard.done] == [1, 2, 3, 4]


def test_strangers_and_nonsense_count_for_nothing(listener: ProgressListener, heard: Heard) -> None:
    for told in (b"0 10 1000\n", b"not the word\n0 10 1000\n", f"{listener.line.word}\nGET / HTTP/1.1\n".encode()):
        with socket.create_connection((listener.line.host, listener.line.port), timeout=5) as stranger:
            stranger.sendall(told)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""  # hung up
    assert heard.done == []


def test_a_task_that_cannot_reach_the_driver_reads_on(heard: Heard) -> None:
    with ProgressListener(UNITS, heard, bind="127.0.0.1", host="127.0.0.1") as listener:
        line = listener.line
        with ProgressReporter(line) as late:
            late.tell(read(0))
            heard.wait(1)
            listener.__exit__()
            for number in (1, 2, 3):
                late.tell(read(number))
    with ProgressReporter(line) as never, ProgressReporter(None) as unasked:
        never.tell(read(1))
        unasked.tell(read(1))
    with ProgressReporter(DriverAddress("127.0.0.1", 1, "word")) as nobody:
        nobody.tell(read(1))


def test_lines_for_people_are_few_and_the_last_is_said() -> None:
    said: list[str] = []
    tell = build_progress_printer(said.append, every=3600)
    for done in range(1, 5):
        tell(ReadingProgress("records", done, 4, 10 * done, 1_500_000 * done, 2.0))
    assert said == [
        "read 1 of 4 chunks by records (25%), 10 records, 1 MB, 0.8 MB/s, about 6 s left",
        "read 4 of 4 chunks by records (100%), 40 records, 6 MB, 3.0 MB/s",
    ]
    always: list[str] = []
    tell = build_progress_printer(always.append, every=0)
    tell(ReadingProgress("batches", 1, 4, 10, 0, 0.0))
    assert always == ["read 1 of 4 chunks by batches (25%), 10 records, 0 MB, 0.0 MB/s, about 0 s left"]
    assert ReadingProgress("records", 10, 40, 0, 0, 60.0).line.endswith(", about 3 min left")
