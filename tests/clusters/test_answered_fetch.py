"""A Fetch that is asked again until every partition is answered, on a clock of ours."""

from __future__ import annotations

import pickle
import uuid
from typing import Any

import pytest

from watershed.clusters import partition_writers
from watershed.clusters.errors import ProtocolError, Unanswered, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import answered_fetch
from watershed.clusters.wire.answered_fetch import fetch_each, fetch_one
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchedPartition, FetchPartition

TOPIC = uuid.uuid4()
ONE, OTHER = FetchPartition(TOPIC, 0, 10), FetchPartition(TOPIC, 1, 20)


class Broker:
    """Answers the n-th Fetch for the partitions in the n-th of `answered`, then for all; asks to wait `throttle_ms`."""

    alias = "cloud"

    def __init__(self, *answered: tuple[int, ...], throttle_ms: int = 0, error: int = 0) -> None:
        self.answered, self.throttle_ms, self.error = list(answered), throttle_ms, error
        self.asked: list[list[int]] = []

    def fetch(self, partitions: tuple[FetchPartition, ...], **_: Any) -> list[FetchedPartition]:
        self.asked.append([each.partition for each in partitions])
        chosen = self.answered.pop(0) if self.answered else [each.partition for each in partitions]
        return [
            FetchedPartition(TOPIC, number, self.error, number, -1, -1, memoryview(b""))
            for number in sorted(chosen, reverse=True)
        ]


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 1_000.0, []  # type: tuple[float, list[float]]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(answered_fetch, "time", made)
    return made


def test_an_answer_that_is_whole_is_asked_for_once(clock: Clock) -> None:
    broker = Broker()
    assert [each.partition for each in fetch_each(broker, (OTHER, ONE))] == [1, 0]
    assert (broker.asked, clock.slept) == ([[1, 0]], [])


@pytest.mark.parametrize(("throttle_ms", "waited_s"), [(0, 0.1), (700, 0.7), (90_000, 5.0)])
def test_an_empty_answer_is_asked_again_after_the_wait(clock: Clock, throttle_ms: int, waited_s: float) -> None:
    broker = Broker((), (), throttle_ms=throttle_ms)
    assert fetch_one(broker, ONE).partition == 0
    assert clock.slept == [waited_s] * 2


def test_only_those_that_were_left_out_are_asked_again(clock: Clock) -> None:
    broker = Broker((1,), ())
    assert [each.partition for each in fetch_each(broker, (ONE, OTHER))] == [0, 1]
    assert broker.asked == [[0, 1], [0], [0]]


def test_an_error_is_an_answer(clock: Clock) -> None:
    assert fetch_one(Broker(error=6), ONE).error == 6


def test_a_broker_that_never_answers_is_said_to_be_over_a_quota(clock: Clock) -> None:
    broker = Broker(*[()] * 100, throttle_ms=1_000)
    with pytest.raises(
        Unanswered, match=r"cluster cloud answers .* partition 0 .* and 1 more .*consumer_byte_rate"
    ) as told:
        fetch_each(broker, (ONE, OTHER))
    assert isinstance(told.value, Unreachable)
    assert sum(clock.slept) == 30
    again = pickle.loads(pickle.dumps(told.value))
    assert (type(again), str(again), again.alias) == (Unanswered, str(told.value), "cloud")


def test_patience_is_counted_from_the_last_answer(clock: Clock) -> None:
    broker = Broker(*[()] * 5, (0,), *[()] * 5, throttle_ms=5_000)
    assert len(fetch_each(broker, (ONE, OTHER))) == 2
    assert sum(clock.slept) > 30


@pytest.mark.parametrize("answered", [(7,), (0, 0)])
def test_an_answer_about_something_else_cannot_be_understood(clock: Clock, answered: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="which it was not asked for"):
        fetch_one(Broker(answered), ONE)


def test_writers_are_read_on_behind_an_empty_answer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is left out was read to no end: whoever wrote there would not be seen."""
    cluster = FakeCluster("onprem")
    cluster.create_topic("orders", 1)
    cluster.produce("orders", 0, [b"stranded"])
    silent = [True, True]

    class OverQuota(FakeWire):
        def fetch(self, *arguments: Any, **more: Any) -> list[FetchedPartition]:
            return [] if silent and silent.pop() else super().fetch(*arguments, **more)

    monkeypatch.setattr(partition_writers, "open_connection", lambda *_: OverQuota(cluster))
    place = TopicPartition("orders", 0)
    writers, upto = partition_writers.read_writes_since(cluster.settings, {place: 0})
    assert ([each.place for each in writers], upto) == ([place], {place: 1})
    assert silent == []
    assert OverQuota(cluster).fetch((ONE,), max_wait_ms=0, isolation=READ_UNCOMMITTED), "an unknown topic has an error"
