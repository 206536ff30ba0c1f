"""A partition that a person has paused: what waits at its source is counted, though nobody fetches it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.test_quiet_reports import RECORD, copied_task
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.errors import TopicMissing, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.replicator.worker.paused_log_ends import PAUSED_ENDS_S, PausedLogEnds


def paused_task() -> PartitionTask:
    task = copied_task()
    task.is_paused = True
    task.detach_copy()
    return task


def submit(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(call(*arguments))
    except Unreachable as error:
        future.set_exception(error)
    return future


def ends_of(offsets: Callable[[list[TopicPartition]], dict[TopicPartition, LogRange]]) -> PausedLogEnds:
    pool: Any = SimpleNamespace(submit=submit)
    admin: Any = SimpleNamespace(offsets=offsets)
    return PausedLogEnds(lambda alias: ConnectionSettings(alias, ("k:1",)), pool, lambda _: nullcontext(admin))


def test_what_waits_is_counted_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    task, clock, asked = paused_task(), [time.monotonic()], []

    def offsets(places: list[TopicPartition]) -> dict[TopicPartition, LogRange]:
        asked.append(places)
        return {TopicPartition("orders", 0): LogRange(0, 7 * len(asked))}

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ends = ends_of(offsets)
    ends.step([task])
    ends.step([task])
    assert asked == [[TopicPartition("orders", 0)]]
    report = task.report("w0", 1)
    assert (report.state, report.source_end, report.lag_records, report.lag_ms) == ("paused", 7, 7, 0)
    clock[0] += PAUSED_ENDS_S
    ends.step([task])
    ends.step([task])
    report = task.report("w0", 1)
    assert (report.lag_records, report.lag_ms) == (14, PAUSED_ENDS_S * 1000)


def test_only_what_a_person_paused_alone_is_asked_for() -> None:
    resumed, unknown, whole = paused_task(), PartitionTask(paused_task().key, RECORD), paused_task()
    resumed.is_paused = False
    unknown.is_paused = True  # this worker has never seen how far it was copied
    whole.record = RECORD.with_state("paused")
    ends = ends_of(lambda _: pytest.fail("asked"))
    ends.step([resumed, unknown, whole])
    ends.step([resumed, unknown, whole])
    assert unknown.report("w0", 1).lag_records is None


def test_a_source_that_does_not_answer_changes_nothing() -> None:
    def offsets(_: list[TopicPartition]) -> dict[TopicPartition, LogRange]:
        raise Unreachable("gone")

    task, ends = paused_task(), ends_of(offsets)
    ends.step([task])
    ends.step([task])
    assert task.report("w0", 1).lag_records == 0


def test_a_topic_that_was_deleted_leaves_the_others_their_lag(caplog: pytest.LogCaptureFixture) -> None:
    kept, gone = paused_task(), paused_task()
    gone.key = PartitionKey("onprem-to-cloud", "bills", "bills", 0)

    def offsets(places: list[TopicPartition]) -> dict[TopicPartition, LogRange]:
        if any(place.topic == "bills" for place in places):
            raise TopicMissing("topic bills does not exist")
        return {place: LogRange(0, 7) for place in places}

    ends = ends_of(offsets)
    ends.step([kept, gone])
    ends.step([kept, gone])
    assert (kept.report("w0", 1).lag_records, gone.report("w0", 1).lag_records) == (7, 0)
    assert [(each.topic, each.reason) for each in caplog.records] == [("bills", "topic bills does not exist")]


def test_a_partition_that_was_resumed_meanwhile_keeps_what_its_copy_sees() -> None:
    task, ends = paused_task(), ends_of(lambda _: {TopicPartition("orders", 0): LogRange(0, 7)})
    ends.step([task])
    task.is_paused = False
    ends.step([task])
    assert task.report("w0", 1).lag_records == 0
