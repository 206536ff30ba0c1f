"""Operators of runs: one Airflow task a stage (`plugins.steps.step_driver` does its steps).

A task holds its worker slot for a wait of up to WORKER_WAIT_S, because leaving it costs some 6 s. For a longer one it
is deferred and comes back:

    a proof      starts the Spark application, waits in the triggerer, comes back with its summary
    an approval  parks as a required action of the Airflow UI at once, comes back with who decided
    a long wait  goes on in the triggerer, from the beginning or after WORKER_WAIT_S

A task that was killed is tried again: the journal decides what is left to do. A refusal is never tried again.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, TriggerRule, get_current_context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed.plugins.api_server_watch import ApiServerWatch
from watershed.plugins.dag_params import explain_options_as_params, parse_choices
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators.approval_evidence import render_approval_evidence
from watershed.plugins.operators.person_notifier import PersonAwaitedNotifier
from watershed.plugins.operators.spark_application import (
    TRIGGER_SETTLE_S,
    ProcessEnded,
    attach_or_start_spark,
    build_spark_environment,
    is_awaited,
    release_application,
)
from watershed.plugins.state_folder import bring_plan, find_frozen_plan, is_state_shared
from watershed.plugins.steps.migration_dag_tasks import (
    AS_DECLARED,
    WORKER_WAIT_S,
    StepTask,
    list_span_tasks,
    preview_run_plan,
)
from watershed.plugins.steps.standby_proof import STANDBY_SUMMARY_FILE, read_history_stay
from watershed.plugins.steps.step_driver import (
    NOTHING_BEGUN,
    ApprovalAnswers,
    ApprovalNeeded,
    ApproveStep,
    ProofNeeded,
    StandbyNeeded,
    StepOrder,
    StillWaiting,
    WaitBudget,
    begin_standby,
    build_proof_arguments,
    defer_approval,
    find_proof_base,
    run_steps,
    take_back_wave,
)
from watershed.plugins.steps.waiting_steps import NEEDS_WORKER, finish_waiting_steps
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.cutover.actions import AskApproval
    from watershed.cutover.live.applications.person_application import AskPerson, PersonAnswer, PersonRequest
    from watershed.cutover.observations import ApprovalAnswer
    from watershed.cutover.run_plan import RunKind
    from watershed.cutover.step_runner import RunResult

_WAIT_LIMIT = timedelta(days=400)  # every wait has a bound of its own in the step; a window may open next year
RETRY_SETTINGS: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=5)}
# A thread for each step that waits in the triggerer.
_WAITING = ThreadPoolExecutor(max_workers=256, thread_name_prefix="watershed-step")
PROOF_WAIT_S = WORKER_WAIT_S  # so long a worker waits for an application
_LOOK_S = 0.2  # between two looks whether an application has ended
_ANSWER_KEY = "answer"  # XCom of the task of a person: where hosts of Airflow have a folder each


class CutoverStep:
    """What both operators below share; a mixin because an approval must be an ApprovalOperator."""

    row: StepTask
    kind: RunKind
    plan: str
    wave: str
    strategy: str
    approval: str
    log: Any
    awaited: DetachedProcess | None = None
    api_server: ApiServerWatch | None = None
    template_fields: Sequence[str] = ("plan", "strategy", "approval")

    if TYPE_CHECKING:

        def defer(
            self,
            *,
            trigger: BaseTrigger,
            method_name: str,
            kwargs: dict[str, Any] | None = None,
            timeout: timedelta | int | float | None = None,
        ) -> NoReturn:
            """As BaseOperator.defer, which every class with this mixin has."""

    def told(self, row: StepTask, kind: RunKind, wave: str, plan: str, strategy: str, approval: str) -> None:
        """Takes what both kinds of step tasks are built with; `plan` and the last two are templates until the task
        runs."""
        self.row, self.kind, self.wave, self.plan = row, kind, wave, plan
        self.strategy, self.approval = strategy, approval

    def order(self, context: Any) -> StepOrder:
        """The steps of this task in this DAG run. With `span` they depend on the run's strategy."""
        ti = context["ti"]
        other, steps = "" if self.strategy == AS_DECLARED else str(self.strategy), self.row.steps
        if self.row.span:
            rows = list_span_tasks(preview_run_plan(find_frozen_plan(self.plan).read(), self.kind, self.wave, other))
            steps = next(row.steps for row in rows if row.task == self.row.task)
        choices = parse_choices(self.kind, context["params"])
        user = find_triggering_user(context)
        return StepOrder(str(self.plan), self.wave, steps, ti.dag_id, ti.run_id, self.kind, other, choices, user)

    def begin(self, context: Any) -> None:
        """The first try, and every other."""
        if self.row.waits:
            self.wait(self.order(context))
        else:
            self.drive(context)

    def drive(self, context: Any, *, leave_long: bool = True) -> None:
        """Do the steps, or leave them for later by deferring. Raises ApprovalNeeded; fails the task when refused."""
        order = self.order(context)
        approve, patience = self.approver(order), WaitBudget(WORKER_WAIT_S)
        while True:
            try:
                result = run_steps(order, self.log, approve, patience, self.asker(order), leave_long=leave_long)
                return _require_not_refused(result)
            except ProofNeeded as needed:
                stay = read_history_stay(build_spark_environment()) if needed.may_stay else 0.0
                application = attach_or_start_spark(
                    needed.folder,
                    "watershed.spark.verify",
                    build_proof_arguments(find_proof_base(order, needed.wanted))
                    + (["--stay", str(stay)] if stay else []),
                    find_frozen_plan(order.plan).topology,
                    self.log,
                    orders=stay > 0,
                )
                self.await_application(application, STANDBY_SUMMARY_FILE if stay else "", proven=True)
            except StandbyNeeded as needed:
                begin_standby(order, needed.wanted, self.log)
                self.await_application(order.standby.process, str(order.standby.summary))
            except StillWaiting:
                return self.wait(order)

    def await_application(self, application: DetachedProcess, file: str = "", *, proven: bool = False) -> None:
        """Waits until it has ended or come to its result (`is_awaited`): for PROOF_WAIT_S here, for longer in the
        triggerer. A triggerer that does not see the folder cannot wait for it."""
        self.awaited, deadline = application, time.monotonic() + PROOF_WAIT_S
        self.api_server = ApiServerWatch()
        application.keep()
        while time.monotonic() < deadline or not is_state_shared():
            self.api_server.look()
            if not is_awaited(application, file, proven=proven):
                self.awaited = None
                return
            time.sleep(_LOOK_S)
        self.awaited = None
        self.log.info("%s goes on; waiting for it in the triggerer", application.folder)
        waiting = ProcessEnded(str(application.folder), file=file, proven=proven)
        self.defer(trigger=waiting, method_name="come_back", timeout=_WAIT_LIMIT)

    def on_kill(self) -> None:
        """Somebody clears or marks this task while it waits for an application: that ends, as in the triggerer."""
        release_application(self.awaited, self.api_server, self.log)

    def wait(self, order: StepOrder) -> None:
        """Leaves the worker slot: the steps go on in the triggerer until they end or need a worker."""
        self.log.info("waiting in the triggerer")
        self.defer(trigger=StepFinished(order), method_name="come_back", timeout=_WAIT_LIMIT)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        """After a proof or a long wait: the journal knows how far the steps are."""
        self.drive(context, leave_long=not has_failed_in_triggerer(event))

    def approver(self, order: StepOrder) -> ApproveStep:
        """Who answers an approval step: nobody is asked with `auto`, else the task is left to a person."""
        from watershed.cutover.driver import approve_all

        return approve_all if self.approval == "auto" else defer_approval

    def asker(self, order: StepOrder) -> AskPerson:
        """Who answers for an application that a person moves: nobody, in a task that asks no person."""
        return refuse_to_ask


