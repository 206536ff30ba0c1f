"""Which partitions a worker looks at and reports while nothing happens to them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from clusters.flow_records import FlowRecord
from clusters.partition_status_records import PartitionStatus
from replicator.partition_key import PartitionKey
from replicator.transport.active_copy import SessionClock
from replicator.worker.partition_task import UNCHANGED_S, PartitionTask
from replicator.worker.worker import Worker
from tests.replicator.test_fetcher_and_sender import active_copy_of
from topology.plan import PlanFlow
from topology.selectors import TopicSelection

RECORD = FlowRecord(PlanFlow("onprem-to-cloud", "onprem", "cloud", TopicSelection(())), "sha256:0", "shop")


def copied_task(partition: int = 0) -> PartitionTask:
    """A partition at the end of its source, reported twice: the first report tells a rate since it was taken over."""
    key = PartitionKey("onprem-to-cloud", "orders", "orders", partition)
    task, active = PartitionTask(key, RECORD), active_copy_of(partition=partition)
    active.copy.source.end = active.copy.source.high_watermark = 0
    active.copy.source.seen_at = time.monotonic()
    task.attach_copy(active)
    task.report("w0", 1)
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


def test_quiet_partitions_are_reported_before_they_count_as_silent_and_not_all_at_once() -> None:
    tasks = [copied_task(partition) for partition in range(200)]
    now = time.monotonic()
    due = [next(s / 10 for s in range(100) if not task.is_quiet(now + s / 10)) for task in tasks]
    assert min(due) >= UNCHANGED_S - 0.5
    assert max(due) <= UNCHANGED_S + 1.5
    assert max(due.count(moment) for moment in set(due)) < len(tasks) / 2


def test_a_rate_is_of_the_time_in_which_the_bytes_came(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("replicator.worker.partition_task.time.monotonic", lambda: clock[0])
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
    monkeypatch.setattr(
        "replicator.worker.worker.write_partition_status", lambda _writer, report, on_done: written.append(report)
    )
    worker: Any = object.__new__(Worker)
    tasks = [copied_task(partition) for partition in range(3)]
    worker._tasks = {task.key: task for task in tasks}
    worker._registry = type("Registry", (), {"sweep": staticmethod(lambda: None)})
    worker._writer, worker.worker_id = None, "w0"
    for task in tasks:
        task.published = task.latest
    worker._publish()
    assert written == []
    assert tasks[1].active is not None
    tasks[1].active.copy.source.end = 9
    worker._publish()
    assert [(report.partition, report.source_end) for report in written] == [(1, 9)]
    assert [(report.partition, report.source_end) for report in worker._reports] == [(0, 0), (1, 9), (2, 0)]


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
