"""Operations beside runs in three tasks: `show` says what would be done, `approve` asks a person with that in view,
`carry_out` does it, in the name of who approved. The functions are those of the command line (`cutover.operations`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, BaseOperator, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskAwaitingInput

from watershed.plugins.operators.approval_evidence import escape_markdown
from watershed.plugins.operators.cutover_steps import find_triggering_user
from watershed.plugins.operators.person_notifier import PersonAwaitedNotifier
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.state_folder import find_frozen_plan
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.clusters.settings import SettingsLookup
    from watershed.cutover.operations.proposal import Proposal
    from watershed.plugins.topology_dags import TopologyFile
    from watershed.topology.plan import Plan

_T = TypeVar("_T")
_MOST_LETTERS = 30_000  # of an evidence in Airflow's database; the task's log has all
_MOST_NOTES, _MOST_LETTERS_OF_NOTE = 100, 1_000
AUTO, MANUAL = "auto", "manual"


def add_operation_tasks(
    dag: DAG, file: TopologyFile, params: Mapping[str, Param], *, family: str, always_asks: bool = False
) -> DAG:
    """Fills a DAG with the tasks of an operation. family: whose params they are, `operation` or `abandon`. always_asks:
    the DAG has no param `approval`."""
    with dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}")
        told: dict[str, Any] = {"plan": frozen, "family": family, "file": file.path.name}
        shown = ShowOperationOperator(task_id="show", **told)
        approval = MANUAL if always_asks else "{{ params.approval }}"
        asked = ApproveOperationOperator(task_id="approve", evidence="show", approval=approval)
        done = CarryOutOperator(task_id="carry_out", evidence="show", answer="approve", approval=approval, **told)
        compiled >> shown >> asked >> done
    dag.params.update(params)  # not before: every task would copy them
    return dag


class ShowOperationOperator(BaseOperator):
    """Says what the operation would do now; nothing is changed. Its result is the evidence of the approval."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, family: str, file: str, **kwargs: Any) -> None:
        super().__init__(retries=1, **kwargs)
        self.plan, self.family, self.file = plan, family, file

    def execute(self, context: Any) -> dict[str, Any]:
        """Fails with what to do where the operation is not possible now."""
        proposal = translate_problems(lambda: propose_for_run(self.plan, self.family, self.file, context["params"]))
        for line in (*proposal.lines, *(f"note: {note}" for note in proposal.notes)):
            self.log.info("%s", escape_control_lines(line))
        if not proposal.is_needed:
            self.log.info("nothing is to be done")
        return encode_evidence(
            proposal.question, proposal.lines, proposal.notes, proposal.basis, is_needed=proposal.is_needed
        )


class ApproveOperationOperator(ApprovalOperator):
    """A person decides, with what would be done in view. Nobody is asked where nothing is to be done, or with
    `approval` = `auto`. evidence: the task whose result is shown. Its result has the `basis` of what was shown."""

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "approval")

    def __init__(self, *, evidence: str, approval: str, **kwargs: Any) -> None:
        super().__init__(subject="Do this?", fail_on_reject=True, notifiers=PersonAwaitedNotifier(), **kwargs)
        self.evidence, self.approval = evidence, approval

    def execute(self, context: Any) -> Any:
        """Asks in the Airflow UI, with the evidence as the body of the question."""
        seen = context["ti"].xcom_pull(self.evidence)
        if not seen["is_needed"]:
            self.log.info("nothing is to be done, so nobody is asked")
            return None
        if self.approval == AUTO:
            self.log.info("approval is `auto`: nobody is asked")
            return None
        question = str(seen["question"])
        self.subject = question[:1].upper() + question[1:]
        self.body = render_evidence(seen)
        try:
            return super().execute(context)
        except TaskAwaitingInput as parked:  # `show` may be done again while the person reads
            parked.kwargs = {"basis": seen["basis"]}
            raise

    def execute_complete(self, context: Any, event: dict[str, Any], basis: str | None = None) -> Any:
        """Fails for a rejection. basis: of what the person saw."""
        return {**super().execute_complete(context, event), "basis": basis}


class CarryOutOperator(BaseOperator):
    """Does what was shown and approved, or fails where nobody approved, or that is not what is there any more.

    evidence, answer: the tasks that showed it and asked. approval: `auto` where nobody was to be asked."""

    template_fields: Sequence[str] = ("plan", "approval")

    def __init__(
        self, *, plan: str, family: str, file: str, evidence: str, answer: str, approval: str, **kwargs: Any
    ) -> None:
        super().__init__(retries=0, **kwargs)  # what was done is not done again: show it, and decide again
        self.plan, self.family, self.file, self.evidence = plan, family, file, evidence
        self.answer, self.approval = answer, approval

    def execute(self, context: Any) -> list[str]:
        """Returns a line for each thing that was done. Skipped where nothing is to be done."""
        from watershed.cutover.operations.proposal import carry_out_approved

        ti = context["ti"]
        seen = ti.xcom_pull(self.evidence)
        if not seen["is_needed"]:
            raise AirflowSkipException("nothing was to be done")
        answer = ti.xcom_pull(self.answer)
        approved = seen["basis"] if self.approval == AUTO else require_approval(answer)
        actor = name_decider(context, answer, self.approval)
        done: list[str] = []

        def act() -> None:
            proposal = propose_for_run(self.plan, self.family, self.file, context["params"])
            for line in carry_out_approved(proposal, approved, actor):
                self.log.info("%s", escape_control_lines(line))
                done.append(escape_control_lines(line))

        translate_problems(act)
        return done


