"""What a worker does with a partition whose copy ended in trouble."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.build import batch_of, data
from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.replicator.worker.worker import Worker
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
KEY = PartitionKey("a-to-b", "orders", "orders", 3)


def retired(trouble: Halt | Reinspect, state: Any, *, wanted: bool) -> tuple[PartitionTask, list[str]]:
    """The task afterwards, and the flows whose limits are asked again."""
    asked: list[str] = []
    task, _removed, worker = retiring(trouble, state, wanted=wanted)
    worker._discovery = SimpleNamespace(ask_limits=asked.append)
    worker._retire([task])
    return task, asked


def retiring(
    trouble: Halt | Reinspect, state: Any = "running", *, wanted: bool = True
) -> tuple[PartitionTask, list[Any], Any]:
    """A task whose copy ended in trouble, the active copies that its worker takes off, and the worker."""
    removed: list[Any] = []
    worker: Any = object.__new__(Worker)
    worker._registry = SimpleNamespace(remove=removed.append)
    came = SimpleNamespace(
        trouble=trouble, is_idle=True, source=SourceCursor(5, end=9), progress=TargetProgress(4, 5),
        request_stop=lambda: None,
    )  # fmt: skip
    active: Any = SimpleNamespace(copy=came, source_seen_at=0.0)
    record = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7, state=state)
    task = PartitionTask(KEY, record, wanted=wanted, active=active)
    worker._tasks = {KEY: task}
    return task, removed, worker


@pytest.mark.parametrize("state", ["running", "paused"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_loud_end_is_always_told(caplog, state, wanted):
    with caplog.at_level(logging.ERROR, "watershed.worker"):
        task, asked = retired(Halt("append_time", "stamped at 7"), state, wanted=wanted)
    assert [(each.message, each.seen) for each in caplog.records] == [("append_time", "stamped at 7")]
    assert task.active is None
    assert (task.stopped is not None) == wanted, "also a paused flow shows it; another worker finds it again"
    assert asked == ["a-to-b"]


def test_what_is_only_looked_at_again_is_not_told(caplog):
    task, asked = retired(Reinspect("paused"), "paused", wanted=True)
    assert (task.stopped, task.waiting_for, asked, caplog.records) == (None, "", [], [])


def test_nothing_is_retired_before_it_is_known_what_stands_at_the_target() -> None:
    open_ = Halt("append_time", "stamped at 7", target=OffsetSpan(7, 8), sent=batch_of(data(5)))
    known: list[Halt | None] = [Halt("target_foreign_write", "forged at 7"), None]
    task, removed, worker = retiring(open_)
    worker._ambiguous_answers = SimpleNamespace(judge=lambda _key, _told: known.pop())
    worker._retire([task])
    assert (removed, task.stopped) == ([], None)
    worker._retire([task])
    assert (len(removed), task.stopped) == (1, Halt("target_foreign_write", "forged at 7"))
