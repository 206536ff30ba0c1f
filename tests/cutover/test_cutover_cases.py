"""Cases of the failure catalogue (`docs/cutover-cases.md`) that no other file is about: races, clocks, clusters and
disks that fail at the worst moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import assert_back, assert_moved
from tests.cutover.spoils import stranger, upon
from tests.cutover.test_strategies import STRATEGIES, run
from tests.cutover.world import GROUP, PRODUCER, World, a_migration
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, ReadGroup, ReadLogs, StopApplication
from watershed.cutover.errors import NothingToResume
from watershed.cutover.evidence.proof_summary import read_proof_summary
from watershed.cutover.observations import ActionFailed, Observation

PLACE = TopicPartition("orders", 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_written_between_the_lag_gate_and_the_fence_is_not_lost(strategy: Any) -> None:
    """C12: the flow falls behind after the gate saw no lag; the last records lie behind every earlier look."""
    world = World()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, StopApplication) and action.role == "producer":
            world.copying = False
            for _ in range(3):
                world.write("source", PLACE)
        if isinstance(action, ReadLogs) and any(line.startswith("drain: begin") for line in world.said):
            world.copying = True
        return None

    world.hook = hook
    assert_moved(world, run(world, strategy))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_is_alive_on_one_side_at_most(strategy: Any) -> None:
    """C21: whenever anybody looks, members are at the source or at the target."""
    world = World()
    both: list[str] = []

    def hook(action: Action) -> Observation | None:
        if world._members("source", GROUP) and world._members("target", GROUP):
            both.append(type(action).__name__)
        return None

    world.hook = hook
    assert_moved(world, run(world, strategy))
    assert both == []


def test_a_member_that_stays_at_the_source_keeps_everything_there() -> None:
    """C21: the source's group must be empty before it is let go; one member that nobody told to stop is enough."""
    world = World()
    upon(ReadGroup, stranger("source"), step="stop_consumers")(world)
    result = run(world, "consumers_first")
    assert (result.step, result.state) == ("stop_consumers", "rolled_back")
    assert "with 1 member" in result.reason
    world.strangers["source"] = 0
    assert_back(world, result)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_target_goes_down_right_after_the_switch(strategy: Any) -> None:
    """C26: nothing is switched back blindly; the run stays where it is, names the cluster, and goes on."""
    world, log = World(), FakeLog()

    def hook(action: Action) -> Observation | None:
        switched = any(line.startswith("canary: begin") for line in world.said)
        if switched and getattr(action, "side", "") == "target":
            return ActionFailed(int(world.now * 1000), "cloud does not answer")
        return None

    world.hook = hook
    result = run(world, strategy, log)
    assert (result.state, result.step) == ("stopped", "canary")
    assert "cloud does not answer" in result.reason
    assert "`topology rollback`" in result.reason
    assert world.apps[PRODUCER].side == "target"
    world.hook = lambda _action: None
    assert_moved(world, run(world, strategy, log, "second", resume=True))


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0], ids=["back", "forward"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_wall_clock_jumps_in_every_wait(strategy: Any, jump: float) -> None:
    """C31: bounds and holds count a clock that only grows; the wall clock is for windows and for people."""
    world, log = World(), FakeLog()
    before = world.now

    def hook(action: Action) -> Observation | None:
        if isinstance(action, ReadLogs | ReadGroup):
            world.wall += jump
        return None

    world.hook = hook
    assert_moved(world, run(world, strategy, log))
    assert world.now - before < 120


def test_a_proof_that_could_not_write_its_report_is_no_proof(tmp_path: Path) -> None:
    """C32: a full disk under the report: the verdict is `error`, and the migration ends before anything was touched."""
    torn = tmp_path / "summary.json"
    torn.write_text('{"verdict": "proven", "unpro')
    for path in (torn, tmp_path / "missing.json"):
        seen = read_proof_summary(path)
        assert (seen.verdict, seen.unproven) == ("error", -1)
        world = World()
        world.verdict = seen
        result = a_migration(world, FakeLog()).run()
        assert (result.state, result.step) == ("refused", "history_proof")
        assert "no readable summary" in result.reason


def test_whoever_remembers_less_than_the_journal_does_nothing_twice() -> None:
    """C08: an orchestrator whose database was restored asks for steps that are done; the journal knows."""
    world, log = World(), FakeLog()
    a_migration(world, log, run_id="r1").run(until_step="start_consumers")
    deeds: list[str] = []
    world.hook = lambda action: deeds.append(type(action).__name__)  # type: ignore[func-returns-value]
    for name in ("preflight", "stop_consumers", "commit_offsets", "start_consumers"):
        assert a_migration(world, log, f"restored {name}", run_id="r1").run_step(name).state == "paused"
    assert deeds == []
    with pytest.raises(NothingToResume, match="has to wait"):
        a_migration(world, log, "restored", run_id="r1").run_step("drain")


def test_success_without_proof_is_not_believed() -> None:
    """C27: whoever marks a step done elsewhere has not written its outcome; the next step refuses."""
    world, log = World(), FakeLog()
    a_migration(world, log, run_id="r1").run(until_step="lag_gate")
    with pytest.raises(NothingToResume, match="history_proof before it is not done"):
        a_migration(world, log, "next", run_id="r1").run_step("approval")
    assert world.apps[GROUP].side == "source"
