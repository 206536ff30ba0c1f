"""What a proof takes of the clusters it reads: bytes a second, tasks a broker, and nothing while a flow lags."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clocks import stopped
from watershed.clusters.control_topics import STATUS_TOPIC
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.spark.foreign import inferred_alignment
from watershed.spark.foreign.anchor_chain import NO_SAMPLES, SampledRecords
from watershed.spark.foreign.inferred_alignment import SampleRequest
from watershed.spark.reading import fetch_answers, lag_pause, read_limits, read_rate
from watershed.spark.reading.lag_pause import LagLimit, LagPause
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.read_limits import (
    LimitedTask,
    ReadLimits,
    borrow_connections,
    build_read_limits,
    plan_read_tasks,
)
from watershed.spark.reading.read_rate import ReadRate
from watershed.topology.plan import Plan, PlanCluster, PlanFlow
from watershed.topology.proof_policy import ProofPolicy
from watershed.topology.selectors import Selector, TopicSelection

CLUSTERS = (PlanCluster("a", ("127.0.0.1:1",)), PlanCluster("b", ("127.0.0.1:2",)))
ORDERS = TopicSelection((Selector("literal", "orders"),))
PAUSE = LagLimit("a-to-b", CLUSTERS[1], 5_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that only passes when somebody sleeps; [now]."""
    return stopped(monkeypatch, fetch_answers, lag_pause, read_rate)


def flow(**verify: int) -> PlanFlow:
    return PlanFlow("a-to-b", "a", "b", ORDERS, verify=ProofPolicy(**verify))  # type: ignore[arg-type]


def test_the_strictest_of_flows_that_are_proven_together_counts() -> None:
    plan = Plan("shop", CLUSTERS, ())
    flows = [flow(rate=500, fetches=3), flow(rate=200, pause_at_lag_ms=5_000), flow()]
    assert build_read_limits(plan, flows) == ReadLimits(200, 3, (PAUSE,))
    assert build_read_limits(plan, flows, max_rate=900).rate == 900
    assert build_read_limits(plan, [flow()]) == ReadLimits()


@pytest.mark.parametrize(("tasks", "cores", "each"), [(1, 8, 800), (2, 8, 400), (40, 8, 100), (40, 1, 800)])
def test_tasks_that_run_together_share_the_rate(tasks: int, cores: int, each: int) -> None:
    part = ReadLimits(800).share_for_task(tasks, cores)
    assert part.rate == each
    assert part.patience_s * tasks / min(tasks, cores) <= read_limits.MAX_LAG_PAUSE_S


def test_who_waits_for_lag_may_read_the_reports() -> None:
    def status(each: PlanFlow) -> set[str]:
        needed = derive_required_rights(Plan("shop", CLUSTERS, (each,)), "verify")
        return {right.operation for right in needed if (right.cluster, right.name) == ("b", STATUS_TOPIC)}

    assert status(flow()) == set()
    assert status(flow(pause_at_lag_ms=5_000)) == {"READ"}


