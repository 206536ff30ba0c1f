"""`failover__NAME` and `failback__NAME` by the operators, over the world in memory of tests/cutover: what was chosen at
the trigger reaches the policy, and whoever approves is shown the loss before the promotion."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred

from tests.airflow.here import asked_here
from tests.airflow.test_airflow_cutover import RUN, context, event_of
from tests.cutover.drivers import build_driver
from tests.cutover.failover_world import FailoverWorld, a_dead_source
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import EVIDENCE, GROUP, PRODUCER
from tests.cutover.world_back import Mirror, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import AskApproval
from watershed.cutover.failover.loss import FailoverLoss, PartitionLoss, build_failover_loss
from watershed.cutover.journal.hash_chain import Journal, find_step_outcome
from watershed.cutover.observations import LastSeenPartition
from watershed.cutover.run_choice import plan_run
from watershed.plugins.dag_params import parse_choices
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators import cutover_steps, wave_task_groups
from watershed.plugins.operators.approval_evidence import render_approval_evidence
from watershed.plugins.operators.spark_application import attach_or_start_spark
from watershed.plugins.operators.wave_task_groups import BeginWaveOperator, DryRunOperator
from watershed.plugins.steps import step_driver, waiting_steps
from watershed.plugins.steps.migration_dag_tasks import (
    ALL_WAVES,
    AS_DECLARED,
    NO_CHOICES,
    RunChoices,
    build_run_choice,
    list_stage_tasks,
    preview_run_plan,
)
from watershed.plugins.steps.step_driver import StepOrder, WaitBudget

PLAN = back_plan()
ANSWER = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "1", "name": "ops"}}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, state: Path) -> FakeLog:
    """The journal; drivers act on its world, the attribute `world`."""
    log = FakeLog()
    log.world = a_dead_source()  # type: ignore[attr-defined]

    def migration(order: StepOrder, **hooks: Any) -> Any:
        world: FailoverWorld = log.world  # type: ignore[attr-defined]
        pause, _ask = hooks.pop("sleep", None), hooks.pop("ask", None)

        def sleep(seconds: float) -> None:
            world.sleep(seconds)
            if not isinstance(getattr(pause, "__self__", None), WaitBudget) and pause is not None:
                pause(0.0)

        journal = Journal(log, "shop", "airflow", world.clock)
        course = plan_run(
            PLAN,
            build_run_choice(PLAN, order.kind, order.wave, "", order.choices),
            journal.refresh(),
            order.journal_run,
        )
        return build_driver(
            PLAN, run_plan=course, journal=journal, run_id=order.journal_run, sleep=sleep, clock=world.clock,
            handler=Mirror(world) if order.kind == "failback" else world, evidence=EVIDENCE, **hooks,
        )  # fmt: skip

    def proof(folder: Path, _module: str, _told: list[str], topology: Path, log: Any, **_: Any) -> DetachedProcess:
        told = ["--out", "{out}", "--verdict", "proven"]
        return attach_or_start_spark(folder, "tests.airflow.programs.proof", told, topology, log)

    frozen = SimpleNamespace(read=lambda: PLAN, topology=state)
    for module in (cutover_steps, step_driver, wave_task_groups):
        monkeypatch.setattr(module, "find_frozen_plan", lambda _hash: frozen)
    monkeypatch.setattr(StepOrder, "migration", migration)
    monkeypatch.setattr(waiting_steps, "shared_client_processes", asked_here)
    monkeypatch.setattr(waiting_steps, "_LOOK_S", 0.01)
    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", proof)
    monkeypatch.setattr(step_driver, "require_warm_standby", lambda *_: None)  # see test_airflow_standby
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_detail: None)
    return log


def world_of(log: FakeLog) -> FailoverWorld:
    found: FailoverWorld = log.world  # type: ignore[attr-defined]
    return found


def entries(log: FakeLog, kind: str = "failover") -> Any:
    return Journal(log, "shop", "reader", world_of(log).clock).refresh().run(f"{kind}.{RUN}")


def outcome(log: FakeLog, step: str, kind: str = "failover") -> Any:
    found = find_step_outcome(entries(log, kind), step)
    assert found is not None, step
    return found[0]


def operator(kind: str, row: Any, approval: str) -> Any:
    made = cutover_steps.CutoverStepOperator if row.asks is None else cutover_steps.CutoverApprovalOperator
    told = {"kind": kind, "wave": ALL_WAVES, "plan": "sha256:1", "strategy": AS_DECLARED}
    return made(row=row, approval=approval, **told)


def perform(kind: str, params: dict[str, Any], upto: str = "", approval: str = "manual") -> list[str]:
    """The tasks of the DAG in turn, with this said at its trigger; what people were shown. Each of them approves."""
    shown: list[str] = []
    for row in list_stage_tasks(preview_run_plan(PLAN, kind, ALL_WAVES)):  # type: ignore[arg-type]
        task, work = operator(kind, row, approval), context(row.task)
        work["params"] = params
        work["ti"].dag_id = f"{kind}__shop"
        act: Any = lambda: task.execute(work)  # noqa: B023, E731
        while True:
            try:
                act()
                break
            except TaskDeferred as deferred:
                event = event_of(deferred.trigger)
                act = lambda: task.come_back(work, event)  # noqa: B023, E731
            except TaskAwaitingInput:
                shown.append(task.body)
                act = lambda: task.execute_complete(work, ANSWER)  # noqa: B023, E731
        if row.task == upto:
            break
    return shown


def test_the_loss_is_shown_to_whoever_approves_before_anything_is_promoted(log: FakeLog) -> None:
    shown = perform("failover", {}, upto="accept_loss")
    loss = outcome(log, "declare_loss")["loss"]
    assert loss["offsets"] > 0
    [text] = shown
    assert f"at most {loss['offsets']:,} |" in text
    assert f"up to when the source was last seen | {loss['rpo_ms'] / 1000:,.1f} |" in text
    assert f"until now | {loss['at_most_ms'] / 1000:,.1f} |" in text
    assert text.index("What is lost") < text.index("source gone")
    assert outcome(log, "accept_loss")["approvals"][0]["by"] == "ops"
    assert world_of(log).apps[PRODUCER].side == "source"


def test_a_failover_and_the_way_back_task_by_task(log: FakeLog) -> None:
    perform("failover", {"accept_loss": "any"}, approval="auto")
    world = world_of(log)
    assert {name: app.side for name, app in world.apps.items()} == {GROUP: "target", PRODUCER: "target"}
    assert outcome(log, "accept_loss")["by"] == "--accept-loss any"
    for _ in range(5):
        world.tick()
    lost = len(world.lost)
    world.revive()
    world.sleep(0.5)
    with pytest.raises(AirflowFailException, match="in Airflow, --divergence is the parameter divergence"):
        perform("failback", {})
    log.records = [each for each in log.records if not each["run"].startswith("failback")]  # another run of the DAG
    [text] = perform("failback", {"divergence": "skip"})
    assert f"{lost} records that were never copied" in text
    assert {name: app.side for name, app in world.apps.items()} == {GROUP: "source", PRODUCER: "source"}
    assert entries(log, "failback")[-1].observation["state"] == "done"


def test_more_than_was_accepted_is_refused_and_taken_back(log: FakeLog) -> None:
    with pytest.raises(AirflowFailException, match=r"more than the 0 .* --accept-loss is the parameter accept_loss"):
        perform("failover", {"accept_loss": 0})
    assert world_of(log).flow_state == "running"


def test_a_source_that_answers_is_fenced_only_if_that_was_chosen(log: FakeLog) -> None:
    log.world = FailoverWorld()  # type: ignore[attr-defined]
    with pytest.raises(AirflowFailException, match="parameter though_source_answers"):
        perform("failover", {})
    log.records.clear()
    perform("failover", {"though_source_answers": True, "accept_loss": "0"})
    steps = [entry.step for entry in entries(log)]
    assert steps.index("fence_source") < steps.index("stop_forwarding")
    assert entries(log)[-1].observation["state"] == "done"


@pytest.mark.parametrize(
    ("kind", "params", "choices"),
    [
        ("failover", {}, NO_CHOICES),
        ("failover", {"accept_loss": "", "though_source_answers": False, "waves": []}, NO_CHOICES),
        ("failover", {"accept_loss": "17"}, RunChoices(accept_loss=17)),
        ("failover", {"accept_loss": 0}, RunChoices(accept_loss=0)),
        ("failover", {"accept_loss": "any"}, RunChoices(accept_loss=sys.maxsize)),
        ("failover", {"though_source_answers": True}, RunChoices(though_source_answers=True)),
        ("failover", {"waves": ["all"]}, RunChoices(waves=("all",))),
        ("failback", {"divergence": "refuse"}, NO_CHOICES),
        ("failback", {"divergence": "reread"}, RunChoices(stranded="reread")),
        ("rollback", {"stranded": "skip", "waves": ["all"]}, RunChoices(stranded="skip")),
        ("migrate", {"waves": ["all"], "strategy": "fenced"}, NO_CHOICES),
    ],
)
def test_what_is_said_is_what_is_chosen(kind: Any, params: dict[str, Any], choices: RunChoices) -> None:
    assert parse_choices(kind, params) == choices
    order = StepOrder("sha256:1", ALL_WAVES, ("a", "b"), "d", RUN, kind, choices=choices)
    assert StepOrder.of_json(order.to_json()) == order
    assert StepOrder.of_json(order.to_json() | {"span": "of an older release"}) == order


@pytest.mark.parametrize(
    ("kind", "params", "said"),
    [
        ("failover", {"accept_loss": "-1"}, "accept_loss is `-1`: say a number of records"),
        ("failover", {"accept_loss": "all"}, "accept_loss is `all`"),
        ("failover", {"accept_loss": True}, "accept_loss is `True`"),
        ("failover", {"though_source_answers": "no"}, "say true or false"),
        ("failback", {"divergence": "merge"}, "`merge` is none of refuse, skip and reread"),
        ("rollback", {"stranded": "drop"}, "`drop` is none of"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything(
    log: FakeLog, kind: Any, params: dict[str, Any], said: str
) -> None:
    begin = BeginWaveOperator(kind=kind, wave=ALL_WAVES, plan="sha256:1", strategy=AS_DECLARED, rehearsal="")
    begin.waves = ["all"] if kind != "rollback" else [ALL_WAVES]
    with pytest.raises(AirflowFailException, match=said):
        begin.choose_branch(context("begin") | {"params": params})
    assert log.records == []


def test_a_loss_that_nobody_could_accept_is_refused_before_anything(log: FakeLog) -> None:
    begin = BeginWaveOperator(kind="failover", wave=ALL_WAVES, plan="sha256:1", strategy=AS_DECLARED, rehearsal="")
    begin.waves = []
    with pytest.raises(AirflowFailException, match="say in accept_loss"):
        begin.choose_branch(context("begin") | {"params": {"approval": "auto"}})
    ready = context("begin") | {"params": {"approval": "auto", "accept_loss": 5}}
    assert begin.choose_branch(ready) == f"{ALL_WAVES}.check"


@pytest.mark.parametrize("choices", [RunChoices(accept_loss=5), RunChoices(though_source_answers=True)])
def test_each_choice_of_a_failover_reaches_the_policy(log: FakeLog, choices: RunChoices) -> None:
    chain = Journal(log, "shop", "reader", world_of(log).clock).refresh()
    for course in (
        preview_run_plan(PLAN, "failover", ALL_WAVES, choices=choices),
        plan_run(PLAN, build_run_choice(PLAN, "failover", ALL_WAVES, choices=choices), chain),
    ):
        assert course.policy.accept_loss == choices.accept_loss
        assert course.policy.though_source_answers == choices.though_source_answers
        assert ("fence_source" in {step.name for step in course.steps}) == choices.though_source_answers


@pytest.mark.parametrize("way", ["skip", "reread", None])
def test_what_becomes_of_records_of_one_side_reaches_the_policy_of_a_way_back(log: FakeLog, way: Any) -> None:
    perform("failover", {"accept_loss": "any"})
    chain = Journal(log, "shop", "reader", world_of(log).clock).refresh()
    course = plan_run(PLAN, build_run_choice(PLAN, "failback", ALL_WAVES, choices=RunChoices(stranded=way)), chain)
    assert course.policy.stranded == way


def test_a_fence_is_taken_back_though_the_choice_is_not_repeated(log: FakeLog) -> None:
    """Also on the command line: --resume and --abandon know it from the journal."""
    log.world = FailoverWorld()  # type: ignore[attr-defined]
    perform("failover", {"though_source_answers": True, "accept_loss": "any"}, upto="declare_loss")
    chain = Journal(log, "shop", "reader", world_of(log).clock).refresh()
    assert plan_run(PLAN, build_run_choice(PLAN, "failover", ALL_WAVES), chain).policy.though_source_answers


def test_a_dry_run_says_what_the_choice_adds(log: FakeLog) -> None:
    task = DryRunOperator(kind="failover", wave=ALL_WAVES, plan="sha256:1", strategy=AS_DECLARED)
    work = context("dry_run")
    assert "fence_source" not in task.execute(work)
    work["params"] = {"though_source_answers": True}
    told = task.execute(work)
    assert "fence_source, by the application" in told
    assert "producers stop at onprem" in told
    assert "undo: the fence is lowered" in told
    assert told.endswith("Nothing was touched.")


def test_a_loss_of_which_little_is_known_is_shown_as_such() -> None:
    seen = TopicPartition("orders|<b>", 0)
    sights = {seen: LastSeenPartition(1_234, 3, 1_763_000_000_000, 1_763_000_000_000 - 2_500)}
    loss = build_failover_loss(1_763_000_060_000, [seen, TopicPartition("orders|<b>", 1)], {}, sights)
    assert isinstance(loss, FailoverLoss)
    assert isinstance(loss.partitions[0], PartitionLoss)
    text = render_approval_evidence(
        AskApproval("g", "ann", "go?", {"declare_loss": {"loss": loss.to_json(), "told": loss.describe()}})
    )
    assert "at most 1,234 |" in text
    assert "seconds of writes, up to when the source was last seen | unknown |" in text
    assert "| orders\\|\\<b\\>-0 | 0 | 1,234 | 1,234 |" in text
    assert "| orders\\|\\<b\\>-1 | 0 | None | unknown |" in text
    assert "the source was last seen | 2025-11-13" in text


def test_many_partitions_are_cut_short() -> None:
    places = [TopicPartition("t", n) for n in range(30)]
    sights = {place: LastSeenPartition(10, 0, 2 * 10**12, 2 * 10**12) for place in places}
    loss = build_failover_loss(2 * 10**12, places, {}, sights)
    text = render_approval_evidence(AskApproval("g", "ann", "go?", {"declare_loss": {"loss": loss.to_json()}}))
    assert text.count("| 10 | 10 |") == 20
    assert "and 10 more partitions" in text


def test_the_wave_of_several_is_named_in_the_order_of_the_file() -> None:
    migration = PLAN.migration
    assert migration is not None
    one = migration.waves[0]
    plan = replace(PLAN, migration=replace(migration, waves=(one, replace(one, name="more"))))
    assert (
        preview_run_plan(plan, "failover", ALL_WAVES, choices=RunChoices(waves=("more", "all"))).wave.name == "all+more"
    )
    assert preview_run_plan(plan, "failover", ALL_WAVES, choices=RunChoices(waves=("more",))).wave.name == "more"
