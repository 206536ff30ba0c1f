"""The cutover operators over the world in memory of tests/cutover, with real processes in place of Spark."""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskAwaitingInput,
    TaskDeferred,
)

from tests.airflow.here import asked_here
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import GROUP, POLICY, PRODUCER, World, a_migration, a_plan
from watershed.cutover.actions import Action
from watershed.cutover.driver import RunDriver
from watershed.cutover.errors import Superseded
from watershed.cutover.journal.hash_chain import find_step_outcome
from watershed.cutover.observations import ApprovalAnswer, Observation
from watershed.cutover.run_plan import plan_migration
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators import cutover_steps
from watershed.plugins.operators.cutover_steps import (
    CutoverApprovalOperator,
    CutoverStepOperator,
    StepFinished,
    TakeBackOperator,
)
from watershed.plugins.operators.spark_application import ProcessEnded, attach_or_start_spark
from watershed.plugins.state_folder import FrozenPlan
from watershed.plugins.steps import step_driver, waiting_steps
from watershed.plugins.steps.live_messages import read_live_message
from watershed.plugins.steps.migration_dag_tasks import (
    AS_DECLARED,
    STRATEGIES,
    StepTask,
    list_span_tasks,
    list_stage_tasks,
    list_step_tasks,
    preview_run_plan,
)
from watershed.plugins.steps.step_driver import StepOrder, StillWaiting, WaitBudget

RUN = "manual__1"
JOURNAL_RUN = f"migrate.{RUN}.all"
ROWS = {row.task: row for row in list_step_tasks(plan_migration(a_plan(), None, POLICY))}


