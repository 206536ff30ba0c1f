"""A real application of Kafka Streams moves with its state, and fails over with it, by the `topology` command.

Its counts are compared with an independent count of the input. Soak: each takes minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cutover.commands import wait_for, worker_running
from tests.cutover.streams_scene import COUNTER, CountJudgement, streams_scene
from watershed.cutover.journal.hash_chain import JournalChain, find_step_outcome
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.lab import clusters
from watershed.lab.detached_process import find_by_argument, kill_process

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_an_application_moves_with_its_state_exactly_once(tmp_path: Path, protocol: str) -> None:
    with streams_scene(tmp_path, protocol) as scene:
        scene.wait_for_more()
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", tmp_path):
            wait_for("the standby is ready", scene.is_ready)
            scene.wait_for_more()
            assert scene.run("migrate", "--approve", "auto").code == 0
            assert set(scene.find_places().values()) == {("running", "cloud")}
            scene.wait_for_more()
        assert_exact(scene.settle())


def test_an_application_comes_back_with_its_state_exactly_once(tmp_path: Path) -> None:
    with streams_scene(tmp_path, "classic") as scene:
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", tmp_path), worker_running(scene.path, "onprem", tmp_path):
            wait_for("the standby is ready", scene.is_ready)
            assert scene.run("migrate", "--approve", "auto").code == 0
            scene.wait_for_more()
            assert scene.run("rollback", "--approve", "auto").code == 0
            assert set(scene.find_places().values()) == {("running", "onprem")}
            scene.wait_for_more()
        assert_exact(scene.settle("onprem"))


def assert_exact(found: CountJudgement) -> None:
    """Each record of the input was counted once: the counts of each bucket are 1, 2, 3, …"""
    assert found.records.total() > 600
    assert (found.missing, found.surplus) == (0, 0)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in found.updates.values())
    assert {each: len(numbers) for each, numbers in found.updates.items()} == dict(found.records)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_after_a_failover_nothing_is_missing_and_no_more_is_counted_twice_than_said(
    tmp_path: Path, protocol: str
) -> None:
    with streams_scene(tmp_path, protocol) as scene:
        scene.wait_for_more()
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", tmp_path):
            wait_for("the standby is ready", scene.is_ready)
            scene.wait_for_more()
            clusters.kill_lab_broker(tmp_path / "clusters", "onprem")
            program = find_by_argument(str(scene.apps / COUNTER / "state"))
            assert program is not None
            kill_process(program)
            assert "may be applied twice" in scene.run("failover", "--show-loss").text
            done = scene.run("failover", "--accept-loss", "any", "--approve", "auto", "--format", "json")
            assert done.code == 0
        assert set(scene.find_places().values()) == {("running", "cloud")}
        scene.wait_for_more()
        found = scene.settle()
        chain = JournalChain("move")
        chain.follow(JournalTopicLog(scene.settings["cloud"]).read(0))
        fenced = find_step_outcome(chain.run(done.read_json()["run"]), "cut_workers_off")
    assert fenced is not None
    beyond = fenced[0]["states"][COUNTER]["beyond"]
    print(f"counted twice at most, as said: {beyond}; surplus: {found.surplus}; records: {found.records.total()}")
    assert found.missing == 0
    assert found.surplus <= beyond
