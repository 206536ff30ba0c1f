"""Operators of `migrate__<name>`: one Airflow task a cutover step (`plugins.watershed_steps` does the step).

What a step must not wait for in a worker, it waits for elsewhere, and comes back:

    a proof      starts the Spark application, waits in the triggerer, comes back with its summary
    an approval  parks as a required action of the Airflow UI, comes back with who decided
    a long wait  goes on in the triggerer after PATIENCE seconds
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from plugins.watershed_spark import SETTLE_SECONDS, ProcessEnded, attach_or_start
from plugins.watershed_state import frozen_plan, run_folder, task_folder
from plugins.watershed_steps import (
    ApprovalNeeded,
    Order,
    Patience,
    ProofNeeded,
    Row,
    StillWaiting,
    ask_later,
    evidence_text,
    proof_arguments,
    roll_back,
    run_step,
)

if TYPE_CHECKING:
    from cutover.actions import AskApproval
    from cutover.consumers_first import Result
    from cutover.observations import ApprovalSeen

PATIENCE = 30.0  # seconds that a step may wait in a worker
WAIT_LIMIT = timedelta(days=2)  # every wait has a shorter bound of its own in the step


class CutoverStep:
    """What operators of steps have in common; a mixin because an approval must be an ApprovalOperator."""

    plan: str
    wave: str
    step: str
    rehearsal: bool | str
    approval: str
    log: Any
    defer: Callable[..., None]

    def order(self, context: Any) -> Order:
        ti = context["ti"]
        return Order(str(self.plan), str(self.wave), self.step, ti.dag_id, ti.run_id)

    def drive(self, context: Any, approve: Callable[[AskApproval], ApprovalSeen] | None = None) -> None:
        """Do the step, or leave it for later by deferring. Raises ApprovalNeeded; fails the task when refused."""
        order, folder = self.order(context), task_folder(context)
        try:
            conclude(run_step(order, self.log, folder, approve or self.approver(), Patience(PATIENCE).sleep))
        except ProofNeeded as needed:
            application = attach_or_start(
                folder, "spark.verify", proof_arguments(needed.wanted), frozen_plan(order.plan).topology, self.log
            )
            self.defer(trigger=ProcessEnded(str(application.folder)), method_name="come_back", timeout=WAIT_LIMIT)
        except StillWaiting:
            self.log.info("waiting on in the triggerer")
            self.defer(trigger=StepFinished(order), method_name="come_back", timeout=WAIT_LIMIT)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        """After a proof or a long wait: the journal knows how far the step is."""
        self.drive(context)

    def approver(self) -> Callable[[AskApproval], ApprovalSeen]:
        from cutover.driver import approve_all

        return approve_all if self.approval == "auto" else ask_later

    def rehearse(self, does: str, undo: str | None) -> None:
        self.log.info("dry run: %s", does)
        self.log.info("its undo: %s", undo or "nothing to undo")


class CutoverStepOperator(CutoverStep, BaseOperator):
    """One step of the migration. Never retried: the journal decides what is left to do, a person clears the task."""

    template_fields: Sequence[str] = ("plan", "wave", "rehearsal", "approval")

    def __init__(self, *, row: Row, plan: str, wave: str, rehearsal: str, approval: str, **kwargs: Any) -> None:
        super().__init__(task_id=row.name, retries=0, doc_md=_doc(row), **kwargs)
        self.row, self.step = row, row.name
        self.plan, self.wave, self.rehearsal, self.approval = plan, wave, rehearsal, approval

    def execute(self, context: Any) -> None:
        if self.rehearsal is True:
            self.rehearse(self.row.does, self.row.undo)
        else:
            self.drive(context)


class CutoverApprovalOperator(CutoverStep, ApprovalOperator):
    """A step that a person decides: a required action of the UI, whose text is the evidence so far.

    Rejecting fails the task, after everything done so far was taken back. With `approval` = `auto` nobody is
    asked, and the journal says so.
    """

    template_fields: Sequence[str] = ("plan", "wave", "rehearsal", "approval")

    def __init__(self, *, row: Row, plan: str, wave: str, rehearsal: str, approval: str, **kwargs: Any) -> None:
        super().__init__(task_id=row.name, subject=row.does, fail_on_reject=True, retries=0, doc_md=_doc(row), **kwargs)
        self.row, self.step = row, row.name
        self.plan, self.wave, self.rehearsal, self.approval = plan, wave, rehearsal, approval

    def execute(self, context: Any) -> None:
        if self.rehearsal is True:
            self.rehearse(self.row.does, self.row.undo)
        else:
            self.drive_or_ask(context)

    def drive_or_ask(self, context: Any) -> None:
        try:
            self.drive(context)
        except ApprovalNeeded as needed:
            self.subject = needed.wanted.question[:1].upper() + needed.wanted.question[1:]
            self.body = evidence_text(needed.wanted)
            super().execute(context)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        self.drive_or_ask(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        from cutover.observations import ApprovalSeen

        if "error" in event:
            self.process_trigger_event_error(event)
        granted = event["chosen_options"] == [self.APPROVE]
        who = (event.get("responded_by_user") or {}).get("name") or "somebody"
        seen = ApprovalSeen(0, granted=granted, by=who, note="in the Airflow UI or by its API")
        self.drive(context, approve=lambda asked: seen)


class RollbackOperator(BaseOperator):
    """Runs when a step failed: says what was taken back, and finishes a rollback that could not end."""

    template_fields: Sequence[str] = ("plan", "wave")

    def __init__(self, *, plan: str, wave: str, **kwargs: Any) -> None:
        again = {"retries": 3, "retry_delay": timedelta(seconds=10)}
        super().__init__(task_id="rollback", trigger_rule=TriggerRule.ONE_FAILED, **again, **kwargs)
        self.plan, self.wave = plan, wave

    def execute(self, context: Any) -> None:
        from clusters.errors import ClusterError
        from cutover.errors import CutoverError

        ti = context["ti"]
        try:
            result = roll_back(Order(self.plan, self.wave, "rollback", ti.dag_id, ti.run_id), self.log)
        except (ClusterError, CutoverError) as problem:
            raise AirflowException(str(problem)) from None
        self.log.info("%s: %s", result.state, result.reason)
        if not result.finished:
            raise AirflowException(result.reason)


class WatcherOperator(BaseOperator):
    """The last task: fails when any other did, so that the run fails although its rollback succeeded."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(task_id="watcher", trigger_rule=TriggerRule.ONE_FAILED, retries=0, **kwargs)

    def execute(self, context: Any) -> None:
        raise AirflowFailException("a step failed; its log says why, and the task rollback what was taken back")


