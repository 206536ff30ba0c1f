"""When a log counts as one that stood still: by inspections that may be far apart, of a worker that was not away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery import log_inspection
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.replicator.worker import inspection_pool
from watershed.replicator.worker import worker as worker_module
from watershed.replicator.worker.inspection_pool import InspectionPool
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.replicator.worker.worker import Worker
from watershed.topology.delivery_guarantee import LOG_SETTLE_S
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("onprem-to-cloud", "onprem", "cloud", TopicSelection(include=(Selector("literal", "orders"),)))
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)
ROUND_S = 13.0  # an inspection of very many partitions


def test_stillness() -> None:
    still = SettledLogEnds()
    assert not still.settled(KEY, "target", 5, 0.0, 0.0)
    for now in (10, 20, 30, LOG_SETTLE_S - 1):
        assert not still.settled(KEY, "target", 5, now, now)
    assert still.settled(KEY, "target", 5, LOG_SETTLE_S, LOG_SETTLE_S)
    assert not still.settled(KEY, "source", 9, LOG_SETTLE_S, LOG_SETTLE_S)
    assert not still.settled(KEY, "target", 6, LOG_SETTLE_S + 1, LOG_SETTLE_S + 1)
    assert not still.settled(KEY, "target", 6, LOG_SETTLE_S + 2, LOG_SETTLE_S + 2)
    still.forget(KEY)
    assert not still.settled(KEY, "target", 6, 3 * LOG_SETTLE_S, 3 * LOG_SETTLE_S)


def test_stillness_of_long_ago_does_not_count() -> None:
    """The partition was another worker's between the two looks; its last request may be under way."""
    still = SettledLogEnds()
    assert not still.settled(KEY, "target", 5, 0.0, 0.0)
    assert not still.settled(KEY, "target", 5, 600.0, 600.0)
    for now in (610.0, 620.0, 630.0):
        assert not still.settled(KEY, "target", 5, now, now)
    assert still.settled(KEY, "target", 5, 600.0 + LOG_SETTLE_S, 600.0 + LOG_SETTLE_S)


def test_inspections_may_take_long_while_the_worker_s_loop_goes_on() -> None:
    still, decided = SettledLogEnds(), []
    for second in range(61):
        still.note_round(float(second))
        if second % ROUND_S == 0:
            decided.append(still.settled(KEY, "target", 5, float(second), second - 1.0))
    assert decided == [False, False, False, True, True]


def test_an_end_that_was_asked_for_long_ago_says_nothing_of_now() -> None:
    """The first round judges the partition at its beginning, the second one at its end."""
    still = SettledLogEnds()
    for second in range(41):
        still.note_round(float(second))
    assert not still.settled(KEY, "target", 5, 1.0, 0.0)
    assert not still.settled(KEY, "target", 5, 40.0, 13.0), "12 s lie between the two questions"
    assert still.settled(KEY, "target", 5, 41.0, 36.0)


@pytest.mark.parametrize("loop_wakes_first", [True, False])
def test_a_frozen_worker_begins_again(loop_wakes_first: bool) -> None:
    """Another one may have had the partition, and its last request may be under way."""
    still, woken = SettledLogEnds(), 600.0
    still.note_round(0.0)
    assert not still.settled(KEY, "target", 5, 0.0, 0.0)
    if loop_wakes_first:
        still.note_round(woken)
    assert not still.settled(KEY, "target", 5, woken, woken)
    for second in range(int(LOG_SETTLE_S) + 1):
        still.note_round(woken + second)
    assert not still.settled(KEY, "target", 5, woken + LOG_SETTLE_S - 1, woken + LOG_SETTLE_S - 1)
    assert still.settled(KEY, "target", 5, woken + LOG_SETTLE_S, woken + LOG_SETTLE_S)


def test_a_partition_that_comes_back_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken away and given back while it was inspected, so that its task was not dropped."""
    record = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7)
    assignment = SimpleNamespace(record=record, serving=3, held=None, hint="", gap_method=None, is_paused=False)
    monkeypatch.setattr(worker_module, "assign_partitions", lambda *_: {KEY: assignment})
    monkeypatch.setattr(worker_module, "compute_quota_shares", lambda *_: {})
    worker: Any = object.__new__(Worker)
    still = SettledLogEnds()
    worker._inspections = SimpleNamespace(stillness=still)
    worker._tasks, worker._assigned_from = {KEY: PartitionTask(KEY, record)}, None
    worker._desired, worker.topology = SimpleNamespace(placements={}), "shop"
    worker.target = SimpleNamespace(alias="cloud")
    worker._discovery = SimpleNamespace(version=1, topics={})
    worker._membership = SimpleNamespace(slots={3})
    worker._registry = SimpleNamespace(rates=SimpleNamespace(share=lambda _: None))
    for second in range(81):
        still.note_round(float(second))
    assert not still.settled(KEY, "target", 5, 0.0, 0.0)
    worker._assign_tasks({})
    assert still.settled(KEY, "target", 5, 40.0, 40.0), "it was ours all the time"
    worker._tasks[KEY].wanted, worker._assigned_from = False, None  # as `_give_up` does
    worker._assign_tasks({})
    assert worker._tasks[KEY].wanted
    assert not still.settled(KEY, "target", 5, 41.0, 41.0)


def test_slow_rounds_over_two_logs_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target does not tell what it holds of producers, and each round takes 13 s of the worker's time."""
    clock = SimpleNamespace(now=1000.0)
    time = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr(log_inspection, "time", time)
    monkeypatch.setattr(inspection_pool, "time", time)
    fakes = {alias: FakeCluster(alias) for alias in ("onprem", "cloud")}
    monkeypatch.setattr(log_inspection, "open_connection", lambda settings, _address=None: fakes[settings.alias].wire())
    for fake in fakes.values():
        fake.create_topic("orders", 1)
        fake.produce("orders", 0, [b"v"] * 3)
    fakes["cloud"].describes_producers = False
    nothing: Any = None
    inspections = InspectionPool(*[nothing] * 9)
    inspections.start([])
    decided = []
    for _ in range(4):
        found = log_inspection.inspect_logs(
            [KEY], fakes["onprem"].settings, fakes["cloud"].settings, 7, 1, inspections.stillness
        )[KEY]
        assert isinstance(found, tuple), found
        decided.append((found[0].settled, found[0].source_settled))
        for _ in range(int(ROUND_S)):
            clock.now += 1.0
            monkeypatch.setattr("watershed.replicator.worker.inspection_pool.time", time)
            inspections.start([])
    assert decided == [(False, False)] * 3 + [(True, True)]
