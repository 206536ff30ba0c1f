"""What counts as a fleet that is as it should be, from its records and the answers of its groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from clusters.control_topics import FLOWS_TOPIC
from clusters.errors import ClusterError
from clusters.fleet import FleetRecord, SupervisorRecord, build_fleet_group_id, build_lease_group_id, write_fleet
from replicator.worker.fleet_status import FleetRow, build_fleet_row, describe_fleet_row

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


def test_a_record_that_nobody_could_follow_is_not_written() -> None:
    with pytest.raises(ClusterError, match="a fleet has from 1 to 256"):
        write_fleet(None, replace(FLEET, workers=257))  # type: ignore[arg-type]
