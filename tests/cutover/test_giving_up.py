"""A run that cannot be finished is given up: taken back exactly, or released by force with a record of what is left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_back, assert_moved
from tests.cutover.world import GROUP, POLICY, PRODUCER, World, a_migration, a_plan, target_of
from watershed.cutover.actions import Action, StartApplication
from watershed.cutover.errors import Locked, NothingToResume, PlanChanged
from watershed.cutover.journal.hash_chain import RUN_STEP
from watershed.cutover.observations import ActionFailed, Observation
from watershed.cutover.run_abandonment import abandon_run
from watershed.cutover.step_runner import RunResult
from watershed.replicator.ledger.offset_map import OffsetMap


def abandoned(world: World, log: FakeLog, *, force: bool = False, **changes: Any) -> RunResult:
    opened = partial(a_migration, world, log, "giver", resume=True, abandon=True, **changes)
    return abandon_run(opened, "given up", lambda event: world.said.append(f"{event.step}: {event.text}"), force=force)


def left_by_a_dead_run(step: str) -> tuple[World, FakeLog]:
    """A world in which a run died right after it had begun that step."""
    world, log = World(), FakeLog()

    def die(value: dict[str, Any]) -> None:
        if value["step"] == step:
            log.on_append = None
            raise Crash

    log.on_append = die
    with pytest.raises(Crash):
        a_migration(world, log).run()
    return world, log


def _start_fails(action: Action) -> Observation | None:
    return ActionFailed(0, "no route to billing", transient=False) if isinstance(action, StartApplication) else None


@pytest.mark.parametrize(
    "step",
    ["stop_consumers", "commit_offsets", "landing_test", "soak", "fence_producers", "drain", "point_of_no_return"],
)
def test_what_a_dead_run_did_is_taken_back_and_a_new_one_may_begin(step: str) -> None:
    world, log = left_by_a_dead_run(step)
    result = abandoned(world, log)
    assert "given up" in result.reason
    assert_back(world, result)
    world.tick()
    assert a_migration(world, log, "third").run().state == "done"


def test_a_step_that_asks_nothing_does_not_end_the_giving_up() -> None:
    world, log = left_by_a_dead_run("soak")
    assert_back(world, abandoned(world, log, policy=replace(POLICY, consumer_lag=None)))


@pytest.mark.parametrize("step", ["preflight", "approval"])
def test_before_the_first_deed_nothing_is_to_be_taken_back(step: str) -> None:
    world, log = left_by_a_dead_run(step)
    assert_back(world, abandoned(world, log), "refused")


def test_a_file_that_moves_the_same_will_do() -> None:
    world, log = left_by_a_dead_run("drain")
    assert_back(world, abandoned(world, log, plan=a_plan("another gate, another address")))
    assert len({record["plan_hash"] for record in log.records}) == 1  # the run kept its plan


@pytest.mark.parametrize("change", [{"producers": ("other",)}, {"consumers": ()}, {"topics": ("orders",)}])
def test_a_file_that_moves_something_else_is_refused_with_the_plan_it_takes(change: dict[str, Any]) -> None:
    world, log = left_by_a_dead_run("drain")
    wave = a_plan().migration.waves[0]  # type: ignore[union-attr]
    plan = a_plan()
    assert plan.migration is not None
    other = replace(plan, hash="sha256:other", migration=replace(plan.migration, waves=(replace(wave, **change),)))
    with pytest.raises(PlanChanged, match=f"Restore the file that compiles to {plan.hash}"):
        abandoned(world, log, plan=other)
    assert_back(world, abandoned(world, log))


def test_what_cannot_be_undone_keeps_the_lock_unless_forced_and_is_recorded() -> None:
    world, log = left_by_a_dead_run("drain")
    world.hook = _start_fails
    assert abandoned(world, log).state == "rollback_incomplete"
    with pytest.raises(Locked, match="--abandon"):
        a_migration(world, log, "third").run()
    result = abandoned(world, log, force=True)
    assert (result.state, result.exit_code) == ("abandoned", 1)
    assert "no route to billing" in result.reason
    assert "left to be done by hand" in result.reason
    last = log.records[-1]
    assert (last["step"], last["kind"]) == (RUN_STEP, "outcome")
    assert last["observation"]["not_undone"] == [
        "undo_fence_producers",
        "undo_start_consumers",
        "undo_commit_offsets",
        "undo_stop_consumers",
    ]
    # A person puts everything back; then the topology can be migrated again.
    world.hook = lambda _action: None
    for place, runs in world.runs.items():
        there = world.offsets["target"][GROUP][target_of(place)]
        world.offsets["source"][GROUP][place] = OffsetMap(tuple(runs)).to_source(there)
    del world.offsets["target"][GROUP]
    world.apps[GROUP].side = world.apps[PRODUCER].side = "source"
    world.apps[PRODUCER].running = True
    world.tick()
    assert a_migration(world, log, "fourth").run().state == "done"


def test_force_changes_nothing_when_everything_can_be_taken_back() -> None:
    world, log = left_by_a_dead_run("drain")
    assert_back(world, abandoned(world, log, force=True))
    assert "not_undone" not in log.records[-1]["observation"]


@pytest.mark.parametrize("force", [True, False])
def test_behind_the_point_of_no_return_nothing_is_given_up(force: bool) -> None:
    world, log = left_by_a_dead_run("canary")
    result = abandoned(world, log, force=force)
    assert result.state == "stopped"
    assert "no way back without a reverse flow" in result.reason
    assert world.apps[PRODUCER].side == "target"
    assert_moved(world, a_migration(world, log, "third", resume=True).run())


def test_nothing_to_give_up() -> None:
    log = FakeLog()
    with pytest.raises(NothingToResume, match="nothing to give up"):
        abandoned(World(), log)
    assert log.records == []
