"""Which tasks a wave has in a DAG: run plans as chains of tasks, made from the compiled plan alone.

A task costs Airflow seconds, a step often milliseconds. So steps that follow each other without a person and without a
long wait are one task, a stage: `check`, `move_consumers`, `move_producers`, `finish`. A person's answer and a long
wait are tasks of their own. The journal and the task's log have every step (decision 0090).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from watershed.cutover.migration_step_order import Step
    from watershed.cutover.run_choice import RunChoice
    from watershed.cutover.run_plan import RunKind, RunPlan
    from watershed.topology.migration_waves import PlanMigration, Wave
    from watershed.topology.plan import Plan

STRATEGIES = ("consumers_first", "producers_first", "fenced")
AS_DECLARED = "as in the file"
ALL_WAVES = "everything"  # what the migration names, as one wave
WORKER_WAIT_S = 30.0  # so long a step may wait in a worker; longer it waits in the triggerer
FENCED_WAIT_S = 600.0  # the same from the fence to the switch: nobody can write, and leaving the worker costs seconds


@dataclass(frozen=True, slots=True)
class RunChoices:
    """What a person decides when triggering a rollback, failover or failback. accept_loss: so many records may be
    missing, None: a person is asked. stranded: where groups continue when only the old source has some records, None
    refuses such a run. waves: those to promote, or that were promoted; () for all."""

    accept_loss: int | None = None
    though_source_answers: bool = False
    stranded: Literal["skip", "reread"] | None = None
    waves: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values only: a trigger's arguments are kept in Airflow's database."""
        return asdict(self) | {"waves": [*self.waves]}

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> RunChoices:
        """Reads what `to_json` wrote."""
        return cls(**{**told, "waves": tuple(told["waves"])})


NO_CHOICES = RunChoices()


@dataclass(frozen=True, slots=True)
class StepTask:
    """A task. steps: what it does, in this order. does: in one line. doc: each step with its undo, as Markdown. asks:
    it puts a step's question to a person, and to whom; "" is whoever is asked. waits: it waits in the triggerer from
    the beginning. span: which steps these are depends on the run's strategy."""

    task: str
    steps: tuple[str, ...]
    does: str
    doc: str
    asks: str | None = None
    waits: bool = False
    span: bool = False


# stage -> the steps that belong to it. A step that is in none belongs to the stage of the step before it.
_STAGES: dict[str, tuple[str, ...]] = {
    "check": (
        *("preflight", "preflight_back", "carry_back", "divergence", "old_groups_empty", "failover_preflight"),
        *("source_gone", "lag_gate", "history_proof"),
    ),
    "declare_loss": ("fence_source", "stop_forwarding", "declare_loss"),
    "promote": ("promote",),
    "move_consumers": ("drain_consumers", "stop_consumers", "translate_offsets"),
    "move_producers": ("hold_reverse", "fence_producers"),
    "finish": ("reverse_flow", "straggler_watch", "end_migration", "forget_groups", "seal", "seal_failover"),
}
_STAGE_OF = {step: stage for stage, steps in _STAGES.items() for step in steps}
_FENCED_STAGES = {False: "move_producers", True: "move_applications"}  # by whether consumers move meanwhile, too


def preview_run_plan(
    plan: Plan, kind: RunKind, wave: str, strategy: str = "", choices: RunChoices = NO_CHOICES
) -> RunPlan:
    """The run plan of one wave as the file alone has it (`cutover.run_choice`). strategy: another one than the file's.

    Raises NotSupported."""
    from watershed.cutover.run_choice import preview_run

    return preview_run(plan, build_run_choice(plan, kind, wave, strategy, choices))


def build_run_choice(
    plan: Plan, kind: RunKind, wave: str, strategy: str = "", choices: RunChoices = NO_CHOICES
) -> RunChoice:
    """What a DAG run asks for. A task keeps the order of steps that its DAG was drawn with: the file's, or the one that
    was asked for. A wave of late groups has one order only."""
    from watershed.cutover.run_choice import RunChoice
    from watershed.cutover.run_plan import find_wave

    if kind in ("failover", "failback"):
        return RunChoice(
            kind,
            _joined(plan, choices),
            stranded=choices.stranded,
            accept_loss=choices.accept_loss,
            though_source_answers=choices.though_source_answers,
        )
    if kind == "migrate":
        found = find_wave(plan, wave)[1]
        strategy = found.strategy if strategy in ("", AS_DECLARED) or found.is_late else strategy
    return RunChoice(kind, wave, strategy or None, choices.stranded)  # type: ignore[arg-type]


def _joined(plan: Plan, choices: RunChoices) -> str | None:
    """The chosen waves under the one name that they have together, in the order of the file; None for all."""
    from watershed.cutover.wave_states import WAVE_SEPARATOR

    waves = plan.migration.waves if plan.migration is not None else ()
    return WAVE_SEPARATOR.join(wave.name for wave in waves if wave.name in choices.waves) or None


def list_wave_groups(plan: Plan | None, kind: RunKind) -> list[str]:
    """The waves that a DAG of this kind has, in their order; none where the file declares no such run."""
    from watershed.cutover.errors import NotSupported

    if plan is None or plan.migration is None:
        return []
    waves = [wave.name for wave in order_waves(plan.migration)]
    names = {"migrate": waves, "rollback": waves[::-1]}.get(kind, [ALL_WAVES])
    found = []
    for name in names:
        with contextlib.suppress(NotSupported):
            preview_run_plan(plan, kind, name)
            found.append(name)
    return found