class Crash(Exception):
    """The task's process ends without a word."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, state: Path) -> World:
    """Drivers act on this world; proofs are real processes that say `verdict` (an attribute of the fixture)."""
    world, log = World(), FakeLog()
    world.log = log  # type: ignore[attr-defined]
    world.verdicts = {}  # type: ignore[attr-defined]
    world.policy = {}  # type: ignore[attr-defined]
    world.moves = a_plan()  # type: ignore[attr-defined]

    def migration(order: StepOrder, **hooks: Any) -> RunDriver:
        # Time moves on by pausing; what the worker may pause in all is what the operators give.
        pause = hooks.pop("sleep", lambda seconds: None)
        world.ask = hooks.pop("ask", None)  # type: ignore[attr-defined]

        def sleep(seconds: float) -> None:
            world.sleep(seconds)
            pause(0.0 if isinstance(getattr(pause, "__self__", None), WaitBudget) else seconds)

        policy = replace(POLICY, strategy=order.strategy or POLICY.strategy, **world.policy)  # type: ignore[attr-defined]
        course = plan_migration(world.moves, None, policy)  # type: ignore[attr-defined]
        told = {
            "plan": world.moves,
            "run_id": order.journal_run,
            "sleep": sleep,
            "evidence": order.evidence,
            "run_plan": course,
        }
        return a_migration(world, log, "airflow", **told, **hooks)

    def proof(folder: Path, module: str, arguments: list[str], topology: Path, log: Any, **_: Any) -> DetachedProcess:
        assert module == "watershed.spark.verify"
        step = folder.name.removeprefix("all.")
        verdict = world.verdicts.get(step, "proven")  # type: ignore[attr-defined]
        told = ["--out", "{out}", "--verdict", verdict]
        return attach_or_start_spark(folder, "tests.airflow.programs.proof", told, topology, log)

    monkeypatch.setattr(StepOrder, "migration", migration)
    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", proof)
    monkeypatch.setattr(waiting_steps, "shared_client_processes", asked_here)
    monkeypatch.setattr(waiting_steps, "_LOOK_S", 0.01)
    for module in (cutover_steps, step_driver):
        monkeypatch.setattr(module, "find_frozen_plan", lambda plan: FrozenPlan(plan, state))
    monkeypatch.setattr(step_driver, "require_warm_standby", lambda *_: None)  # see test_airflow_standby
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: world.said.append(f"asked: {detail['subject']}"))
    return world


def operator(row: StepTask, approval: str = "auto", strategy: str = AS_DECLARED) -> Any:
    operator = CutoverStepOperator if row.asks is None else CutoverApprovalOperator
    told = {"kind": "migrate", "wave": "all", "plan": "sha256:1", "strategy": strategy}
    return operator(row=row, approval=approval, **told)


def context(task: str) -> Any:
    ti = SimpleNamespace(dag_id="migrate__shop", run_id=RUN, task_id=task, map_index=-1, id="1")
    return {"ti": ti, "task_instance": ti, "params": {}}


def perform(row: StepTask, approval: str = "auto", strategy: str = AS_DECLARED) -> None:
    """One task from its start to its end, as Airflow would do it."""
    task, work = operator(row, approval, strategy), context(row.task)
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
    task = TakeBackOperator(kind="migrate", plan="sha256:1", wave="all", strategy=AS_DECLARED)
    task.execute(context("take_back"))


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
    folder = state / "runs" / "migrate__shop" / RUN / "all.history_proof"
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_person_approves_with_the_evidence_in_view(world: World) -> None:
    for name in ("preflight", "lag_gate", "history_proof"):
        perform(ROWS[name])
    task = operator(ROWS["approval"], "manual")
    with pytest.raises(TaskAwaitingInput) as parked:
        task.execute(context("approval"))
    assert "lag records" in task.body
    assert "proven" in task.body
    answer = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "1", "name": "ops"}}
    getattr(task, parked.value.method_name)(context("approval"), answer)
    outcome = find_step_outcome(_entries(world), "approval")
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
    with pytest.raises(AirflowFailException, match="behind the point of no return"):
        roll_back()
    assert world.apps[PRODUCER].side == "target"


def test_rollback_of_a_run_that_never_began_leaves_the_journal_alone(world: World) -> None:
    with pytest.raises(AirflowSkipException, match="nothing had begun"):
        roll_back()
    assert world.log.records == []  # type: ignore[attr-defined]


def test_long_wait_goes_on_in_the_triggerer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    perform(ROWS["preflight"])

    class Worker(WaitBudget):
        def sleep(self, seconds: float) -> None:
            if self.left is not None:
                raise StillWaiting

    monkeypatch.setattr(cutover_steps, "WaitBudget", Worker)
    task = operator(ROWS["lag_gate"])
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context("lag_gate"))
    path, kwargs = deferred.value.trigger.serialize()
    assert path == "watershed.plugins.operators.cutover_steps.StepFinished"
    trigger = StepFinished(**kwargs)
    assert event_of(trigger)["seen"] == "paused"
    task.come_back(context("lag_gate"), {})


def test_patience_ends() -> None:
    patience = WaitBudget(1.0)
    patience.sleep(0.01)
    with pytest.raises(StillWaiting):
        patience.sleep(1.0)
    endless = WaitBudget(None)
    endless.stop.set()
    with pytest.raises(StillWaiting):
        endless.sleep(60)
    with pytest.raises(StillWaiting):
        endless.begin_step()  # a step that waits for nothing would be done for nobody


def test_a_full_disk_ends_no_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, _document: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(step_driver, "write_json_file", fail)
    rows = {row.task: row for row in list_stage_tasks(plan_migration(a_plan(), None, POLICY))}
    perform(rows["check"])


def test_step_out_of_turn_is_refused(world: World) -> None:
    perform(ROWS["preflight"])
    with pytest.raises(AirflowFailException, match="has to wait"):
        perform(ROWS["fence_producers"])


@pytest.mark.parametrize(
    ("strategy", "tasks"),
    [
        ("consumers_first", ["check", "approval", "move_consumers", "move_producers", "seal"]),
        ("producers_first", ["check", "approval", "move_producers", "move_consumers", "seal"]),
        ("fenced", ["check", "approval", "move_applications", "seal"]),
    ],
)
def test_the_stages_of_a_wave_in_turn_make_the_whole_migration(world: World, strategy: str, tasks: list[str]) -> None:
    run_plan = plan_migration(a_plan(), None, replace(POLICY, strategy=strategy))  # type: ignore[arg-type]
    rows = list_stage_tasks(run_plan)
    assert [row.task for row in rows] == tasks
    assert [step for row in rows for step in row.steps] == [step.name for step in run_plan.steps]
    for row in rows:
        perform(row, strategy=strategy)
    world.settle()
    assert len(world.processed) == len(set(world.processed)) == world.written
    before = len(world.log.records)  # type: ignore[attr-defined]
    for row in rows:
        perform(row, strategy=strategy)
    assert len(world.log.records) == before  # type: ignore[attr-defined]


def test_nobody_waits_for_airflow_between_fence_and_switch(world: World) -> None:
    """Whatever waits there waits inside the stage; a person and a long wait elsewhere are tasks of their own."""
    policy = replace(POLICY, watch_ms=10 * 60_000, after_ms=60_000, hold_before_ms=1_000, soak_approvals=("ann",))
    hooks = replace(policy.hooks, fenced=("tell",), switched=("tell",), before=("tell",))
    rows = list_stage_tasks(plan_migration(a_plan(), None, replace(policy, hooks=hooks)))
    assert [(row.task, row.waits) for row in rows] == [
        ("check", False),
        ("hold_before", True),
        ("approval", False),
        ("hooks_before", True),
        ("move_consumers", False),
        ("soak", False),
        ("move_producers", False),
        ("hooks_switched", True),
        ("straggler_watch", True),
        ("seal", False),
    ]
    [moving] = [row for row in rows if row.task == "move_producers"]
    assert {"fence_producers", "standstill", "hooks_fenced", "switch_producers"} <= set(moving.steps)
    assert "`fence_producers`: producers stop" in moving.doc
    assert "*Undo:*" in moving.doc


def test_a_worker_stays_for_long_while_nobody_can_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving it for the triggerer costs seconds without writes; before the fence it costs nobody anything."""
    allowed: list[float | None] = []

    class Counted(WaitBudget):
        def begin_step(self, least: float = 0.0) -> None:
            super().begin_step(least)
            allowed.append(self.left)

    monkeypatch.setattr(cutover_steps, "WaitBudget", Counted)
    for row in list_stage_tasks(plan_migration(a_plan(), None, POLICY)):
        perform(row)
    names = [step.name for step in plan_migration(a_plan(), None, POLICY).steps]
    fenced = names[names.index("fence_producers") : names.index("switch_producers") + 1]
    assert set(allowed) == {30.0, 600.0}
    assert (allowed[0], allowed[-1]) == (30.0, 30.0)
    assert allowed.count(600.0) >= len(fenced)  # a stage that comes back from a proof passes its steps again
    endless = WaitBudget(None)
    endless.begin_step(600.0)
    assert endless.left is None


