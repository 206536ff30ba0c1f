"""Applications that a person moves, in Airflow: one required action a step, what an answer does, and none in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskAwaitingInput, TaskDeferred

from tests.airflow import test_airflow_cutover as tasks
from tests.airflow.test_airflow_cutover import JOURNAL_RUN, context, perform
from tests.airflow.test_airflow_cutover import world as world  # the fixture
from tests.cutover.world import GROUP, POLICY, PRODUCER, World, a_plan
from tests.cutover.world_back import back_plan
from watershed.cutover.actions import Action, ReadApplication, StartApplication, StopApplication
from watershed.cutover.journal.hash_chain import find_step_outcome
from watershed.cutover.live.application_control import DeclaredApplications, find_journaled_confirmation
from watershed.cutover.live.applications.application_adapter import ApplicationControlFailed, ApplicationOrder
from watershed.cutover.live.applications.person_application import PersonAnswer, PersonRequest
from watershed.cutover.observations import ActionFailed, Observation, ObservedApplication
from watershed.cutover.run_plan import plan_migration
from watershed.plugins.operators import person_steps
from watershed.plugins.operators.person_steps import CANNOT, DONE, CutoverPersonOperator, PersonTakeBackOperator
from watershed.plugins.steps.migration_dag_tasks import (
    AS_DECLARED,
    StepTask,
    list_stage_tasks,
    needs_person,
    preview_run_plan,
)
from watershed.plugins.steps.step_driver import ConfirmationNeeded
from watershed.topology.application_controls import PlanApplication

PERSONAL = {"persons": frozenset({PRODUCER})}
PLAN = a_plan()
assert PLAN.migration is not None
PLAN = replace(
    PLAN,
    migration=replace(
        PLAN.migration,
        applications=PLAN.migration.applications
        | {PRODUCER: PlanApplication(person="call ann <b>", timeout_ms=120_000)},
    ),
)
assert PLAN.migration is not None
OF_GROUP = replace(
    PLAN,
    migration=replace(PLAN.migration, applications=a_plan().migration.applications | {GROUP: PlanApplication()}),  # type: ignore[union-attr]
)
RUN_PLAN = plan_migration(PLAN, None, replace(POLICY, **PERSONAL))
ROWS = {row.task: row for row in list_stage_tasks(RUN_PLAN)}
FENCE, SWITCH = (
    next(row.task for row in ROWS.values() if row.steps[0] == step) for step in ("fence_producers", "switch_producers")
)


@pytest.fixture
def personal(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The applications of `persons`, at first the producer, are moved by whoever answers the tasks' questions, and
    really are when that says so."""
    world.policy, world.plan = PERSONAL, PLAN  # type: ignore[attr-defined]
    monkeypatch.setattr(person_steps, "find_frozen_plan", lambda _hash: SimpleNamespace(read=lambda: world.plan))  # type: ignore[attr-defined]

    def hook(action: Action) -> Observation | None:
        at = int(world.now * 1000)
        if not isinstance(action, ReadApplication | StopApplication | StartApplication):
            return None
        name = action.name
        if name not in world.policy["persons"]:  # type: ignore[attr-defined]
            return None
        if isinstance(action, ReadApplication):
            return ObservedApplication(at, name, "unknown", None, "person")
        told = DeclaredApplications(
            world.plan.migration.applications,  # type: ignore[attr-defined]
            ask=world.ask,  # type: ignore[attr-defined]
            find_confirmation=lambda order: find_journaled_confirmation(journal(world), order),
        )
        verb: Any = "stop" if isinstance(action, StopApplication) else "start"
        alias = {"source": "onprem", "target": "cloud"}[action.side]
        try:
            order = ApplicationOrder(verb, name, action.role, action.side, alias, ("b:1",), "k")
            seen = told.tell(replace(order, together=action.together))
        except ApplicationControlFailed as error:
            return ActionFailed(at, str(error), error.transient)
        world.apps[name].running, world.apps[name].side = verb == "start", action.side
        return ObservedApplication(at, name, seen.state, seen.cluster, seen.by, seen.text)

    world.hook = hook
    return world