def test_the_alignment_of_a_foreign_copy_is_read_politely(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[int | None] = []

    def seen(*_: object) -> SampledRecords:
        with borrow_connections(ConnectionSettings("a", ("127.0.0.1:1",))) as links:
            rates.append(links.pace._rate)
        return NO_SAMPLES

    monkeypatch.setattr(inferred_alignment, "sample_range", seen)
    plan = Plan("shop", CLUSTERS, (flow(),))
    sample = SampleRequest(RangeRequest(0, "a", "orders", "", 0, 0, 10))
    assert inferred_alignment.build_spark_sampler(plan, pytest.fail, ReadLimits(rate=400))([sample, sample]) == [
        NO_SAMPLES,
        NO_SAMPLES,
    ]
    assert rates == [400, 400]


def test_reading_keeps_to_its_rate_over_any_second(clock: list[float]) -> None:
    pace, took = ReadRate(1_000), list[tuple[float, int]]()
    for _ in range(100):
        pace.wait()
        size = pace.answer_bytes(4 << 20)
        took.append((clock[0], size))
        pace.record_answer(size)
    for at, _ in took:
        assert sum(size for when, size in took if at <= when < at + 1) <= 1_000
    assert clock[0] - 1_000.0 == pytest.approx(sum(size for _, size in took) / 1_000, abs=0.5)


def test_a_broker_that_asks_for_silence_gets_it(clock: list[float]) -> None:
    pace = ReadRate()
    pace.record_answer(10, throttle_ms=700)
    pace.wait()
    assert clock[0] == pytest.approx(1_000.7)


def units() -> list[RangeRequest]:
    return [
        RangeRequest(number, alias, "orders", "", partition, at, at + 10)
        for number, (alias, partition, at) in enumerate(
            (alias, partition, at) for alias in "ab" for partition in range(6) for at in range(0, 40, 10)
        )
    ]


@pytest.mark.parametrize("fetches", [1, 2, 5])
def test_no_broker_is_read_by_more_tasks_than_said(fetches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    leaders = {("orders", partition): partition % 3 for partition in range(6)}
    monkeypatch.setattr(read_limits, "_leaders", lambda *_: leaders)
    found = plan_read_tasks(
        units(), 100, ReadLimits(fetches=fetches), {each.alias: each for each in CLUSTERS}.__getitem__
    )
    for alias in "ab":
        for broker in range(3):
            reading = [some for some in found if any((u.cluster, u.partition % 3) == (alias, broker) for u in some)]
            assert 1 <= len(reading) <= fetches
            assert all(u.partition % 3 == broker and u.cluster == alias for some in reading for u in some)
    assert sorted((u for some in found for u in some), key=lambda u: u.id) == units()


def test_ranges_of_one_task_share_links_unless_they_are_read_in_turns() -> None:
    here, there = (ConnectionSettings(alias, ("127.0.0.1:1",)) for alias in "ab")
    kept = []

    def task(rows: Iterator[int]) -> Iterator[int]:
        for row in rows:
            with borrow_connections(here) as first, borrow_connections(there) as other:
                kept.append((first, other))
                with borrow_connections(here) as second:
                    assert second is not first
                    assert second.pace is first.pace
            yield row

    assert list(LimitedTask(ReadLimits(rate=5), task)(iter([1, 2]))) == [1, 2]
    assert kept[0] == kept[1]
    with borrow_connections(here) as outside:
        assert outside is not kept[0][0]


class Reports:
    """Reports that arrive; the first of `lags` at the first look, and so on; the last stays."""

    def __init__(self, clock: list[float], lags: list[int | None], flow: str = "a-to-b") -> None:
        self._clock, self._lags, self._flow, self.closed = clock, lags, flow, False
        self.heartbeats: dict[str, WorkerHeartbeat] = {}

    def read(self) -> list[PartitionStatus]:
        lag_ms = self._lags.pop(0) if len(self._lags) > 1 else self._lags[0]
        at = int(self._clock[0] * 1000)
        return [PartitionStatus(self._flow, "orders", "orders", 0, "copying", lag_ms=lag_ms, at_ms=at)]

    def close(self) -> None:
        self.closed = True


def held(clock: list[float], reports: Reports, patience_s: float = 600.0) -> tuple[float, list[str]]:
    said: list[str] = []
    hold = LagPause((PAUSE,), patience_s, follow=lambda _: reports, say=said.append)
    before = clock[0]
    hold()
    hold.close()
    assert reports.closed
    return clock[0] - before, said


@pytest.mark.parametrize("lags", [[0], [None], [5_000]])
def test_reading_does_not_wait_for_a_flow_that_keeps_up(clock: list[float], lags: list[int | None]) -> None:
    assert held(clock, Reports(clock, lags)) == (0, [])


def test_reading_waits_until_the_flow_has_caught_up_and_says_so(clock: list[float]) -> None:
    seconds, said = held(clock, Reports(clock, [8_000, 9_000, 4_000]))
    assert seconds == 2
    assert said == [
        "reading waits: records of flow a-to-b wait for 8 s (verify.pause_at_lag: 5s)",
        "reading goes on after 2 s: no flow lags any more",
    ]


def test_reading_never_waits_for_ever(clock: list[float]) -> None:
    seconds, said = held(clock, Reports(clock, [8_000]), patience_s=30)
    assert seconds == 30
    assert said[-1] == "reading goes on after 30 s: flows lag still, but a proof does not wait for ever"


def test_other_flows_and_workers_that_fell_silent_do_not_hold_it(clock: list[float]) -> None:
    assert held(clock, Reports(clock, [8_000], flow="c-to-b")) == (0, [])
    old = PartitionStatus("a-to-b", "orders", "orders", 0, "copying", lag_ms=8_000, at_ms=0)
    assert PAUSE.lagging([old], lag_pause.STALE_REPORT_MS + 1) is None
    assert PAUSE.lagging([old], lag_pause.STALE_REPORT_MS) == 8_000


def test_less_is_asked_for_while_a_broker_s_quota_leaves_no_room(clock: list[float]) -> None:
    pace = ReadRate()
    pace.record_answer(2 << 20)
    assert pace.answer_bytes(4 << 20) == 4 << 20
    pace.record_answer(0, throttle_ms=500)  # nothing is sent where it does not fit (KIP-219)
    assert pace.answer_bytes(4 << 20) == 256 << 10
    assert pace.answer_bytes(1_000) == 1_000
    clock[0] += 61
    assert pace.answer_bytes(4 << 20) == 4 << 20
    small = ReadRate()
    small.record_answer(0, throttle_ms=500)
    assert small.answer_bytes(4 << 20) == 128 << 10