def test_a_stage_that_fails_says_at_which_step_and_what_was_taken_back(world: World) -> None:
    world.verdicts["tail_proof"] = "different"  # type: ignore[attr-defined]
    rows = {row.task: row for row in list_stage_tasks(plan_migration(a_plan(), None, POLICY))}
    for name in ("check", "approval", "move_consumers"):
        perform(rows[name])
    with pytest.raises(AirflowFailException, match="rolled_back at tail_proof"):
        perform(rows["move_producers"])
    assert_back(world)


def test_a_long_wait_inside_a_stage_is_left_to_the_triggerer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the triggerer could not go on, the worker meets the problem itself."""
    world.policy = {"watch_ms": 60_000}  # type: ignore[attr-defined]
    rows = {row.task: row for row in list_stage_tasks(plan_migration(a_plan(), None, replace(POLICY, watch_ms=60_000)))}
    for name in ("check", "approval", "move_consumers"):
        perform(rows[name])
    task, work = operator(rows["move_producers"]), context("move_producers")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(work)
    assert isinstance(deferred.value.trigger, StepFinished)
    assert {entry.step for entry in _entries(world)} >= {"fence_producers"}
    assert find_step_outcome(_entries(world), "standstill") is None
    task.come_back(work, {"seen": "needs a worker: the process ended"})
    assert world.apps[PRODUCER].side == "target"


def test_what_a_gate_waits_for_can_be_read_meanwhile(world: World) -> None:
    assert read_live_message("migrate__shop", RUN, "all") is None
    for name in ("preflight", "lag_gate"):
        perform(ROWS[name])
    seen = read_live_message("migrate__shop", RUN, "all")
    assert seen is not None
    assert seen["step"] == "lag_gate"
    assert seen["text"].startswith("lag 0 records (gate: 10)")


def test_what_is_said_in_the_triggerer_is_in_the_tasks_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow tells whose a line is by a context variable of the trigger."""
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody")
    monkeypatch.setattr(cutover_steps, "finish_waiting_steps", lambda *_: whose.get())
    monkeypatch.setattr(cutover_steps, "TRIGGER_SETTLE_S", 0.0)

    async def first() -> Any:
        whose.set("trigger 7")
        return await anext(StepFinished(StepOrder("sha256:1", "all", ("lag_gate",), "d", RUN)).run())

    assert asyncio.run(first()).payload == {"seen": "trigger 7"}


