"""Reading a range whatever brokers do: a scripted cluster of two brokers over a log in memory."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from tests.clocks import stopped
from tests.spark.test_spark_heads import stored
from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition, OffsetAnswer
from watershed.spark.errors import NotReadable
from watershed.spark.reading import fetch_answers as reading
from watershed.spark.reading import lag_pause, read_rate
from watershed.spark.reading.batch_decoding import CorruptBatch
from watershed.spark.reading.broker_connections import BrokerConnections
from watershed.spark.reading.fetch_answers import FetchAnswer, OffsetsExpired, PartitionAddress, fetch_range
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.read_rate import ReadRate

ID = uuid.uuid4()
SETTINGS = ConnectionSettings("a", ("127.0.0.1:1",))
ADDRESS = PartitionAddress(SETTINGS, "orders", ID, 0)
LOG = [stored(base, 40) for base in range(0, 30, 3)]  # ten batches of three offsets
NOTHING = memoryview(b"")


class Lost(Unreachable):
    def __init__(self) -> None:
        super().__init__("lost", alias="a")


@dataclass
class Broker:
    """Answers from LOG, two batches at a time, unless there is something else in its script: an error code, an
    exception, or fields of the answer. `room`: it overwrites what it gave before, as a connection with one does."""

    node: int
    script: deque[Any] = field(default_factory=deque)
    asked: deque[tuple[int, str]] = field(default_factory=deque)
    served: list[int] = field(default_factory=list)
    given: bytearray = field(default_factory=lambda: bytearray(4096))
    closed: bool = False
    throttle_ms: int = 0

    def send_fetch(self, partitions: tuple[FetchPartition, ...], *, rack: str, **_: object) -> None:
        if self.closed:
            raise Lost
        assert not self.asked, "one question at a time"
        self.asked.append((partitions[0].offset, rack))

    def receive_fetch(self, room: object) -> list[FetchedPartition]:
        (position, rack), what = self.asked.popleft(), self.script.popleft() if self.script else {}
        self.throttle_ms = 0
        if isinstance(what, BaseException):
            self.closed = True
            raise what
        if what == "throttled":
            self.throttle_ms = 900
            return []
        answer = FetchedPartition(ID, 0, 0, 30, 30, 0, NOTHING)
        if isinstance(what, int):
            return [replace(answer, error=what)]
        if "preferred" in what and rack:
            return [replace(answer, **what)]
        if what.get("error") is None and "records" not in what and "preferred" not in what:
            self.served.append(position)
            records = b"".join(
                [each for base, each in zip(range(0, 30, 3), LOG, strict=True) if base + 3 > position][:2]
            )
            if room is not None:
                self.given[: len(records)] = records
                return [replace(answer, records=memoryview(self.given)[: len(records)])]
            return [replace(answer, records=memoryview(records))]
        return [replace(answer, **what)]

    def list_offsets(self, *_: object) -> list[Any]:
        return [OffsetAnswer("orders", 0, 0, 6)]

    def close(self) -> None:
        self.closed = True

    def ended(self) -> bool:
        return self.closed


class Scripted(BrokerConnections):
    """Broker 1 leads; a lost connection is made anew."""

    def __init__(self, *script: Any, follower: tuple[Any, ...] = (), rack: str = "") -> None:
        super().__init__(replace(SETTINGS, rack=rack), ReadRate())
        self.brokers = {1: Broker(1, deque(script)), 2: Broker(2, deque(follower))}
        self.told = 0

    def leader(self, topic: str, partition: int) -> Connection:
        self.told += 1
        return self.node(1)

    def node(self, node: int) -> Connection:
        if self.brokers[node].closed:
            self.brokers[node] = replace(self.brokers[node], closed=False, asked=deque())
        return cast(Connection, self.brokers[node])


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return stopped(monkeypatch, reading, lag_pause, read_rate)


def read(links: BrokerConnections, start: int = 0, end: int = 30, **more: Any) -> list[int]:
    """Base offsets of all batches, copied at once: their memory is used again."""
    found = []
    for answer in fetch_range(ADDRESS, OffsetRange(start, end), links, **more):
        bases = [int.from_bytes(answer.records[at : at + 8], "big") for at in answer.edges[:-1]]
        assert bases[0] + 3 > answer.position
        found += bases
    return found


WHOLE = list(range(0, 30, 3))


def test_every_batch_that_touches_the_range_comes_once() -> None:
    assert read(Scripted()) == WHOLE
    links = Scripted()
    assert read(links, 4, 13) == [3, 6, 9, 12]
    assert links.brokers[1].served == [4, 9]


def test_the_next_question_is_out_before_an_answer_is_worked_on() -> None:
    links = Scripted()
    for answer in fetch_range(ADDRESS, OffsetRange(0, 30), links):
        behind = answer.position - answer.position % 3 + 6
        assert [position for position, _ in links.brokers[1].asked] == ([behind] if behind < 30 else [])


def test_a_range_that_is_left_early_leaves_no_answer_on_a_shared_connection() -> None:
    links = Scripted()
    reader = fetch_range(ADDRESS, OffsetRange(0, 30), links)
    next(reader)
    reader.close()
    assert links.brokers[1].closed
    assert read(links) == WHOLE


@pytest.mark.parametrize(
    "fault", [Lost(), 6, 74, 75, "throttled", {"records": NOTHING}], ids=["lost", "6", "74", "75", "throttled", "empty"]
)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_what_passes_is_waited_for(fault: Any, after: int) -> None:
    assert read(Scripted(*[{}] * after, fault, fault)) == WHOLE


def test_a_quota_is_kept_to_however_long_it_takes(clock: list[float]) -> None:
    assert read(Scripted(*["throttled"] * 200)) == WHOLE
    assert clock[0] >= 1_000 + 200 * 0.9


@pytest.mark.parametrize(
    ("fault", "message"),
    [(Lost(), "lost"), (6, "its leader keeps moving"), ({"records": NOTHING}, "nothing more to read at offset 0")],
    ids=["lost", "moves", "empty"],
)
def test_patience_ends(fault: Any, message: str, clock: list[float]) -> None:
    with pytest.raises((NotReadable, Unreachable), match=message):
        read(Scripted(*[fault] * 10_000))
    assert reading.NO_PROGRESS_TIMEOUT_S <= clock[0] - 1_000 < reading.NO_PROGRESS_TIMEOUT_S + 5


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"error": 1, "log_start": 0}, "offset 0 is beyond its end; was the log truncated"),
        ({"error": 100}, "deleted or made anew"),
        ({"error": 29}, "TOPIC_AUTHORIZATION_FAILED"),
        ({"error": 76}, "UNSUPPORTED_COMPRESSION_TYPE"),  # no leader moves for that
    ],
)
def test_what_does_not_pass_is_told_at_once(fault: Any, message: str) -> None:
    with pytest.raises(NotReadable, match=message):
        read(Scripted(fault))


def test_a_log_that_ends_before_the_range_does_is_told_soon(clock: list[float]) -> None:
    short = {"records": NOTHING, "high_watermark": 9, "last_stable": 9}
    with pytest.raises(NotReadable, match="before 30; its log ends at 9"):
        read(Scripted(*[short] * 10_000))
    assert clock[0] - 1_000 < reading.EARLY_END_WAIT_S + 5


def test_a_new_leader_may_find_out_late_how_far_its_log_is_committed() -> None:
    late = {"records": NOTHING, "high_watermark": 9, "last_stable": 9}
    assert read(Scripted({}, {}, 6, late, late)) == WHOLE


def test_a_log_that_starts_later_has_expired() -> None:
    with pytest.raises(OffsetsExpired) as caught:
        read(Scripted({"error": 1, "log_start": 12}))
    assert caught.value.log_start == 12
    with pytest.raises(OffsetsExpired) as caught:
        read(Scripted({"error": 1, "log_start": -1}))
    assert caught.value.log_start == 6


def test_a_broker_that_does_not_get_on_is_an_error() -> None:
    again = {"records": memoryview(LOG[0])}
    with pytest.raises(NotReadable, match="sends offsets below 3"):
        read(Scripted({"records": memoryview(LOG[0])}, again))


def test_a_length_that_no_batch_has_is_an_error() -> None:
    with pytest.raises(CorruptBatch, match="a length of"):
        read(Scripted({"records": memoryview(LOG[0][:8] + bytes(4) + LOG[0][12:])}))


def test_batches_that_are_kept_stay_as_they_are() -> None:
    kept: list[FetchAnswer] = list(fetch_range(ADDRESS, OffsetRange(0, 30), Scripted(), keep=True))
    assert b"".join(bytes(answer.records) for answer in kept) == b"".join(LOG)


def test_a_follower_in_our_rack_serves() -> None:
    links = Scripted({"preferred": 2}, rack="west")
    assert read(links) == WHOLE
    assert (links.brokers[1].served, len(links.brokers[2].served)) == ([], 5)


@pytest.mark.parametrize("fault", [1, 78, 6, Lost(), {"records": NOTHING}], ids=["1", "78", "6", "lost", "empty"])
def test_a_follower_that_is_no_help_is_left_for_the_leader(fault: Any) -> None:
    links = Scripted({"preferred": 2}, {"preferred": 2}, follower=({}, fault), rack="west")
    assert read(links) == WHOLE
    assert links.brokers[2].served == [0]
    assert links.brokers[1].served == list(np.arange(6, 30, 6))