class StepFinished(BaseTrigger):
    """Does the rest of a waiting step in a thread of the triggerer, and fires when it is over or needs a worker."""

    def __init__(self, order: Order | dict[str, str]) -> None:
        super().__init__()
        self.order = order if isinstance(order, Order) else Order(**order)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "plugins.watershed_cutover.StepFinished", {"order": asdict(self.order)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        patience = Patience(None)
        folder = run_folder(self.order.dag, self.order.run) / self.order.step
        await asyncio.sleep(SETTLE_SECONDS)
        try:
            work = asyncio.to_thread(run_step, self.order, self.log, folder, ask_later, patience.sleep)
            result = await asyncio.shield(asyncio.ensure_future(work))
            text = f"{result.state} {result.reason}".strip()
        except (ProofNeeded, ApprovalNeeded) as needed:
            text = f"needs {needed}"
        except asyncio.CancelledError:
            patience.stop.set()  # another triggerer goes on; the thread leaves at its next pause
            raise
        yield TriggerEvent({"seen": text})


def conclude(result: Result) -> None:
    """A step that was refused fails its task, with what was taken back."""
    if result.state not in ("done", "paused"):
        raise AirflowFailException(f"{result.state} at {result.step}: {result.reason}")


def _doc(row: Row) -> str:
    return f"{row.does[:1].upper()}{row.does[1:]}.\n\n*Undo:* {row.undo or 'nothing is changed'}."