def test_the_journal_names_who_triggered_the_run(world: World) -> None:
    work = context("preflight")
    work["dag_run"] = SimpleNamespace(triggering_user_name="ann")
    assert operator(ROWS["preflight"]).order(work).user == "ann"
    assert step_driver.name_airflow_actor("migrate__shop", "ann") == "airflow migrate__shop for ann"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_strategy_runs_in_spans(world: World, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutover_steps, "find_frozen_plan", lambda plan: SimpleNamespace(read=a_plan, topology="x"))
    for row in list_span_tasks(preview_run_plan(a_plan(), "migrate", "all")):
        perform(row, strategy=strategy)
    entries = _entries(world, strategy)
    assert entries[0].observation["strategy"] == strategy
    assert entries[-1].observation["state"] == "done"
    world.settle()
    assert len(world.processed) == len(set(world.processed)) == world.written


def test_spans_are_the_same_tasks_whatever_the_strategy() -> None:
    tasks = {
        tuple(row.task for row in list_span_tasks(preview_run_plan(a_plan(), "migrate", "all", each)))
        for each in STRATEGIES
    }
    assert tasks == {("to_approval", "approval", "to_end")}


@pytest.mark.parametrize("hosts", [("a", "a"), ("a", "b")])
def test_every_person_who_is_asked_answers_for_himself(
    world: World, hosts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the second one's task runs on a host that does not see the files of the first one's."""
    kept: dict[tuple[str, str], Any] = {}
    monkeypatch.setenv("WATERSHED_STATE_SHARED", "yes" if len({*hosts}) == 1 else "no")
    names = ("team-a", "team-b")
    world.policy = {"approvals": names}  # type: ignore[attr-defined]
    rows = {row.task: row for row in list_step_tasks(plan_migration(a_plan(), None, replace(POLICY, approvals=names)))}
    tasks = list(rows)
    assert tasks[3:5] == ["approval_team-a", "approval_team-b"]
    for name in tasks[:3]:
        perform(rows[name])
    for at, user, host in ((3, "ann", hosts[0]), (4, "bob", hosts[1])):
        task = operator(rows[tasks[at]], "manual")
        monkeypatch.setenv("WATERSHED_STATE", str(tmp_path / host))
        ti = SimpleNamespace(
            xcom_push=lambda key, value, at=at: kept.__setitem__((tasks[at], key), value),
            xcom_pull=lambda task, key: kept.get((task, key)),
        )
        monkeypatch.setattr(cutover_steps, "get_current_context", lambda ti=ti: {"ti": ti})
        with pytest.raises(TaskAwaitingInput) as parked:
            task.execute(context(tasks[at]))
        assert f"**{names[at - 3]}** is asked" in task.body
        answer = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "1", "name": user}}
        getattr(task, parked.value.method_name)(context(tasks[at]), answer)
    outcome = find_step_outcome(_entries(world), "approval")
    assert outcome is not None
    assert [each["by"] for each in outcome[0]["approvals"]] == ["ann", "bob"]


def test_an_older_answer_in_a_hosts_own_folder_does_not_count(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a person asked again by another try on the host that has the answer, which the next person's task sees."""
    kept: dict[tuple[str, str], Any] = {}
    names = ("team-a", "team-b")
    world.policy = {"approvals": names}  # type: ignore[attr-defined]
    rows = {row.task: row for row in list_step_tasks(plan_migration(a_plan(), None, replace(POLICY, approvals=names)))}
    for name in list(rows)[:3]:
        perform(rows[name])
    monkeypatch.setenv("WATERSHED_STATE_SHARED", "no")

    def begin(task: str, host: str) -> Any:
        ti = SimpleNamespace(
            xcom_push=lambda key, value: kept.__setitem__((task, key), value),
            xcom_pull=lambda other, key: kept.get((other, key)),
        )
        monkeypatch.setenv("WATERSHED_STATE", str(tmp_path / host))
        monkeypatch.setattr(cutover_steps, "get_current_context", lambda: {"ti": ti})
        return operator(rows[task], "manual")

    def answer(task: str, host: str, user: str) -> None:
        begun = begin(task, host)
        with pytest.raises(TaskAwaitingInput) as parked:
            begun.execute(context(task))
        told = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "1", "name": user}}
        getattr(begun, parked.value.method_name)(context(task), told)

    order = begin("approval_team-a", "b").order(context("approval_team-a"))
    step_driver.ApprovalAnswers.of(order).keep(order, "team-a", ApprovalAnswer(0, granted=False, by="eve"))
    answer("approval_team-a", "a", "ann")
    kept.clear()  # as Airflow does before another try
    begin("approval_team-a", "a").execute(context("approval_team-a"))
    answer("approval_team-b", "b", "bob")
    outcome = find_step_outcome(_entries(world), "approval")
    assert outcome is not None
    assert [(each["by"], each["granted"]) for each in outcome[0]["approvals"]] == [("ann", True), ("bob", True)]


