"""The cutover operators over the world in memory of tests/cutover, with real processes in place of Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred

from cutover.actions import Action
from cutover.driver import Migration
from cutover.journal import outcome_of
from cutover.observations import Observation
from plugins import watershed_cutover, watershed_steps
from plugins.watershed_cutover import (
    CutoverApprovalOperator,
    CutoverStepOperator,
    RollbackOperator,
    StepFinished,
)
from plugins.watershed_process import Detached
from plugins.watershed_spark import ProcessEnded, attach_or_start
from plugins.watershed_state import FrozenPlan
from plugins.watershed_steps import Order, Patience, Row, StillWaiting, rows_of
from tests.cutover.world import GROUP, PRODUCER, FakeLog, World, a_migration, a_plan

RUN = "manual__1"
WAVE = a_plan().migration.waves[0]  # type: ignore[union-attr]
ROWS = {row.name: row for row in rows_of(WAVE)}


class Crash(Exception):
    """The task's process ends without a word."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, state: Path) -> World:
    """Drivers act on this world; proofs are real processes that say `verdict` (an attribute of the fixture)."""
    world, log = World(), FakeLog()
    world.log = log  # type: ignore[attr-defined]
    world.verdicts = {}  # type: ignore[attr-defined]

    def migration(order: Order, **hooks: Any) -> Migration:
        # Time moves on by pausing; what the worker may pause in all is what the operators give.
        pause = hooks.pop("sleep", lambda seconds: None)

        def sleep(seconds: float) -> None:
            world.sleep(seconds)
            pause(0.0 if isinstance(getattr(pause, "__self__", None), Patience) else seconds)

        return a_migration(world, log, "airflow", run_id=order.run, sleep=sleep, evidence=order.evidence, **hooks)

    def proof(folder: Path, module: str, arguments: list[str], topology: Path, log: Any) -> Detached:
        assert module == "spark.verify"
        verdict = world.verdicts.get(folder.name, "proven")  # type: ignore[attr-defined]
        told = ["--out", "{out}", "--verdict", verdict]
        return attach_or_start(folder, "tests.airflow.programs.proof", told, topology, log)

    monkeypatch.setattr(Order, "migration", migration)
    monkeypatch.setattr(watershed_cutover, "attach_or_start", proof)
    monkeypatch.setattr(watershed_cutover, "frozen_plan", lambda plan: FrozenPlan(plan, state))
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: world.said.append(f"asked: {detail['subject']}"))
    return world


def operator(row: Row, approval: str = "auto") -> Any:
    kind = CutoverApprovalOperator if row.asks else CutoverStepOperator
    return kind(row=row, plan="sha256:1", wave="all", rehearsal="", approval=approval)


def context(task: str) -> Any:
    ti = SimpleNamespace(dag_id="migrate__shop", run_id=RUN, task_id=task, map_index=-1, id="1")
    return {"ti": ti, "task_instance": ti, "params": {}}


def perform(row: Row, approval: str = "auto") -> None:
    """One task from its start to its end, as Airflow would do it."""
    task, work = operator(row, approval), context(row.name)
    act: Callable[[], None] = partial(task.execute, work)
    while True:
        try:
            act()
            return
        except TaskDeferred as deferred:
            event = event_of(deferred.trigger)
            act = partial(getattr(task, deferred.method_name), work, event)


def event_of(trigger: Any) -> Any:
    if isinstance(trigger, ProcessEnded):
        trigger.poll_seconds, trigger.settle_seconds = 0.05, 0.0

    async def first() -> Any:
        return await anext(trigger.run())

    return asyncio.run(asyncio.wait_for(first(), 30)).payload


def all_steps(approval: str = "auto") -> None:
    for row in ROWS.values():
        perform(row, approval)


def roll_back() -> None:
    task = RollbackOperator(plan="sha256:1", wave="all")
    task.execute(context("rollback"))


def assert_back(world: World) -> None:
    for name in (GROUP, PRODUCER):
        assert (world.apps[name].side, world.apps[name].running) == ("source", True)


def test_tasks_in_turn_make_the_whole_migration(world: World) -> None:
    all_steps()
    assert {name: (app.side, app.running) for name, app in world.apps.items()} == {
        GROUP: ("target", True),
        PRODUCER: ("target", True),
    }
    world.settle()
    assert len(world.processed) == len(set(world.processed)) == world.written


def test_repeating_a_finished_task_changes_nothing(world: World) -> None:
    all_steps()
    before = len(world.log.records)  # type: ignore[attr-defined]
    all_steps()
    assert len(world.log.records) == before  # type: ignore[attr-defined]


