"""Steps in which a person stops or starts applications: a required action of the Airflow UI with what to do.

Airflow keeps one question for each try of a task. So a step in which a person is asked has a task of its own
(`migration_dag_tasks.needs_person`), one question names all applications of the step, and a further question, which
only a rollback has, is asked in a further try. So it is when a wave is taken back: the applications of one step are
asked about together; the next step's wait, because what is read at the clusters between them has to be true first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.exceptions import AirflowException

from watershed.plugins.operators.approval_evidence import escape_markdown
from watershed.plugins.operators.cutover_steps import (
    RETRY_SETTINGS,
    CutoverStep,
    TakeBackSteps,
    has_failed_in_triggerer,
)
from watershed.plugins.operators.person_notifier import PersonAwaitedNotifier
from watershed.plugins.state_folder import find_frozen_plan
from watershed.plugins.steps.migration_dag_tasks import StepTask, needs_person, preview_run_plan
from watershed.plugins.steps.step_driver import ConfirmationNeeded, StepOrder

if TYPE_CHECKING:
    from watershed.cutover.application_steps import ExpectedOrder
    from watershed.cutover.live.applications.person_application import AskPerson, PersonAnswer, PersonRequest
    from watershed.cutover.run_plan import RunKind, RunPlan

DONE, CANNOT = "Done", "Cannot be done"
# what follows when it cannot be done, or nobody answers
TAKES_BACK = "takes back what the wave did."
STOPS_HERE = "stops the run here: nothing is switched back. Clear this task when it can be done; it asks again then."
STAYS_OPEN = "leaves this rollback open. The next try asks again; when there is none left, clear this task."
IN_ORDER = (
    "What was done in earlier steps is taken back behind that, and asked about then: the order matters, because the "
    "clusters have to show one step before the next."
)
_MOST_QUESTIONS = 8  # so many tries has a task whose questions come one by one
_START_HALTED = "start_halted"


class PersonQuestion(HITLOperator):
    """What tasks that ask persons share: the question, the answer, and driving on. `given` is the answer to the
    question of this try; it counts for every application that the question named."""

    plan: str
    given: PersonAnswer | None = None
    follows = ""  # a sentence about further questions

    def __init__(self, *, task_id: str, subject: str, **kwargs: Any) -> None:
        told: dict[str, Any] = {"defaults": CANNOT, "notifiers": PersonAwaitedNotifier()}
        super().__init__(task_id=task_id, subject=subject, options=[DONE, CANNOT], **told, **kwargs)

    def drive_or_ask(self, context: Any, drive: Callable[[Any], None]) -> None:
        """Drives on; where a person is needed, this task becomes a required action."""
        try:
            drive(context)
        except ConfirmationNeeded as needed:
            if self.given is not None:
                raise AirflowException(f"the next question is asked in the next try: {needed.request.task}") from None
            requests = self.list_requests(context, needed.request)
            self.subject, self.body = render_person_question(requests, self.describe_no(context), self.follows)
            self.response_timeout = timedelta(milliseconds=max(each.timeout_ms for each in requests))
            super().execute(context)

    def list_requests(self, context: Any, first: PersonRequest) -> list[PersonRequest]:
        """All that the question is about: the first is what the run stands at; the others come next, in the same
        step."""
        return [first, *(self.describe_like(first, name, first.role) for name in first.together)]

    def describe_like(self, first: PersonRequest, name: str, role: str) -> PersonRequest:
        """The same that is asked of `first`, of another application of the file."""
        from watershed.topology.application_controls import UNDECLARED_APPLICATION

        plan = find_frozen_plan(self.plan).read()
        assert plan.migration is not None
        app = plan.migration.applications.get(name, UNDECLARED_APPLICATION)
        told = replace(first, words=app.person or "", timeout_ms=app.bound_ms, together=())
        return replace(told, name=name, role=role)

    def describe_no(self, context: Any) -> str:
        """What follows when it cannot be done: the end of a sentence."""
        return TAKES_BACK

    def choose_asker(self, names: Iterable[str] = ()) -> AskPerson:
        """Answers with what was given to the question of this try: it was about the first request, and about the same
        verb at the same cluster for `names` and those that the first request names. Raises ConfirmationNeeded for
        anything else."""
        first: PersonRequest | None = None
        named = set(names)

        def ask(request: PersonRequest) -> PersonAnswer:
            nonlocal first
            first = first or request
            same = (request.verb, request.alias) == (first.verb, first.alias)
            covered = same and request.name in {first.name, *first.together, *named}
            if self.given is None or not covered:
                raise ConfirmationNeeded(request)
            return self.given

        return ask

    def take_answer(self, event: dict[str, Any]) -> None:
        """Reads Airflow's event of an answer, or of one that did not come in time."""
        from watershed.cutover.live.applications.person_application import PersonAnswer

        if "error" in event:
            self.process_trigger_event_error(event)
        if event.get("timedout"):
            self.given = PersonAnswer("late", "nobody")
            return
        who = (event.get("responded_by_user") or {}).get("name") or "somebody"
        done = event["chosen_options"] == [DONE]
        self.given = PersonAnswer("done" if done else "refused", f"{who}, in the Airflow UI or by its API")


