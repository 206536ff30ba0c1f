"""An inspection that fails in a way nobody thought of ends no worker: its partitions are looked at one by one, then
halted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.worker import partition_task as seat_module
from watershed.replicator.worker.inspection_pool import InspectionPool
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))


def test_a_look_that_fails_is_taken_apart_and_is_loud_in_the_end():
    asked = []

    def connect(alias: str) -> ConnectionSettings:
        asked.append(alias)
        raise RuntimeError("nobody thought of it")

    record = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7)
    tasks = [PartitionTask(PartitionKey("a-to-b", "orders", "orders", number), record) for number in range(3)]
    with ThreadPoolExecutor(2) as pool:
        inspections = InspectionPool(
            ConnectionSettings("b", ("127.0.0.1:1",)),
            connect,
            pool,
            *cast("tuple[Any, ...]", (None, "w", 1, None, None, None)),
        )
        reasons = []
        for round_ in range(4):
            for task in tasks:
                task.not_before = 0.0
            inspections.start(tasks)
            found: list[tuple[PartitionTask, Any]] = []
            while len(found) < len(tasks):
                found += inspections.finished()
            assert len(asked) == 1 + 3 * round_, "together at first, then each by itself"
            for task, trouble in found:
                assert isinstance(trouble, Reinspect)
                reasons.append((trouble.reason, trouble.halts_as))
                task.record_trouble(trouble, round_ * seat_module.SAME_FOR_S)
    told = "looking at the logs failed (RuntimeError: nobody thought of it)"
    assert reasons == [(told, None)] * 3 + [(told, "failed")] * 9
    assert {task.report("w", 1).state for task in tasks} == {"failed"}
    assert all(task.is_ready_to_inspect(1e9) for task in tasks), "it may heal by itself"