def refuse_to_ask(request: PersonRequest) -> PersonAnswer:
    """For steps of which the file does not tell that they need a person. Raises AirflowFailException."""
    raise AirflowFailException(
        f"a person is needed here, and this task cannot ask one: {escape_control_lines(request.task)} Go on in a "
        "terminal, with --resume"
    )


class CutoverStepOperator(CutoverStep, BaseOperator):
    """Steps of a run that need no person."""

    template_fields: Sequence[str] = CutoverStep.template_fields

    def __init__(
        self, *, row: StepTask, kind: RunKind, wave: str, plan: str, strategy: str, approval: str, **kwargs: Any
    ) -> None:
        super().__init__(task_id=row.task, doc_md=row.doc, **RETRY_SETTINGS, **kwargs)
        self.told(row, kind, wave, plan, strategy, approval)

    def execute(self, context: Any) -> None:
        """Does the steps; leaves the worker slot for a proof or a long wait."""
        self.begin(context)


class CutoverApprovalOperator(CutoverStep, ApprovalOperator):
    """A step that a person decides: a required action of the UI, whose text is the evidence so far.

    Rejecting fails the task, after everything done so far was taken back. With `approval` = `auto` nobody is
    asked, and the journal says so. Where a step asks several people, each has such a task, and the last does the step.
    """

    template_fields: Sequence[str] = CutoverStep.template_fields

    def __init__(
        self, *, row: StepTask, kind: RunKind, wave: str, plan: str, strategy: str, approval: str, **kwargs: Any
    ) -> None:
        told: dict[str, Any] = {"fail_on_reject": True, "notifiers": PersonAwaitedNotifier(), **RETRY_SETTINGS}
        super().__init__(task_id=row.task, subject=row.does, doc_md=row.doc, **told, **kwargs)
        self.told(row, kind, wave, plan, strategy, approval)
        self.fresh: ApprovalAnswer | None = None

    def execute(self, context: Any) -> None:
        """Does the steps up to the approval, then asks for it in the Airflow UI."""
        self.drive_or_ask(context, self.begin)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        """After a proof or a long wait: the approval may be next, or be answered already."""
        self.drive_or_ask(context, partial(self.drive, leave_long=not has_failed_in_triggerer(event)))

    def drive_or_ask(self, context: Any, drive: Callable[[Any], None]) -> None:
        """Drives the steps; where one needs a person, this task becomes a required action. Fails for a person who is
        asked in another task and has not answered."""
        try:
            drive(context)
        except ApprovalNeeded as needed:
            if self.row.asks not in ("", needed.wanted.by):
                if self.find_answer(self.order(context), str(self.row.asks)) is None:
                    raise AirflowFailException(
                        f"{needed.wanted.by} has not answered yet: clear that task, and then this one"
                    ) from None
                self.log.info("%s has answered; %s is asked next", self.row.asks, needed.wanted.by)
                return
            self.subject = needed.wanted.question[:1].upper() + needed.wanted.question[1:]
            self.body = render_approval_evidence(needed.wanted)
            super().execute(context)

    def approver(self, order: StepOrder) -> ApproveStep:
        """Answers kept from earlier tasks of this run count first, then the one just given."""
        decide = super().approver(order)

        def answer(asked: AskApproval) -> ApprovalAnswer:
            kept = self.find_answer(order, asked.by)
            if kept is None and self.fresh is not None:  # it belongs to the first person without an answer
                kept, self.fresh = self.fresh, None
                ApprovalAnswers.of(order).keep(order, asked.by, kept)
            if kept is not None and asked.by == self.row.asks and not is_state_shared():  # a new try has no XCom
                told = {"granted": kept.granted, "by": kept.by, "note": kept.note}
                get_current_context()["ti"].xcom_push(_ANSWER_KEY, told)
            return kept or decide(asked)

        return answer

    def find_answer(self, order: StepOrder, by: str) -> ApprovalAnswer | None:
        """The answer of `by`, which was given to this task, or to that person's task, on whatever host; None while
        there is none. Where hosts have a folder each, XCom counts: an older answer stays in the folder of its host. The
        folder has only what an earlier try of this task was told."""
        from watershed.cutover.observations import ApprovalAnswer

        kept = ApprovalAnswers.of(order).given(order, by)
        if is_state_shared():
            return kept
        task = f"{self.task_id.removesuffix(self.row.task)}{self.row.steps[0]}_{by}"
        if told := get_current_context()["ti"].xcom_pull(task, key=_ANSWER_KEY):
            return ApprovalAnswer(0, **told)
        return kept if self.row.asks in ("", by) else None

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Takes the answer from Airflow, with the name of the user, and drives the steps on."""
        from watershed.cutover.observations import ApprovalAnswer

        if "error" in event:
            self.process_trigger_event_error(event)
        granted = event["chosen_options"] == [self.APPROVE]
        who = (event.get("responded_by_user") or {}).get("name") or "somebody"
        self.fresh = ApprovalAnswer(0, granted=granted, by=who, note="in the Airflow UI or by its API")
        self.drive_or_ask(context, self.drive)


class TakeBackSteps:
    """What both operators share that take back a wave; a mixin because one of them asks persons."""

    kind: RunKind
    plan: str
    wave: str
    strategy: str
    log: Any
    template_fields: Sequence[str] = ("plan", "strategy")

    def told(self, kind: RunKind, wave: str, plan: str, strategy: str, retries: int) -> dict[str, Any]:
        """Takes what the operators are built with; returns what Airflow's own operator is built with."""
        self.kind, self.wave, self.plan, self.strategy = kind, wave, plan, strategy
        again = {"retries": retries, "retry_delay": timedelta(seconds=10)}
        return {"task_id": "take_back", "trigger_rule": TriggerRule.ONE_FAILED, **again}

    def asker(self) -> AskPerson:
        """Who answers for an application that a person moves: nobody, where none is."""
        return refuse_to_ask

    def take_back(self, context: Any) -> None:
        """Gives up the wave's run. Skipped when it never began; fails when its rollback could not end."""
        from watershed.clusters.errors import ClusterError
        from watershed.cutover.errors import CutoverError

        ti = context["ti"]
        other = "" if self.strategy == AS_DECLARED else str(self.strategy)
        choices = parse_choices(self.kind, context["params"])
        user = find_triggering_user(context)
        order = StepOrder(self.plan, self.wave, (), ti.dag_id, ti.run_id, self.kind, other, choices, user)
        try:
            result = take_back_wave(order, self.log, self.asker())
        except (ClusterError, CutoverError) as problem:
            raise AirflowException(escape_control_lines(str(problem))) from None
        if result.reason == NOTHING_BEGUN:
            raise AirflowSkipException(f"wave {self.wave}: nothing had begun")
        self.log.info("%s: %s", result.state, escape_control_lines(result.reason))
        if result.state == "stopped":
            raise AirflowFailException(escape_control_lines(result.reason))
        if not result.finished:
            raise AirflowException(escape_control_lines(result.reason))


