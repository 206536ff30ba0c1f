"""A way back by the operators: the tasks of `rollback__NAME` in turn, over the world in memory of tests/cutover."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.airflow.here import asked_here
from tests.airflow.test_airflow_cutover import RUN, context, event_of
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import GROUP, POLICY, PRODUCER, REVERSE, a_migration
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators import cutover_steps, wave_task_groups
from watershed.plugins.operators.spark_application import attach_or_start_spark
from watershed.plugins.operators.wave_task_groups import BeginWaveOperator, EndWaveOperator
from watershed.plugins.steps import step_driver, waiting_steps
from watershed.plugins.steps.migration_dag_tasks import (
    ALL_WAVES,
    AS_DECLARED,
    list_stage_tasks,
    list_step_tasks,
    preview_run_plan,
)
from watershed.plugins.steps.run_journal import find_done_waves
from watershed.plugins.steps.step_driver import StepOrder, WaitBudget

DAG = "rollback__shop"
PLAN = back_plan()
POLICY_BACK = replace(POLICY, reverse=REVERSE, consumer_lag=None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, state: Path) -> BackWorld:
    """Its wave has moved; drivers of rollbacks act on it."""
    world, log = BackWorld(), FakeLog()
    assert a_migration(world, log, plan=PLAN, policy=POLICY_BACK, run_id="migrate.there.all").run().state == "done"
    for _ in range(6):
        world.tick()
    world.chain = lambda: a_migration(world, log, "reader", plan=PLAN).journal.refresh()  # type: ignore[attr-defined]

    def migration(order: StepOrder, **hooks: Any) -> Any:
        pause, _ask = hooks.pop("sleep", None), hooks.pop("ask", None)

        def sleep(seconds: float) -> None:
            world.sleep(seconds)
            if not isinstance(getattr(pause, "__self__", None), WaitBudget) and pause is not None:
                pause(0.0)

        return a_rollback(world, log, "airflow", run_id=order.journal_run, sleep=sleep, **hooks)

    def proof(folder: Path, _module: str, _told: list[str], topology: Path, log: Any, **_: Any) -> DetachedProcess:
        return attach_or_start_spark(
            folder, "tests.airflow.programs.proof", ["--out", "{out}", "--verdict", "proven"], topology, log
        )

    frozen = SimpleNamespace(read=lambda: PLAN, topology=state)
    for module in (cutover_steps, step_driver, wave_task_groups):
        monkeypatch.setattr(module, "find_frozen_plan", lambda _hash: frozen)
    monkeypatch.setattr(StepOrder, "migration", migration)
    monkeypatch.setattr(waiting_steps, "shared_client_processes", asked_here)
    monkeypatch.setattr(waiting_steps, "_LOOK_S", 0.01)
    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", proof)
    monkeypatch.setattr(step_driver, "require_warm_standby", lambda *_: None)  # see test_airflow_standby
    monkeypatch.setattr(wave_task_groups, "read_chain_or_fail", lambda _plan: world.chain())  # type: ignore[attr-defined]
    return world


def told(**more: Any) -> dict[str, Any]:
    return {"kind": "rollback", "wave": "all", "plan": "sha256:1", "strategy": AS_DECLARED} | more


def perform(row: Any) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    operator = cutover_steps.CutoverStepOperator if row.asks is None else cutover_steps.CutoverApprovalOperator
    task, work = operator(row=row, **told(approval="auto")), context(row.task)
    work["ti"].dag_id = DAG
    act: Any = lambda: task.execute(work)  # noqa: E731
    while True:
        try:
            return act()
        except TaskDeferred as deferred:
            event = event_of(deferred.trigger)
            act = lambda: task.come_back(work, event)  # noqa: E731, B023


def test_a_rollback_task_by_task_brings_everything_home(world: BackWorld) -> None:
    rows = list_stage_tasks(preview_run_plan(PLAN, "rollback", "all"))
    assert [row.task for row in rows] == ["check", "approval", "move_applications", "finish"]
    for row in rows:
        perform(row)
    assert {name: app.side for name, app in world.apps.items()} == {GROUP: "source", PRODUCER: "source"}
    chain = world.chain()  # type: ignore[attr-defined]
    assert chain.run(f"rollback.{RUN}.all")[-1].observation["state"] == "done"
    assert find_done_waves(PLAN, chain) == {}
    end = EndWaveOperator(**told(rehearsal=""))
    work = context("end")
    assert end.execute(work)["kind"] == "rollback"


def test_the_end_looks_into_the_journal(world: BackWorld) -> None:
    end = EndWaveOperator(**told(rehearsal=""))
    with pytest.raises(AirflowFailException, match="never began"):
        end.execute(context("end"))
    perform(list_step_tasks(preview_run_plan(PLAN, "rollback", "all"))[0])
    with pytest.raises(AirflowFailException, match="is not done: its last entry is preflight_back"):
        end.execute(context("end"))


def begin(kind: str = "migrate", **more: Any) -> BeginWaveOperator:
    operator = BeginWaveOperator(**told(kind=kind, rehearsal=""))
    operator.waves = ["all"]
    for name, value in more.items():
        setattr(operator, name, value)
    return operator


def test_a_wave_begins_when_the_journal_lets_it(world: BackWorld) -> None:
    with pytest.raises(AirflowSkipException, match=r"wave all is done: migrate\.there\.all"):
        begin().choose_branch(context("begin"))
    with pytest.raises(AirflowSkipException, match="not among the chosen"):
        begin(waves=["other"]).choose_branch(context("begin"))
    with pytest.raises(AirflowFailException, match="choose at least one"):
        begin("rollback", waves=[]).choose_branch(context("begin"))
    assert begin("rollback").choose_branch(context("begin")) == "all.check"
    assert begin(rehearsal=True).choose_branch(context("begin")) == "all.dry_run"
    assert begin(rehearsal=True, strategy="fenced").choose_branch(context("begin")) == "all.dry_run"


def test_a_second_run_is_refused_and_names_the_holder(world: BackWorld) -> None:
    perform(list_step_tasks(preview_run_plan(PLAN, "rollback", "all"))[0])
    with pytest.raises(AirflowFailException, match=rf"held by run rollback\.{RUN}\.all, begun by ann"):
        begin().choose_branch(context("begin"))


def test_what_is_moved_as_one_has_no_wave_in_its_name() -> None:
    assert StepOrder("sha256:1", ALL_WAVES, (), "failover__shop", "r", "failover").journal_run == "failover.r"