def order_waves(migration: PlanMigration) -> list[Wave]:
    """The waves, each behind those that its `after` names; else as in the file. One at a time: they share a lock."""
    left = list(migration.waves)
    ordered: list[Wave] = []
    while left:
        names = {wave.name for wave in left}
        ready = next((wave for wave in left if not names & set(wave.after)), left[0])
        ordered.append(ready)
        left.remove(ready)
    return ordered


def list_step_tasks(run_plan: RunPlan) -> list[StepTask]:
    """A task a step, in their order; where several people are asked, a task each."""
    rows: list[StepTask] = []
    for step in run_plan.steps:
        row = StepTask(step.name, (step.name,), step.does, _tell_step(step), waits=waits_long(step))
        if step.actor != "person":
            rows.append(row)
            continue
        names = _asked(run_plan, step)
        rows += [replace(row, task=f"{step.name}_{name}" if len(names) > 1 else step.name,
                         asks=name if len(names) > 1 else "") for name in names]  # fmt: skip
    return rows


def list_stage_tasks(run_plan: RunPlan) -> list[StepTask]:
    """The tasks of a wave: a stage each, a person each, a long wait each. A stage of one step has the step's name."""
    rows: list[StepTask] = []
    steps = {step.name: step for step in run_plan.steps}
    stages = _find_stages(run_plan.steps)
    fenced = list_fenced_steps(run_plan.steps)
    pending: list[StepTask] = []

    def close() -> None:
        if pending:
            taken = {row.task for row in rows}
            rows.append(_join([steps[row.steps[0]] for row in pending], stages[pending[0].steps[0]], taken))
            pending.clear()

    for row in list_step_tasks(run_plan):
        name = row.steps[0]
        if row.asks is not None or (row.waits and name not in fenced):
            close()
            rows.append(row)
            continue
        if pending and (stages[pending[0].steps[0]] != stages[name] or needs_person(run_plan, name)):
            close()  # a task asks a person once, so a step in which one is asked begins a task
        pending.append(row)
    close()
    return rows


def _find_stages(steps: Sequence[Step]) -> dict[str, str]:
    """Step -> stage. From the fence to the switch nobody can write, so that this is one stage whatever is in it."""
    fenced = list_fenced_steps(steps)
    found: dict[str, str] = {}
    stage = "check"
    for step in steps:
        stage = _STAGE_OF.get(step.name, stage)
        if step.name in fenced:
            stage = _FENCED_STAGES["stop_consumers" in fenced]
        found[step.name] = stage
    return found


def list_fenced_steps(steps: Sequence[Step]) -> list[str]:
    """The steps from the fence to the switch; none where nothing is fenced, or a person is asked meanwhile."""
    names = [step.name for step in steps]
    if "fence_producers" not in names or "switch_producers" not in names:
        return []
    first, last = names.index("fence_producers"), names.index("switch_producers")
    return [] if any(step.actor == "person" for step in steps[first:last]) else names[first : last + 1]


def _join(steps: Sequence[Step], stage: str, taken: set[str]) -> StepTask:
    names = tuple(step.name for step in steps)
    task = names[0] if len(steps) == 1 else stage
    if task in taken:
        task = f"{stage}_from_{names[0]}"
    told = steps[0].does if len(steps) == 1 else f"{names[0]} to {names[-1]}".replace("_", " ")
    doc = "\n".join(f"{number}. {_tell_step(step)}" for number, step in enumerate(steps, 1))
    return StepTask(task, names, told, _tell_step(steps[0]) if len(steps) == 1 else doc)


def _tell_step(step: Step) -> str:
    line = "**Point of no return.** " if step.point_of_no_return else ""
    return f"{line}`{step.name}`: {step.does}. *Undo:* {step.undo or 'nothing is changed'}."


def list_span_tasks(run_plan: RunPlan) -> list[StepTask]:
    """The same steps in as few tasks as the questions allow. The tasks are the same whatever the strategy."""
    rows: list[StepTask] = []
    pending: list[str] = []
    for row in list_step_tasks(run_plan):
        if row.asks is None:
            pending.append(row.steps[0])
            continue
        if pending:
            rows.append(_span(f"to_{row.steps[0]}", pending))
        rows.append(row)
        pending = []
    return [*rows, _span("to_end", pending)]


def _span(task: str, names: Sequence[str]) -> StepTask:
    told = f"{names[0]} to {names[-1]}, in the order of the run's strategy".replace("_", " ")
    return StepTask(task, tuple(names), told, f"{told}. A dry run tells every step and its undo.", span=True)


def _asked(run_plan: RunPlan, step: Step) -> Sequence[str]:
    if run_plan.kind != "migrate":
        return ("",)
    return (run_plan.policy.soak_approvals if step.name == "soak" else run_plan.policy.approvals) or ("operator",)


def waits_long(step: Step) -> bool:
    """Whether the step usually waits longer than a worker should: for a hook, for a time of day, or for minutes."""
    from watershed.cutover.step_definitions import STEPS

    return step.actor == "hook" or STEPS[step.name].waits_long or step.usual_ms > WORKER_WAIT_S * 1000


def needs_person(run_plan: RunPlan, step: str) -> bool:
    """Whether a person stops or starts an application of the wave in this step."""
    from watershed.cutover.application_steps import list_expected_orders

    return any(each.name in run_plan.policy.persons for each in list_expected_orders(step, run_plan.wave))


def is_close_to_fence(steps: Sequence[Step], done: str) -> bool:
    """Whether the fence follows behind the step `done` without a person and without a long wait."""
    names = [step.name for step in steps]
    if "fence_producers" not in names or done not in names:
        return False
    between = steps[names.index(done) + 1 : names.index("fence_producers")]
    return not any(step.actor == "person" or waits_long(step) for step in between)