class TakeBackOperator(TakeBackSteps, BaseOperator):
    """Runs when a step failed: takes back what its wave did, or finishes a rollback that could not end."""

    template_fields: Sequence[str] = TakeBackSteps.template_fields

    def __init__(self, *, kind: RunKind, wave: str, plan: str, strategy: str, **kwargs: Any) -> None:
        super().__init__(**self.told(kind, wave, plan, strategy, 3), **kwargs)

    def execute(self, context: Any) -> None:
        """As `take_back`."""
        self.take_back(context)


class WatcherOperator(BaseOperator):
    """The last task: fails when any other did, so that the run fails although what was done was taken back."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(task_id="watcher", trigger_rule=TriggerRule.ONE_FAILED, retries=0, **kwargs)

    def execute(self, context: Any) -> None:
        """Fails, always: Airflow runs it only when another task has failed."""
        raise AirflowFailException("a step failed; its log says why, and the task take_back what was taken back")


class StepFinished(BaseTrigger):
    """Lets a separate process finish the waiting steps. Fires when they have ended or need a worker."""

    def __init__(self, order: StepOrder | dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        if isinstance(order, dict):
            order = StepOrder.of_json(order)
        self.order = order

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        return "watershed.plugins.operators.cutover_steps.StepFinished", {"order": self.order.to_json()}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, with how the steps ended or why they need a worker."""
        stop = threading.Event()
        await asyncio.sleep(TRIGGER_SETTLE_S)
        await bring_plan(self, self.order.plan)
        try:
            # Airflow finds the task's log by a context variable, which a thread has only in a copy of the context.
            context = contextvars.copy_context()
            text = await asyncio.get_running_loop().run_in_executor(
                _WAITING, context.run, finish_waiting_steps, self.order, self.log, stop
            )
        finally:
            stop.set()  # cancelled: another triggerer goes on; the thread leaves at its next pause
        yield TriggerEvent({"seen": text})


def _require_not_refused(result: RunResult) -> None:
    """A step that was refused fails its task, with what was taken back."""
    if result.exit_code:
        again = "" if result.state == "stopped" else ". To try again, trigger a new run"
        raise AirflowFailException(
            f"{result.state} at {result.step}: {escape_control_lines(explain_options_as_params(result.reason))}{again}"
        )


def find_triggering_user(context: Any) -> str:
    """Who triggered the DAG run, as Airflow calls him; "" for a schedule, and where Airflow does not say."""
    return str(getattr(context.get("dag_run"), "triggering_user_name", None) or "")


def has_failed_in_triggerer(event: Any) -> bool:
    """Whether a wait came back because the triggerer could not go on: the worker then meets the problem itself."""
    return isinstance(event, dict) and str(event.get("seen", "")).startswith(NEEDS_WORKER)