class CutoverPersonOperator(CutoverStep, PersonQuestion):
    """A step in which a person stops or starts applications. Who answers late finds the wave taken back."""

    template_fields: Sequence[str] = CutoverStep.template_fields

    def __init__(
        self, *, row: StepTask, kind: RunKind, wave: str, plan: str, strategy: str, approval: str, **kwargs: Any
    ) -> None:
        again = RETRY_SETTINGS | ({"retries": _MOST_QUESTIONS} if _START_HALTED in row.steps else {})
        super().__init__(task_id=row.task, subject=row.does, doc_md=row.doc, **again, **kwargs)
        self.told(row, kind, wave, plan, strategy, approval)

    def execute(self, context: Any) -> None:
        """Does the steps up to where a person is needed, then asks in the Airflow UI."""
        self.drive_or_ask(context, self.begin)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        """After a proof or a long wait: what was confirmed is in the journal, and is not asked again."""
        self.drive_or_ask(context, partial(self.drive, leave_long=not has_failed_in_triggerer(event)))

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Takes the answer from Airflow, and drives the steps on."""
        self.take_answer(event)
        self.drive_or_ask(context, self.drive)

    def asker(self, order: StepOrder) -> AskPerson:
        """The answer to this task's question counts for the applications of its step."""
        return self.choose_asker(each.name for each in self._expected(order))

    def list_requests(self, context: Any, first: PersonRequest) -> list[PersonRequest]:
        """Every application that a person moves in this step, of both roles."""
        known = super().list_requests(context, first)
        named = {each.name for each in known}
        others = [e for e in self._expected(self.order(context)) if e.name not in named and e.verb == first.verb]
        return [*known, *(self.describe_like(first, each.name, each.role) for each in others)]

    def describe_no(self, context: Any) -> str:
        """Behind the point of no return nothing is taken back."""
        run_plan = self._preview(self.order(context))
        names = [step.name for step in run_plan.steps]
        last = next((at for at, step in enumerate(run_plan.steps) if step.point_of_no_return), len(names))
        asks = next((step for step in self.row.steps if needs_person(run_plan, step)), self.row.steps[0])
        return STOPS_HERE if asks in names[last:] else TAKES_BACK

    def _expected(self, order: StepOrder) -> list[ExpectedOrder]:
        """The orders to persons in the steps of this task, as far as the file tells. Which consumers a migration has
        left halted only its journal knows: the request names them."""
        from watershed.cutover.application_steps import list_expected_orders

        run_plan = self._preview(order)
        steps = [step for step in self.row.steps if step != _START_HALTED]
        orders = [each for step in steps for each in list_expected_orders(step, run_plan.wave)]
        return [each for each in orders if each.name in run_plan.policy.persons]

    def _preview(self, order: StepOrder) -> RunPlan:
        return preview_run_plan(find_frozen_plan(self.plan).read(), self.kind, self.wave, choices=order.choices)


class PersonTakeBackOperator(TakeBackSteps, PersonQuestion):
    """Takes back what its wave did, and asks a person where one stopped or started an application."""

    template_fields: Sequence[str] = TakeBackSteps.template_fields
    follows = IN_ORDER

    def __init__(self, *, kind: RunKind, wave: str, plan: str, strategy: str, **kwargs: Any) -> None:
        # As many tries as a rollback may have questions, and some more for what another try repairs.
        told = self.told(kind, wave, plan, strategy, _MOST_QUESTIONS)
        super().__init__(subject="Take back what the wave did", **told, **kwargs)

    def execute(self, context: Any) -> None:
        """Gives up the wave's run, up to where a person is needed."""
        self.drive_or_ask(context, self.take_back)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Takes the answer from Airflow, and goes on taking back."""
        self.take_answer(event)
        self.drive_or_ask(context, self.take_back)

    def describe_no(self, context: Any) -> str:
        """There is nothing more to take back than this."""
        return STAYS_OPEN

    def asker(self) -> AskPerson:
        """The answer counts for the applications that were asked about: those of one step."""
        return self.choose_asker()


def render_person_question(requests: Sequence[PersonRequest], no: str, follows: str = "") -> tuple[str, str]:
    """Headline and text, as Markdown: what to do, and what an answer means (`no`: the end of the sentence about one who
    cannot; follows: a sentence behind it). Whatever names and words are in it, they are no markup."""
    verb = "Stop" if requests[0].verb == "stop" else "Start"
    names = ", ".join(each.name for each in requests)
    minutes = max(each.timeout_ms for each in requests) / 60_000
    lines = [f"{number}. {escape_markdown(each.task)}" for number, each in enumerate(requests, 1)]
    told = (
        f"Answer **{DONE}** when that is true for all of them: the run looks at the cluster then, and goes on. "
        f"**{CANNOT}**, or no answer in {minutes:g} min, {no}{f' {follows}' if follows else ''}"
    )
    return f"{verb} {names} at {requests[0].alias}", "\n".join([*lines, "", told])