def test_failed_tail_proof_takes_everything_back_and_fails_the_task(world: World) -> None:
    world.verdicts["tail_proof"] = "different"  # type: ignore[attr-defined]
    with pytest.raises(AirflowFailException, match="rolled_back at tail_proof: not proven"):
        all_steps()
    assert_back(world)
    roll_back()
    assert_back(world)


def test_proof_that_failed_as_a_tool_is_tried_once_more(world: World, state: Path) -> None:
    world.verdicts["history_proof"] = "error"  # type: ignore[attr-defined]
    for name in ("preflight", "lag_gate"):
        perform(ROWS[name])
    with pytest.raises(AirflowFailException, match="refused at history_proof"):
        perform(ROWS["history_proof"])
    folder = state / "runs" / "migrate__shop" / RUN / "history_proof"
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_person_approves_with_the_evidence_in_view(world: World) -> None:
    for name in ("preflight", "lag_gate", "history_proof"):
        perform(ROWS[name])
    task = operator(ROWS["approval"], "manual")
    with pytest.raises(TaskAwaitingInput) as parked:
        task.execute(context("approval"))
    assert "lag_records" in task.body
    assert "proven" in task.body
    answer = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "1", "name": "ops"}}
    getattr(task, parked.value.method_name)(context("approval"), answer)
    outcome = outcome_of(_entries(world), "approval")
    assert outcome is not None
    assert outcome[0]["approvals"][0]["by"] == "ops"
    for name in list(ROWS)[4:]:
        perform(ROWS[name])


def test_rejection_fails_the_task_before_anything_moved(world: World) -> None:
    for name in ("preflight", "lag_gate", "history_proof"):
        perform(ROWS[name])
    task = operator(ROWS["approval"], "manual")
    with pytest.raises(TaskAwaitingInput):
        task.execute(context("approval"))
    answer = {"chosen_options": ["Reject"], "params_input": {}, "responded_by_user": {"id": "1", "name": "ops"}}
    with pytest.raises(AirflowFailException, match="refused at approval"):
        task.execute_complete(context("approval"), answer)
    assert_back(world)


@pytest.mark.parametrize("step", ["stop_consumers", "commit_offsets", "fence_producers", "standstill", "drain"])
def test_rollback_task_takes_back_what_a_killed_task_left(world: World, step: str) -> None:
    def dies(action: Action) -> Observation | None:
        if world.log.records and world.log.records[-1]["step"] == step:  # type: ignore[attr-defined]
            raise Crash
        return None

    world.hook = dies
    with pytest.raises(Crash):
        all_steps()
    world.hook = lambda action: None
    roll_back()
    assert_back(world)
    world.settle()
    assert len(world.processed) == len(set(world.processed)) == world.written


def test_rollback_behind_the_point_of_no_return_switches_nothing_back(world: World) -> None:
    for name in list(ROWS)[:-2]:
        perform(ROWS[name])
    from airflow.sdk.exceptions import AirflowException

    with pytest.raises(AirflowException, match="behind the point of no return"):
        roll_back()
    assert world.apps[PRODUCER].side == "target"


def test_rollback_of_a_run_that_never_began_leaves_the_journal_alone(world: World) -> None:
    roll_back()
    assert world.log.records == []  # type: ignore[attr-defined]


def test_long_wait_goes_on_in_the_triggerer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    perform(ROWS["preflight"])

    class Worker(Patience):
        def sleep(self, seconds: float) -> None:
            if self.left is not None:
                raise StillWaiting

    monkeypatch.setattr(watershed_cutover, "Patience", Worker)
    task = operator(ROWS["lag_gate"])
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context("lag_gate"))
    path, kwargs = deferred.value.trigger.serialize()
    assert path == "plugins.watershed_cutover.StepFinished"
    trigger = StepFinished(**kwargs)
    assert event_of(trigger)["seen"] == "paused"
    task.come_back(context("lag_gate"), {})


def test_patience_ends() -> None:
    patience = Patience(1.0)
    patience.sleep(0.01)
    with pytest.raises(StillWaiting):
        patience.sleep(1.0)
    endless = Patience(None)
    endless.stop.set()
    with pytest.raises(StillWaiting):
        endless.sleep(60)


def test_step_out_of_turn_is_refused(world: World) -> None:
    perform(ROWS["preflight"])
    with pytest.raises(AirflowFailException, match="has to wait"):
        perform(ROWS["fence_producers"])


def _entries(world: World) -> Any:
    migration = watershed_steps.Order("sha256:1", "all", "", "migrate__shop", RUN).migration(prove=world.prove)
    return migration.journal.refresh().run(RUN)