def test_an_answer_that_was_passed_over_is_missed(world: World) -> None:
    """Somebody marks the first of two approvals as success."""
    names = ("team-a", "team-b")
    world.policy = {"approvals": names}  # type: ignore[attr-defined]
    rows = {row.task: row for row in list_step_tasks(plan_migration(a_plan(), None, replace(POLICY, approvals=names)))}
    for name in list(rows)[:3]:
        perform(rows[name])
    with pytest.raises(AirflowFailException, match="team-a has not answered yet"):
        perform(rows["approval_team-b"], "manual")


def test_a_process_that_was_overtaken_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """C04: the task's successor looks into the journal; nothing is taken back because of it."""

    def overtaken(self: RunDriver, name: str) -> None:
        raise Superseded("run r by ann wrote to the journal meanwhile")

    monkeypatch.setattr(RunDriver, "run_step", overtaken)
    with pytest.raises(AirflowException) as again:
        perform(ROWS["preflight"])
    assert not isinstance(again.value, AirflowFailException)
    assert "needs a worker" in event_of(StepFinished(StepOrder("sha256:1", "all", ("preflight",), "d", RUN)))["seen"]


def test_what_a_cluster_calls_things_is_no_markup() -> None:
    from watershed.cutover.actions import AskApproval
    from watershed.plugins.operators.approval_evidence import render_approval_evidence

    evidence = {
        "lag_gate": {"lag_records": 12345, "groups": {"a|b <script>": 1}, "note": "x|<img>"},
        "loss": "3 | [a](b)",
    }
    text = render_approval_evidence(AskApproval("g", "ann", "go?", evidence))
    assert "| lag records | 12,345 |" in text
    assert "x\\|\\<img\\>" in text
    assert "3 \\| \\[a\\](b)" in text
    assert "<script>" not in text


def test_numbers_that_are_zero_are_one_row() -> None:
    """An approver finds what is not zero, and still reads what was counted."""
    from watershed.cutover.actions import AskApproval
    from watershed.plugins.operators.approval_evidence import render_approval_evidence

    evidence = {
        "history_proof": {"verdict": "proven", "counts": {"altered": 0, "missing": 2, "proven": 5_000, "extra": 0}}
    }
    text = render_approval_evidence(AskApproval("g", "ann", "go?", evidence))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    stranded = render_approval_evidence(AskApproval("g", "ann", "go?", {"stranded": [], "loss": 0}))
    assert [line for line in stranded.splitlines() if line.startswith("**")][1:] == [
        "**stranded:** none",
        "**loss:** 0",
    ]
    assert rows == [
        "| what | seen |",
        "| verdict | proven |",
        "| counts: missing | 2 |",
        "| counts: proven | 5,000 |",
        "| counts: altered, extra | 0 |",
    ]


@pytest.mark.parametrize(
    ("steps", "there", "done"),
    [
        (("b",), ("a", "b", "c"), ["b"]),
        (("b",), ("a", "new", "b", "c"), ["new", "b"]),  # the run needs one that the DAG does not show
        (("c",), ("a", "new", "b", "c"), ["c"]),  # it belongs to the task behind it
        (("b", "c"), ("a", "new", "b", "more", "c"), ["new", "b", "more", "c"]),
        (("b",), ("a", "c"), []),  # the run does not need it
        (("b", "c"), ("a", "c"), ["c"]),
        (("b",), ("a", "new", "c"), []),
    ],
)
def test_a_way_back_has_the_steps_that_its_journal_asks_for(
    steps: tuple[str, ...], there: tuple[str, ...], done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = SimpleNamespace(steps=[SimpleNamespace(name=name) for name in "abc"])
    monkeypatch.setattr(step_driver, "preview_run_plan", lambda *_: shown)
    monkeypatch.setattr(step_driver, "find_frozen_plan", lambda _hash: SimpleNamespace(read=a_plan))
    order = StepOrder("sha256:1", "all", steps, "rollback__shop", RUN, "rollback")
    assert step_driver.list_steps_to_do(order, there) == done


def _entries(world: World, strategy: str = "") -> Any:
    order = StepOrder("sha256:1", "all", (), "migrate__shop", RUN, strategy=strategy)
    return order.migration(prove=world.prove).journal.refresh().run(JOURNAL_RUN)
