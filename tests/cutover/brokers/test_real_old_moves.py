"""Whole migrations from old releases by the `topology` command: nothing of the product is called from here.

Applications run all the time, and their own records are the judge. Soak: each takes minutes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.demo.demo_setup import has_way_back
from tests.cutover.commands import PAID, PARTITIONS, PLAIN, MovingScene, moving_scene, wait_for, worker_running

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
    there = planned.read_json()["flows"][0]
    assert (there["guarantee"], there["missing"]) == ("exactly_once: sequence", [])


def test_a_migration_loses_and_repeats_nothing(tmp_path: Path, release: str = "2.4.1") -> None:
    with moving_scene(tmp_path, release) as scene:
        scene.start_applications()
        scene.write_file(way_back=has_way_back(release))
        look_at(scene)
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", scene.home):
            wait_for("every partition is copied", scene.is_served)
            assert scene.run("verify", "-o", tmp_path / "proof").code == 0
            moved = scene.run("migrate", "--approve", "auto", "--evidence", tmp_path / "evidence")
            assert moved.code == 0
            assert set(scene.find_places().values()) == {("running", "cloud")}
            scene.wait_for_more()
        assert scene.run("journal", "--verify").code == 0
        found = scene.settle()
    (group,) = found.groups
    assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
    assert {move.application for move in found.moves} == {"orders", "paid"}
