"""What counts as a fleet that is as it should be, from its records and the answers of its groups."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import (
    FleetRecord,
    SupervisorRecord,
    build_fleet_group_id,
    build_lease_group_id,
    write_fleet,
)
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.worker import fleet_orders
from watershed.replicator.worker.fleet_status import FleetRow, build_fleet_row, describe_fleet_row
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

FLEET = FleetRecord("shop", "b", "running", "sha256:0", workers=1)
SUPERVISOR = SupervisorRecord("shop", "b", 1, "us", ready=True)


class Groups:
    """Answers for the fleet's group and for its lease. workers: None while the group rebalances."""

    def __init__(self, workers: list[str] | None, holder: str = "us") -> None:
        self._given = {
            build_fleet_group_id("shop"): None if workers is None else {f"watershed-{each}": [] for each in workers},
            build_lease_group_id("shop", "b"): {f"watershed-supervisor-{holder}": [TopicPartition(FLOWS_TOPIC, 0)]}
            if holder
            else {},
        }

    def group_assignment(self, group_id: str) -> Any:
        return self._given[group_id]


def row(fleet: FleetRecord, supervisor: SupervisorRecord | None, groups: Groups) -> FleetRow:
    return build_fleet_row("shop", "b", fleet, supervisor, groups)  # type: ignore[arg-type]


def test_a_fleet_is_at_its_size_only_while_its_group_is_settled() -> None:
    assert row(FLEET, SUPERVISOR, Groups(["w"])).is_at_size
    assert not row(FLEET, SUPERVISOR, Groups(["w", "x"])).is_at_size
    stopped = replace(FLEET, state="stopped")
    assert row(stopped, SUPERVISOR, Groups([])).is_at_size
    leaving = row(stopped, SUPERVISOR, Groups(None))
    assert not leaving.is_at_size
    assert "sharing its partitions anew" in describe_fleet_row(leaving)


@pytest.mark.parametrize("supervisor", [SUPERVISOR, None])
def test_a_restart_that_nobody_has_begun_is_not_done(supervisor: SupervisorRecord | None) -> None:
    ordered = replace(FLEET, restarts=1)
    assert not row(ordered, supervisor, Groups(["w"], holder="")).is_at_size
    assert row(ordered, replace(SUPERVISOR, restarted=1), Groups(["w"], holder="")).is_at_size
    # nobody of us would begin it
    assert row(replace(ordered, placement="external"), supervisor, Groups(["w"], holder="")).is_at_size
    assert row(replace(ordered, state="stopped"), supervisor, Groups([], holder="")).is_at_size


class Topic:
    """The fleet's record. others: what somebody else writes right after each of our records."""

    def __init__(self, *others: FleetRecord) -> None:
        self.record, self.others, self.written = FLEET, list(others), 0

    def write(self, _writer: Any, record: FleetRecord) -> int:
        self.record = self.others.pop(0) if self.others else record
        self.written += 1
        return 0


def order_into(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> tuple[FleetRecord, FleetRecord]:
    monkeypatch.setattr(fleet_orders, "read_fleet", lambda *_: topic.record)
    monkeypatch.setattr(fleet_orders, "write_fleet", topic.write)
    monkeypatch.setattr(fleet_orders, "ControlWriter", lambda *_args, **_more: nullcontext())
    return fleet_orders.order_fleet(ConnectionSettings("b", ("b:1",)), "shop", "scale", 4)


def test_an_order_that_somebody_else_has_written_over_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(FLEET, restarts=1)
    topic = Topic(other)
    assert order_into(topic, monkeypatch) == (FLEET, replace(other, workers=4))
    assert topic.record == replace(other, workers=4)
    assert topic.written == 2
    with pytest.raises(fleet_orders.FleetOrderRefused, match="give the order again"):
        order_into(Topic(*(replace(FLEET, restarts=each) for each in range(1, 9))), monkeypatch)


@pytest.mark.parametrize("placement", ["embedded", "external"])
def test_whoever_orders_or_looks_may_see_both_groups(placement: Any) -> None:
    """Without DESCRIBE brokers answer as if nobody were there, and a second supervisor would be started."""
    flow = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "t"),)), placement=placement)
    plan = seal_plan(Plan("shop", (PlanCluster("a", ("a:1",)), PlanCluster("b", ("b:1",))), (flow,)))
    groups = {build_fleet_group_id("shop"), build_lease_group_id("shop", "b")}
    for role in ("apply", "observe"):
        needed = derive_required_rights(plan, role, "b")
        assert {r.name for r in needed if r.resource == "GROUP" and r.operation in ("DESCRIBE", "READ")} >= groups
    [lease] = [r for r in derive_required_rights(plan, "worker", "b") if r.name == build_lease_group_id("shop", "b")]
    assert (lease.operation, lease.optional) == ("READ", placement == "external")


def test_a_record_that_nobody_could_follow_is_not_written() -> None:
    with pytest.raises(ClusterError, match="a fleet has from 1 to 256"):
        write_fleet(None, replace(FLEET, workers=257))  # type: ignore[arg-type]
