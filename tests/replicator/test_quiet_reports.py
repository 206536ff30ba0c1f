"""Which partitions a worker looks at and reports while nothing happens to them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.test_fetcher_and_sender import active_copy_of
from watershed.clusters.errors import Unreachable
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.latency_buckets import find_latency_bucket
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.copy.flow_latency import FlowLatencies
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.transport.active_copy import SessionClock
from watershed.replicator.worker.partition_task import UNCHANGED_S, PartitionTask
from watershed.replicator.worker.worker import Worker
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import TopicSelection

RECORD = FlowRecord(PlanFlow("onprem-to-cloud", "onprem", "cloud", TopicSelection(())), "sha256:0", "shop")


def copied_task(partition: int = 0) -> PartitionTask:
    """A partition at the end of its source, reported twice: the first report tells a rate since it was taken over."""
    key = PartitionKey("onprem-to-cloud", "orders", "orders", partition)
    task, active = PartitionTask(key, RECORD), active_copy_of(partition=partition)
    active.copy.source.end = active.copy.source.high_watermark = 0
    active.copy.source.seen_at = time.monotonic()
    task.attach_copy(active)
    task.published = task.report("w0", 1)
    return task


def test_a_partition_is_quiet_until_something_happens_to_it() -> None:
    task = copied_task()
    now = time.monotonic()
    assert task.is_quiet(now)
    assert task.active is not None
    task.active.copy.source.end = 3
    assert not task.is_quiet(now)
    task.report("w0", 1)
    assert not task.is_quiet(now)  # it lags
    task.active.copy.progress.copied_through = task.active.copy.progress.acked = 3
    task.active.copy.progress.copied_bytes = 70
    assert not task.is_quiet(now)
    assert task.report("w0", 1).rate_bytes > 0
    assert not task.is_quiet(now)  # the rate that was told is over
    task.report("w0", 1)
    assert task.is_quiet(now)
    task.detach_copy()
    assert not task.is_quiet(now)
    task.attach_copy(active_copy_of())
    assert not task.is_quiet(now)


def test_quiet_partitions_are_reported_again_and_not_all_at_once() -> None:
    tasks = [copied_task(partition) for partition in range(200)]
    now = time.monotonic()
    due = [next(s for s in range(1_000) if not task.is_quiet(now + s)) for task in tasks]
    assert min(due) >= UNCHANGED_S - 1
    assert max(due) <= 2 * UNCHANGED_S + 1
    assert max(due.count(moment) for moment in set(due)) < len(tasks) / 8


def test_a_rate_is_of_the_time_in_which_the_bytes_came(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("watershed.replicator.worker.partition_task.time.monotonic", lambda: clock[0])
    task = copied_task()
    assert task.active is not None
    for _ in range(3):
        clock[0] += 1.0
        assert task.is_quiet(clock[0])
    clock[0] += 1.0
    task.active.copy.progress.copied_bytes = task.active.copy.progress.copied_through = 500
    assert not task.is_quiet(clock[0])
    assert task.report("w0", 1).rate_bytes == 500.0


def test_a_worker_writes_nothing_for_quiet_partitions_and_tells_metrics_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[PartitionStatus] = []
    done: list[Any] = []
    beats: list[WorkerHeartbeat] = []

    def write(_writer: Any, report: PartitionStatus, on_done: Any) -> None:
        written.append(report)
        done.append(on_done)

    monkeypatch.setattr("watershed.replicator.worker.worker.write_partition_status", write)
    monkeypatch.setattr(
        "watershed.replicator.worker.worker.write_heartbeat", lambda _writer, beat, on_done: beats.append(beat)
    )
    worker: Any = object.__new__(Worker)
    tasks = [copied_task(partition) for partition in range(3)]
    worker._tasks = {task.key: task for task in tasks}
    worker._registry = SimpleNamespace(sweep=lambda: None, latencies=FlowLatencies(), counters=dict)
    worker._ledger = SimpleNamespace(forget_old=lambda: None)
    worker._writer, worker.worker_id, worker._seen = None, "w0", {}
    worker._transforms = None
    worker.topology, worker._began_ms, worker._heartbeats = "orders-move", 1_000, 0
    worker._membership = type("Membership", (), {"slots": {7, 3}})
    worker._publish()
    assert written == []
    assert tasks[1].active is not None
    tasks[1].active.copy.source.end = 9
    worker._registry.latencies.of("onprem-to-cloud").add(0.002, 5)
    worker._publish()
    assert [(report.partition, report.source_end) for report in written] == [(1, 9)]
    assert [(report.partition, report.source_end) for report in worker._reports] == [(0, 0), (1, 9), (2, 0)]
    assert [(beat.worker, beat.slots, sorted(beat.seen)) for beat in beats] == [
        ("w0", (3, 7), []),
        ("w0", (3, 7), ["onprem-to-cloud"]),  # as it was at the heartbeat before
    ]
    assert [beat.latencies for beat in beats] == [{}, {"onprem-to-cloud": {find_latency_bucket(0.002): 5}}]
    assert [beat.totals for beat in beats] == [{}, {"onprem-to-cloud": FlowTotals(5, 0.01, {5: 5})}]
    assert {(beat.topology, beat.began_ms) for beat in beats} == {("orders-move", 1_000)}
    tasks[1].active.copy.progress.copied_through = 9
    worker._publish()
    worker._publish()
    assert len(written) == 2
    done[-1](Unreachable("the broker is gone", alias="cloud"), -1)
    worker._publish()
    assert written[2].source_position == 9, "a report that was lost is written again"


def test_a_flow_was_seen_when_the_last_of_its_sources_was() -> None:
    worker: Any = object.__new__(Worker)
    tasks = [copied_task(partition) for partition in range(3)]
    now = time.monotonic()
    for task, seen in zip(tasks, (now, now - 5, now), strict=True):
        assert task.active is not None
        task.active.copy.source.seen_at = seen
    worker._tasks = {task.key: task for task in tasks}
    (seen_ms,) = worker._find_seen().values()
    assert seen_ms == pytest.approx((time.time() - 5) * 1000, abs=500)
    assert tasks[1].active is not None
    tasks[1].active.copy.source.seen_at = 0.0  # not yet
    assert worker._find_seen() == {}


def test_a_worker_goes_only_through_those_that_are_not_simply_copied() -> None:
    worker: Any = object.__new__(Worker)
    copied, troubled, given_up, waiting = (copied_task(partition) for partition in range(4))
    assert troubled.active is not None
    troubled.active.copy.halt("changed")
    given_up.wanted = False
    waiting.detach_copy()
    worker._tasks = {task.key: task for task in (copied, troubled, given_up, waiting)}
    assert worker._list_busy() == [troubled, given_up, waiting]


def test_what_a_session_says_nothing_of_was_seen_when_it_last_answered() -> None:
    task = copied_task()
    active = task.active
    assert active is not None
    active.copy.source.seen_at, active.clock = 5.0, SessionClock(7.0)
    assert active.source_seen_at == 7.0
    active.clock.at = 9.0
    active.leave_session()
    assert (active.source_seen_at, active.clock) == (9.0, None)