def journal(world: World) -> Any:
    from watershed.cutover.journal.hash_chain import Journal

    return Journal(world.log, "shop", "reader").refresh().run(JOURNAL_RUN)  # type: ignore[attr-defined]


def person_task(name: str, row: StepTask | None = None, kind: str = "migrate") -> CutoverPersonOperator:
    told: Any = {"kind": kind, "wave": "all", "plan": "sha256:1", "strategy": AS_DECLARED}
    return CutoverPersonOperator(row=row or ROWS[name], approval="auto", **told)


def asked(name: str, row: StepTask | None = None) -> CutoverPersonOperator:
    task = person_task(name, row)
    with pytest.raises(TaskAwaitingInput):
        task.execute(context(name))
    return task


def answered(task: Any, name: str, choice: str = DONE, **event: Any) -> None:
    who = {"chosen_options": [choice], "params_input": {}, "responded_by_user": {"id": "1", "name": "ops"}}
    act: Callable[[], None] = partial(task.execute_complete, context(name), who | event)
    while True:
        try:
            return act()
        except TaskDeferred as deferred:  # the proof of the tail
            act = partial(getattr(task, deferred.method_name), context(name), tasks.event_of(deferred.trigger))


def perform_person(name: str) -> None:
    task = person_task(name)
    act: Callable[[], None] = partial(task.execute, context(name))
    while True:
        try:
            return act()
        except TaskDeferred as deferred:
            act = partial(getattr(task, deferred.method_name), context(name), tasks.event_of(deferred.trigger))


def up_to(name: str) -> None:
    for each in list(ROWS)[: list(ROWS).index(name)]:
        perform(ROWS[each])


def test_a_step_with_a_person_begins_a_task_of_its_own() -> None:
    assert ROWS[FENCE].steps[-1] == "point_of_no_return"
    assert [row.steps[0] for row in ROWS.values() if any(needs_person(RUN_PLAN, step) for step in row.steps)] == [
        "fence_producers",
        "switch_producers",
    ]


def test_a_person_moves_an_application(personal: World) -> None:
    up_to(FENCE)
    task = asked(FENCE)
    assert task.subject == f"Stop {PRODUCER} at onprem"
    assert "every instance of it" in task.body
    assert "call ann \\<b\\>" in task.body
    assert "or no answer in 2 min, takes back what the wave did." in task.body
    assert "the order matters" not in task.body
    assert task.response_timeout.total_seconds() == 120
    assert personal.apps[PRODUCER].running
    answered(task, FENCE)
    assert not personal.apps[PRODUCER].running
    outcome = find_step_outcome(journal(personal), "fence_producers")
    assert outcome is not None
    assert outcome[0]["stopped"][0]["said"] == "confirmed by ops, in the Airflow UI or by its API"

    task = asked(SWITCH)
    assert task.subject == f"Start {PRODUCER} at cloud"
    assert "stops the run here: nothing is switched back" in task.body  # behind the point of no return
    answered(task, SWITCH)
    for name in list(ROWS)[list(ROWS).index(SWITCH) + 1 :]:
        perform(ROWS[name])
    assert (personal.apps[PRODUCER].side, personal.apps[PRODUCER].running) == ("target", True)
    assert journal(personal)[-1].observation["state"] == "done"


@pytest.mark.parametrize(("event", "words"), [({"timedout": True}, "nobody confirmed in 2 min"), ({}, "not confirmed")])
def test_no_and_no_answer_take_the_wave_back(personal: World, event: dict[str, Any], words: str) -> None:
    up_to(FENCE)
    task = asked(FENCE)
    with pytest.raises(AirflowFailException, match=f"rolled_back at fence_producers: {words}"):
        answered(task, FENCE, CANNOT, **event)
    assert personal.apps[PRODUCER].running
    assert (personal.apps[GROUP].side, personal.apps[GROUP].running) == ("source", True)


