"""Workers of v0.1.0 and of this version share the partitions of one fleet, under traffic with transactions and aborts:
partitions move both ways, either is killed, and workers are replaced one after the other, there and back."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.upgrade.brokers.two_version_fleet import Version, open_fleet
from watershed.lab.clusters import Lab
from watershed.lab.previous_version import InstalledRelease

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.slow]


@pytest.mark.parametrize("applied_by", ["older", "newer"])
def test_partitions_move_both_ways_and_either_is_killed(
    previous: InstalledRelease, kafka_pair: Lab, topic_name: str, tmp_path: Path, applied_by: Version
) -> None:
    with open_fleet(previous, kafka_pair, topic_name, tmp_path) as fleet:
        fleet.run(applied_by, "apply", str(fleet.file), "--yes")
        older = fleet.start_worker("older")
        fleet.wait_served(older.pid)
        newer = fleet.start_worker("newer")
        fleet.wait_served(older.pid, newer.pid)
        fleet.copy_for(200)
        older.kill()
        fleet.wait_served(newer.pid)
        again = fleet.start_worker("older")
        fleet.wait_served(newer.pid, again.pid)
        fleet.copy_for(200)
        newer.kill()
        fleet.wait_served(again.pid)
        for version in ("older", "newer"):  # each reads what the other reports
            told = json.loads(fleet.run(version, "status", str(fleet.file), "--format", "json", codes=(0, 1, 3)))  # type: ignore[arg-type]
            assert {each["id"] for each in told["flows"]} == {flow.id for flow in fleet.plan.flows}
        counted = fleet.count_exact()
    print(counted)
    assert min(counted.values()) > 400


def test_workers_are_replaced_one_after_the_other_there_and_back(
    previous: InstalledRelease, kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    with open_fleet(previous, kafka_pair, topic_name, tmp_path) as fleet:
        fleet.run("older", "apply", str(fleet.file), "--yes")
        serving = [fleet.start_worker("older"), fleet.start_worker("older")]
        fleet.wait_served(*(each.pid for each in serving))
        for version in ("newer", "older"):
            for number in range(2):
                serving[number].stop()
                serving[number] = fleet.start_worker(version)  # type: ignore[arg-type]
                fleet.wait_served(*(each.pid for each in serving))
                fleet.copy_for(60)
            fleet.run(version, "apply", str(fleet.file), "--yes")  # type: ignore[arg-type]  # and changes nothing
        counted = fleet.count_exact()
    print(counted)
    assert min(counted.values()) > 200


def test_a_supervised_fleet_changes_its_version_and_back(
    previous: InstalledRelease, kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    """The supervisor of the other version stands by, gets the lease, and replaces the workers."""
    with open_fleet(previous, kafka_pair, topic_name, tmp_path, placement="embedded") as fleet:
        fleet.run("older", "apply", str(fleet.file), "--yes")
        supervisor = fleet.start_supervisor("older")
        fleet.wait_served(*fleet.wait_children(supervisor, 2))
        for version in ("newer", "older"):
            standing_by = fleet.start_supervisor(version)  # type: ignore[arg-type]
            fleet.copy_for(60)
            supervisor.process.send_signal(signal.SIGUSR1)
            supervisor, ended = standing_by, supervisor
            fleet.wait_served(*fleet.wait_children(supervisor, 2))
            assert ended.process.wait(60) == 0, ended.log.read_text()[-2000:]
            fleet.copy_for(60)
        counted = fleet.count_exact()
    print(counted)
    assert min(counted.values()) > 200