def propose_for_run(plan_hash: str, family: str, file: str, params: Any) -> Proposal:
    """What the run's params ask for, as the clusters are now."""
    from watershed.cutover.operations.abandonment import propose_abandonment
    from watershed.cutover.operations.catalogue import OperationRequest, propose_operation

    plan = find_frozen_plan(plan_hash).read()
    if family == "abandon":
        return propose_abandonment(plan, look_up_settings(plan), force=bool(params.get("force")))
    return propose_operation(plan, look_up_settings(plan), OperationRequest.from_params(params, file))


def look_up_settings(plan: Plan) -> SettingsLookup:
    """Settings of a cluster of the plan by alias, with secrets from this process's environment."""
    from watershed.clusters.settings import resolve_connection_settings

    return lambda alias: resolve_connection_settings(plan.cluster(alias))


def translate_problems(act: Callable[[], _T]) -> _T:
    """Airflow's exceptions for ours: a cluster that does not answer may answer the next try, nothing else will."""
    from watershed.clusters.errors import ClusterError
    from watershed.cutover.errors import CutoverError
    from watershed.replicator.errors import ReplicatorError
    from watershed.topology.errors import NotInPlan

    try:
        return act()
    except ClusterError as problem:
        raise AirflowException(escape_control_lines(str(problem))) from None
    except (CutoverError, ReplicatorError, NotInPlan) as problem:
        raise AirflowFailException(escape_control_lines(str(problem))) from None


def name_operator(dag: str, user: str) -> str:
    """Who acts, as the journal has it: the person and the DAG."""
    return f"{user or 'somebody'}, in Airflow ({dag})"


def name_decider(context: Any, answer: Any, approval: str) -> str:
    """Who decided, as the journal has it: who approved; with `approval` = `auto` who triggered the run."""
    user = find_triggering_user(context) if approval == AUTO else find_approver(answer)
    return name_operator(context["ti"].dag_id, user)


def find_approver(answer: Any) -> str:
    """Who approved, by the result of the approval: the name, or the id of a user without one; "" where it has none."""
    user = answer.get("responded_by_user") if isinstance(answer, dict) else None
    return str((user or {}).get("name") or (user or {}).get("id") or "")


def require_approval(answer: Any) -> str:
    """The basis of what a person approved. Raises AirflowFailException without a person's yes: somebody may mark the
    task that asks as done, or write another result for it."""
    told = answer if isinstance(answer, dict) else {}
    if list(told.get("chosen_options") or ()) != [ApprovalOperator.APPROVE] or not isinstance(told.get("basis"), str):
        raise AirflowFailException(
            "nobody approved this, so nothing was done: the task that asks was marked, or has another result than a "
            "person's Approve. Clear it and the task before it, with all tasks behind them, and decide"
        )
    return str(told["basis"])


def encode_evidence(
    question: str, lines: Iterable[str], notes: Iterable[str], basis: str, *, is_needed: bool
) -> dict[str, Any]:
    """The result of a task that shows what would be done: plain text, of bounded length."""
    text = "\n".join(escape_control_lines(line) for line in lines)
    if len(text) > _MOST_LETTERS:
        text = f"{text[:_MOST_LETTERS]}\n… the rest is in the log of this task"
    told = [escape_control_lines(note) for note in notes]
    left, told = told[_MOST_NOTES:], [_cut_note(note) for note in told[:_MOST_NOTES]]
    if left:
        told.append(f"{len(left):,} more notes are in the log of the task that shows this")
    return {"question": question, "text": text, "notes": told, "basis": basis, "is_needed": is_needed}


def _cut_note(note: str) -> str:
    return note if len(note) <= _MOST_LETTERS_OF_NOTE else f"{note[:_MOST_LETTERS_OF_NOTE]}…"


def render_evidence(seen: dict[str, Any]) -> str:
    """What the person reads, as Markdown: names from clusters stay inside the fence."""
    notes = "".join(f"\n\n**Note:** {escape_markdown(note)}" for note in seen["notes"])
    return "```\n" + str(seen["text"]).replace("```", "'''") + f"\n```{notes}"