def test_a_confirmed_step_is_not_asked_again_when_its_process_dies(personal: World) -> None:
    up_to(FENCE)
    task, hook = asked(FENCE), personal.hook

    def dies(action: Action) -> Observation | None:
        if journal(personal)[-1].step == "standstill":
            raise tasks.Crash
        return hook(action)

    personal.hook = dies
    with pytest.raises(tasks.Crash):
        answered(task, FENCE)
    personal.hook = hook
    perform_person(FENCE)  # asks nobody
    assert find_step_outcome(journal(personal), "point_of_no_return") is not None


def test_what_a_person_stopped_is_started_again_by_a_person_whom_the_rollback_asks(personal: World) -> None:
    personal.verdicts["tail_proof"] = "different"  # type: ignore[attr-defined]
    up_to(FENCE)
    with pytest.raises(AirflowFailException, match="the task take_back asks"):
        answered(asked(FENCE), FENCE)
    assert not personal.apps[PRODUCER].running

    back = PersonTakeBackOperator(kind="migrate", wave="all", plan="sha256:1", strategy=AS_DECLARED)
    with pytest.raises(TaskAwaitingInput):
        back.execute(context("take_back"))
    assert back.subject == f"Start {PRODUCER} at onprem"
    assert "leaves this rollback open" in back.body
    assert "the order matters" in back.body
    answered(back, "take_back")
    tasks.assert_back(personal)
    assert journal(personal)[-1].observation["state"] == "rolled_back"


def test_a_person_who_cannot_undo_leaves_the_rollback_open(personal: World) -> None:
    personal.verdicts["tail_proof"] = "different"  # type: ignore[attr-defined]
    up_to(FENCE)
    with pytest.raises(AirflowFailException):
        answered(asked(FENCE), FENCE)
    back = PersonTakeBackOperator(kind="migrate", wave="all", plan="sha256:1", strategy=AS_DECLARED)
    with pytest.raises(TaskAwaitingInput):
        back.execute(context("take_back"))
    with pytest.raises(AirflowException, match="could not finish: not confirmed") as open_:
        answered(back, "take_back", CANNOT)
    assert not isinstance(open_.value, AirflowFailException)  # another try asks again


def test_an_answer_counts_for_what_was_asked_and_for_nothing_else() -> None:
    task = person_task(FENCE)
    task.given = PersonAnswer("done", "ops")
    ask = task.choose_asker(("b",))

    def request(verb: Any, name: str, alias: str = "onprem") -> PersonRequest:
        return PersonRequest(verb, name, "producer", alias, ("b:1",), "", 60_000)

    assert ask(request("stop", "a")).word == "done"
    assert ask(request("stop", "b")).word == "done"
    for other in (request("stop", "c"), request("start", "a"), request("start", "b"), request("stop", "a", "cloud")):
        with pytest.raises(ConfirmationNeeded):
            ask(other)


def test_a_consumer_that_was_moved_is_stopped_there_and_then_started_here(personal: World) -> None:
    """Two questions, two answers: `stopped at cloud` said nothing of `started at onprem`."""
    personal.policy, personal.plan = {"persons": frozenset({GROUP})}, OF_GROUP  # type: ignore[attr-defined]
    personal.verdicts["tail_proof"] = "different"  # type: ignore[attr-defined]
    run_plan = plan_migration(OF_GROUP, None, replace(POLICY, persons=frozenset({GROUP})))
    rows = list_stage_tasks(run_plan)

    def perform_all() -> None:
        for row in rows:
            if any(needs_person(run_plan, step) for step in row.steps):
                answered(asked(row.task, row), row.task)
            else:
                perform(row)

    with pytest.raises(AirflowFailException, match="the task take_back asks"):
        perform_all()
    told: Any = {"kind": "migrate", "wave": "all", "plan": "sha256:1", "strategy": AS_DECLARED}
    first, second = PersonTakeBackOperator(**told), PersonTakeBackOperator(**told)
    with pytest.raises(TaskAwaitingInput):
        first.execute(context("take_back"))
    assert first.subject == f"Stop {GROUP} at cloud"
    with pytest.raises(AirflowException, match="the next question is asked in the next try"):
        answered(first, "take_back")
    assert not personal.apps[GROUP].running
    with pytest.raises(TaskAwaitingInput):
        second.execute(context("take_back"))
    assert second.subject == f"Start {GROUP} at onprem"
    answered(second, "take_back")
    tasks.assert_back(personal)
    assert journal(personal)[-1].observation["state"] == "rolled_back"


