"""Waves as task groups: the check whether a wave may begin, its chain of stages, what takes it back, its end; and the
dry run, which is a task beside them.

Whether a wave is done, begun or somebody else's is read from the journal, never from task states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, BaseBranchOperator, BaseOperator, Param, TaskGroup, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from watershed.plugins.dag_params import parse_choices, refuse_contradictions
from watershed.plugins.operators.cutover_steps import (
    CutoverApprovalOperator,
    CutoverStepOperator,
    TakeBackOperator,
    WatcherOperator,
)
from watershed.plugins.operators.person_steps import CutoverPersonOperator, PersonTakeBackOperator
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.state_folder import find_frozen_plan
from watershed.plugins.steps.migration_dag_tasks import (
    AS_DECLARED,
    StepTask,
    list_span_tasks,
    list_stage_tasks,
    needs_person,
    preview_run_plan,
)
from watershed.plugins.steps.run_journal import find_done_waves, read_chain_or_fail, read_end_state
from watershed.plugins.steps.step_driver import StepOrder
from watershed.topology.text_escaping import escape_control_lines, escape_controls

if TYPE_CHECKING:
    from watershed.cutover.run_plan import RunKind, RunPlan
    from watershed.plugins.topology_dags import TopologyFile
    from watershed.topology.migration_waves import Wave
    from watershed.topology.plan import Plan


DRY_RUN_TASK = "dry_run"


def build_cutover_asset(topology: str) -> Asset:
    """Emitted when a wave is sealed. Its event says which wave, run, plan, and where the evidence lies."""
    return Asset(f"watershed://{topology}/cutover", group="watershed")


def add_wave_groups(
    dag: DAG,
    file: TopologyFile,
    kind: RunKind,
    waves: Iterable[str],
    params: Mapping[str, Param],
    *,
    outlet: Asset | None = None,
) -> DAG:
    """Fills a DAG with a task group for every wave, one after the other. kind: of all their runs."""
    plan = file.require_plan()
    with dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}")
        before: BaseOperator = compiled
        watcher = WatcherOperator()
        compiled >> watcher
        for wave in waves:
            before = _group(plan, kind, wave, before, watcher, outlet)
    # Not before: every task would get, copy and serialize a set of its own.
    dag.params.update(params)
    return dag


def _group(
    plan: Plan, kind: RunKind, wave: str, before: BaseOperator, watcher: BaseOperator, outlet: Asset | None
) -> BaseOperator:
    told: dict[str, Any] = {"kind": kind, "wave": wave, "plan": "{{ ti.xcom_pull('compile') }}"}
    told["strategy"] = "{{ params.strategy }}" if kind == "migrate" else AS_DECLARED
    asked, rehearsal = {"approval": "{{ params.approval }}"}, "{{ params.dry_run }}"
    run_plan = preview_run_plan(plan, kind, wave)
    with TaskGroup(wave, tooltip=f"{kind} of wave {wave}, along {run_plan.flow.id}"):
        begin = BeginWaveOperator(rehearsal=rehearsal, **told)
        end = EndWaveOperator(rehearsal=rehearsal, outlets=[outlet] if outlet else [], **told)
        undo = (PersonTakeBackOperator if run_plan.policy.persons else TakeBackOperator)(**told)
        previewed = DryRunOperator(**told)
        begin >> previewed
        lanes = [_lane(run_plan, list_stage_tasks(run_plan), told | asked)]
        if kind == "migrate" and not run_plan.wave.is_late:
            with TaskGroup("other_strategy", tooltip="The steps in the order that the run's strategy gives them"):
                lanes.append(_lane(run_plan, list_span_tasks(run_plan), told | asked))
        for lane in lanes:
            begin >> lane[0]
            lane[-1] >> end
            lane >> undo
            lane >> watcher
        [begin, end, undo, previewed] >> watcher
    before >> begin
    return end


def _lane(run_plan: RunPlan, rows: Iterable[StepTask], told: dict[str, Any]) -> list[BaseOperator]:
    tasks: list[BaseOperator] = []
    for row in rows:
        operator: Any = CutoverStepOperator if row.asks is None else CutoverApprovalOperator
        if not row.span and row.asks is None and any(needs_person(run_plan, step) for step in row.steps):
            operator = CutoverPersonOperator
        task: BaseOperator = operator(row=row, **told)
        if tasks:
            tasks[-1] >> task
        tasks.append(task)
    return tasks


class BeginWaveOperator(BaseBranchOperator):
    """Reads the journal, then starts the wave, skips it (not chosen, already done) or fails (another run holds the
    topology, or a wave of `after` is not done). Picks the task chain of the run's strategy, or the dry run."""

    template_fields: Sequence[str] = ("plan", "strategy", "rehearsal", "waves")

    def __init__(
        self, *, kind: RunKind, wave: str, plan: str, strategy: str, rehearsal: bool | str, **kwargs: Any
    ) -> None:
        super().__init__(task_id="begin", trigger_rule=TriggerRule.NONE_FAILED, retries=2, **kwargs)
        self.kind, self.wave, self.plan, self.strategy, self.rehearsal = kind, wave, plan, strategy, rehearsal
        self.waves: Any = "{{ params.get('waves') }}"

    def choose_branch(self, context: Any) -> str:
        """The id of the first task: the dry run, or in the order of the file's strategy, or of the run's."""
        if self.kind in ("migrate", "rollback"):  # the others have one group for whatever is chosen
            if self.waves == []:
                raise AirflowFailException("no wave is chosen: trigger the DAG again and choose at least one")
            if isinstance(self.waves, list) and self.wave not in self.waves:
                raise AirflowSkipException(f"wave {self.wave} is not among the chosen ones: {', '.join(self.waves)}")
        choices = parse_choices(self.kind, context["params"])
        if self.rehearsal is True:
            self.log.info("dry run: no step of wave %s is done", self.wave)
            return f"{self.wave}.{DRY_RUN_TASK}"
        refuse_contradictions(self.kind, choices, str(context["params"].get("approval", "")))
        plan = find_frozen_plan(self.plan).read()
        run_plan = preview_run_plan(plan, self.kind, self.wave)
        ti = context["ti"]
        self.check(StepOrder(self.plan, self.wave, (), ti.dag_id, ti.run_id, self.kind), plan, run_plan.wave)
        if self.strategy in (AS_DECLARED, run_plan.policy.strategy) or run_plan.wave.is_late:
            return f"{self.wave}.{list_stage_tasks(run_plan)[0].task}"
        if run_plan.policy.persons:
            raise AirflowFailException(
                f"a person moves applications of wave {self.wave} ({', '.join(sorted(run_plan.policy.persons))}), so "
                f"its steps run in the order of the file only: write `strategy: {self.strategy}` there"
            )
        self.log.info("in the order of %s instead of %s", self.strategy, run_plan.policy.strategy)
        return f"{self.wave}.other_strategy.{list_span_tasks(run_plan)[0].task}"

    def check(self, order: StepOrder, plan: Plan, wave: Wave) -> None:
        """Fails while another run holds the topology or an earlier wave is missing; skips a wave that is done."""
        from watershed.cutover.journal.hash_chain import describe_holder

        if self.kind != "migrate":
            return  # a rollback or failback may end the run that holds the topology: its first step decides
        chain = read_chain_or_fail(plan)
        held = chain.unfinished()
        if held and held[0].run != order.journal_run:
            raise AirflowFailException(
                f"{chain.topology} is held by {describe_holder(held)}. Finish it (clear its failed task, or "
                f"--resume), or "
                "take it back (its task take_back, or --abandon); two runs at once are never possible"
            )
        done = find_done_waves(plan, chain)
        if self.wave in done and done[self.wave] != order.journal_run:
            raise AirflowSkipException(f"wave {self.wave} is done: {done[self.wave]} in the journal")
        missing = [name for name in wave.after if name not in done]
        if missing:
            raise AirflowFailException(
                f"wave {self.wave} has to wait: {', '.join(missing)} must be done first, and in the journal no run "
                "did it. Choose it too"
            )


