"""Starts and ends in control records, and the rights that they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import PartitionEnd, write_partition_ends
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.topology.copy_bounds import CopyBound, build_offsets_bound
from watershed.topology.plan import Plan, PlanCluster, PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
INSTANT = CopyBound(timestamp_ms=5)


def test_partitions_without_an_offset_begin_at_the_first_and_a_migration_counts_before_the_file() -> None:
    offsets = build_offsets_bound({"orders": {1: 7}})
    record = replace(RECORD, flow=replace(FLOW, start=offsets))
    assert [record.start_of("orders", number) for number in range(3)] == ["earliest", offsets, "earliest"]
    assert replace(record, begins={"orders": {1: 3}}).start_of("orders", 1) == 3
    assert replace(RECORD, flow=replace(FLOW, start=INSTANT)).start_of("orders", 0) == INSTANT


def test_an_end_is_of_a_flow_that_has_one() -> None:
    end = PartitionEnd("a-to-b", "orders", 0, 0, 5)
    assert not end.is_of(RECORD)
    assert end.is_of(replace(RECORD, flow=replace(FLOW, end="latest")))
    assert not end.is_of(replace(RECORD, flow=replace(FLOW, end="latest"), end_revision=1))


@pytest.mark.parametrize("start", ["earliest", INSTANT, CopyBound(group="billing")])
def test_workers_need_a_right_to_know_where_a_group_stands(start: Any) -> None:
    clusters = (PlanCluster("a", ("a:9092",)), PlanCluster("b", ("b:9092",)))
    plan = Plan("shop", clusters, (replace(FLOW, start=start),))
    groups = {
        (each.name, each.operation)
        for each in derive_required_rights(plan, "worker", "a")
        if each.resource == "GROUP"
    }  # fmt: skip
    assert groups == ({("billing", "DESCRIBE")} if start == CopyBound(group="billing") else set())


def test_an_end_that_was_not_acknowledged_is_an_error() -> None:
    class Writer:
        def __init__(self) -> None:
            self.done: list[Any] = []

        def put_nowait(self, _topic: str, _key: str, _value: object, on_done: Any) -> None:
            self.done.append(on_done)

        def flush(self) -> None:
            self.done[0](None, 1)
            self.done[1](Unreachable("cluster b does not answer", alias="b"), -1)

    writer: Any = Writer()
    with pytest.raises(ClusterError, match="cluster b does not answer"):
        write_partition_ends(writer, [PartitionEnd("a-to-b", "orders", number, 0, 5) for number in range(2)])