def test_halted_consumers_of_a_rollback_are_those_that_the_run_names(personal: World) -> None:
    """Which they are only the journal knows; behind the point of no return no task could ask at all."""
    migration = replace(OF_GROUP.migration, waves=back_plan().migration.waves)  # type: ignore[type-var, union-attr]
    personal.plan = replace(OF_GROUP, migration=migration)  # type: ignore[attr-defined]
    run_plan = preview_run_plan(personal.plan, "rollback", "all")  # type: ignore[attr-defined]
    row = next(row for row in list_stage_tasks(run_plan) if "start_halted" in row.steps)
    assert row.steps[0] == "start_halted"
    assert needs_person(run_plan, "start_halted")
    task = person_task(row.task, row, "rollback")
    first = PersonRequest("start", "other", "consumer", "onprem", ("b:1",), "", 60_000)
    assert task.list_requests(context(row.task), first) == [first]
    both = replace(first, together=(GROUP,))
    assert [each.name for each in task.list_requests(context(row.task), both)] == ["other", GROUP]
    assert task.describe_no(context(row.task)) == person_steps.STOPS_HERE
    assert task.retries == 8


def test_persons_of_one_undone_step_are_asked_together(personal: World) -> None:
    """And one answer is enough for both; what they say is written down for each."""
    migration = PLAN.migration
    assert migration is not None
    applications = migration.applications | {"ledger": PlanApplication(person="call bob", timeout_ms=600_000)}
    wave = replace(migration.waves[0], producers=(PRODUCER, "ledger"))
    personal.plan = replace(PLAN, migration=replace(migration, applications=applications, waves=(wave,)))  # type: ignore[attr-defined]
    personal.policy = {"persons": frozenset({PRODUCER, "ledger"})}  # type: ignore[attr-defined]
    personal.moves = a_plan(producers=(PRODUCER, "ledger"))  # type: ignore[attr-defined]
    personal.apps["ledger"] = replace(personal.apps[PRODUCER])
    personal.verdicts["tail_proof"] = "different"  # type: ignore[attr-defined]
    up_to(FENCE)
    with pytest.raises(AirflowFailException, match="the task take_back asks"):
        answered(asked(FENCE), FENCE)
    assert not personal.apps["ledger"].running
    back = PersonTakeBackOperator(kind="migrate", wave="all", plan="sha256:1", strategy=AS_DECLARED)
    with pytest.raises(TaskAwaitingInput):
        back.execute(context("take_back"))
    assert back.subject == f"Start {PRODUCER}, ledger at onprem"
    assert "call bob" in back.body
    assert back.response_timeout.total_seconds() == 600
    answered(back, "take_back")
    assert personal.apps[PRODUCER].running
    assert personal.apps["ledger"].running
    deeds = [each for each in journal(personal) if each.deed == "StartApplication" and each.kind == "outcome"]
    said = [each.observation for each in deeds if each.observation["side"] == "source"]
    assert {each["name"]: "ops" in each["said"] for each in said if "said" in each} == {PRODUCER: True, "ledger": True}
    assert not any("together" in each for each in said)


def test_one_question_waits_as_long_as_its_slowest_application(personal: World) -> None:
    migration = OF_GROUP.migration
    assert migration is not None
    applications = {
        PRODUCER: PlanApplication(person="call ann", timeout_ms=120_000),
        "ledger": PlanApplication(person="call bob", timeout_ms=600_000),
    }
    wave = replace(migration.waves[0], producers=(PRODUCER, "ledger"))
    changed = replace(migration, applications=migration.applications | applications, waves=(wave,))
    personal.plan = replace(OF_GROUP, migration=changed)  # type: ignore[attr-defined]
    up_to(FENCE)
    task = asked(FENCE)
    assert task.subject == f"Stop {PRODUCER}, ledger at onprem"
    assert "call bob" in task.body
    assert "no answer in 10 min" in task.body
    assert task.response_timeout.total_seconds() == 600