class DryRunOperator(BaseOperator):
    """Says what the run would do, as `--dry-run` of the commands: in its log, and as its result. The tasks of the steps
    are skipped meanwhile, so that nobody takes the run for a move."""

    template_fields: Sequence[str] = ("plan", "strategy")

    def __init__(self, *, kind: RunKind, wave: str, plan: str, strategy: str, **kwargs: Any) -> None:
        super().__init__(task_id=DRY_RUN_TASK, **kwargs)
        self.kind, self.wave, self.plan, self.strategy = kind, wave, plan, strategy

    def execute(self, context: Any) -> str:
        """Connects to nothing. Returns the text."""
        from watershed.cutover.errors import CutoverError
        from watershed.cutover.run_preview import describe_run

        plan = find_frozen_plan(self.plan).read()
        choices = parse_choices(self.kind, context["params"])
        try:
            run_plan = preview_run_plan(plan, self.kind, self.wave, self.strategy, choices)
        except CutoverError as problem:
            raise AirflowFailException(escape_control_lines(str(problem))) from None
        lines = [*describe_run(plan, run_plan), "", "Nothing was touched."]
        for line in lines:
            self.log.info("%s", escape_controls(line))
        return "\n".join(escape_controls(line) for line in lines)


class EndWaveOperator(BaseOperator):
    """Emits the cutover asset. The wave is done when the journal says so, whatever the states of its tasks."""

    template_fields: Sequence[str] = ("plan", "strategy", "rehearsal")

    def __init__(
        self, *, kind: RunKind, wave: str, plan: str, strategy: str, rehearsal: bool | str, **kwargs: Any
    ) -> None:
        super().__init__(task_id="end", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS, retries=2, **kwargs)
        self.kind, self.wave, self.plan, self.strategy, self.rehearsal = kind, wave, plan, strategy, rehearsal

    def execute(self, context: Any) -> dict[str, Any]:
        """Fails unless the journal has the run as done. Returns what subscribers of the cutover asset get."""
        if self.rehearsal is True:
            raise AirflowSkipException("dry run: nothing was touched")
        ti = context["ti"]
        order = StepOrder(self.plan, self.wave, (), ti.dag_id, ti.run_id, self.kind)
        entries = read_chain_or_fail(find_frozen_plan(self.plan).read()).run(order.journal_run)
        if not entries:
            raise AirflowFailException(f"the journal has no run {order.journal_run}: this wave never began. {_AGAIN}")
        last = entries[-1]
        if read_end_state(last) != "done":
            raise AirflowFailException(
                f"by the journal, wave {self.wave} is not done: its last entry is {last.step}, {last.kind} "
                f"{read_end_state(last) or ''}. {_AGAIN}"
            )
        order.standby.dismiss()
        told = {"wave": self.wave, "run": order.journal_run, "plan": self.plan, "sealed_ms": last.at_ms}
        told |= {"kind": self.kind, "evidence": str(order.evidence), "journal_root": last.hash}
        for asset in self.outlets:
            context["outlet_events"][asset].extra = told
        return told


_AGAIN = "Clear the first task that was marked or skipped, and all after it; marking a task changes nothing outside"
