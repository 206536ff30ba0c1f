"""Whole migrations from old releases by the `topology` command: nothing of the product is called from here.

Applications run all the time, and their own records are the judge. Soak: each takes minutes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cutover.commands import PAID, PLAIN, MovingScene, moving_scene, wait_for, worker_running
from watershed.lab.account import RunAccount
from watershed.lab.demo.demo_setup import can_be_target

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]


def look_at(scene: MovingScene) -> None:
    """What comes before anything is changed: an inventory with its report, lint with it, the plan."""
    inventory = scene.home / "inventory.json"
    report = scene.home / "report.html"
    assert scene.run("scan", "-o", inventory, "--sample", "1s", "--report", report).code == 0
    found = json.loads(inventory.read_text())["clusters"]["onprem"]
    assert scene.release.startswith(str(found["kafka"])), found["kafka"]
    assert {PLAIN, PAID} <= found["topics"].keys()
    assert found["groups"]["billing"]["members"] == 1
    assert "billing" in report.read_text()
    assert scene.run("lint", "--inventory", inventory).code == 0
    planned = scene.run("plan", "--format", "json")
    assert planned.code == 0
    [there] = [each for each in planned.read_json()["flows"] if each["id"] == "onprem-to-cloud"]
    assert (there["guarantee"], there["missing"]) == ("exactly_once: sequence", [])


def assert_way_back_refused(scene: MovingScene) -> None:
    """A file with a flow to the old cluster changes nothing, and the message says what to do."""
    scene.write_file(way_back=True)
    release = ".".join(scene.release.split(".")[:2])  # the rest cannot be told
    planned = scene.run("plan")
    assert planned.code == 1
    assert "CLU113" in planned.text
    applied = scene.run("apply")
    assert applied.code == 2
    for text in ("flow cloud-to-onprem cannot have", f"cluster onprem (Kafka {release}", "`rollback: {none: why}`"):
        assert text in applied.text
    assert scene.list_partitions("cloud-to-onprem") == []


def assert_exact(found: RunAccount, *moved: str) -> None:
    """Nothing lost, repeated or out of order, and these producers went to another cluster."""
    (group,) = found.groups
    assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
    assert [move.application for move in found.moves] == list(moved)


@pytest.mark.parametrize("release", ["0.11.0.3", "1.1.1", "2.4.1"])
def test_a_migration_loses_and_repeats_nothing(tmp_path: Path, release: str) -> None:
    with moving_scene(tmp_path, release) as scene:
        scene.start_applications()
        if not can_be_target(release):
            assert_way_back_refused(scene)
        scene.write_file(way_back=can_be_target(release))
        look_at(scene)
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", scene.home):
            wait_for("every partition is copied", scene.is_served)
            assert scene.run("verify", "-o", tmp_path / "proof").code == 0
            assert scene.run("migrate", "--approve", "auto", "--evidence", tmp_path / "evidence").code == 0
            assert set(scene.find_places().values()) == {("running", "cloud")}
            scene.wait_for_more()
        assert scene.run("journal", "--verify").code == 0
        if not can_be_target(release):
            refused = scene.run("rollback", "--approve", "auto")
            assert refused.code == 1
            assert "`none: nothing is copied to so old a cluster`): to switch back now would strand" in refused.text
            assert set(scene.find_places().values()) == {("running", "cloud")}
        assert_exact(scene.settle(), "orders", "paid")


@pytest.mark.parametrize("release", ["2.4.1", "2.8.2"])
def test_there_and_back_from_a_cluster_with_zookeeper(tmp_path: Path, release: str) -> None:
    """Taken back in front of the point of no return because somebody else still writes; then moved, and rolled back."""
    with moving_scene(tmp_path, release) as scene:
        scene.start_applications()
        scene.write_file(way_back=True, producers=("orders",))
        look_at(scene)
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", scene.home), worker_running(scene.path, "onprem", scene.home):
            wait_for("every partition is copied", scene.is_served)
            straggling = scene.run("migrate", "--approve", "auto", "--format", "json")
            assert straggling.code == 1
            result = straggling.read_json()
            assert (result["state"], result["step"]) == ("rolled_back", "standstill")
            assert PAID in result["reason"]
            assert set(scene.find_places().values()) == {("running", "onprem")}
            scene.wait_for_more("billing", "processed")

            scene.write_file(way_back=True)
            assert scene.run("apply").code == 0
            assert scene.run("migrate", "--approve", "auto").code == 0
            assert set(scene.find_places().values()) == {("running", "cloud")}
            scene.wait_for_more(count=500)
            assert scene.run("rollback", "--approve", "auto").code == 0
            assert set(scene.find_places().values()) == {("running", "onprem")}
            scene.wait_for_more()
        assert scene.run("journal", "--verify").code == 0
        found = scene.settle()
    assert_exact(found, *(move.application for move in found.moves))
    assert {move.target for move in found.moves} == {"cloud", "onprem"}
