"""Which tasks a wave has in a DAG: run plans as chains of tasks, made from the compiled plan alone.

A task does a step. Between the fence and the switch producers cannot write, and a task costs Airflow seconds: there a
task also does the steps after its own, and the tasks of those find them done in the journal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cutover.migration_step_order import Step
    from cutover.run_choice import RunChoice
    from cutover.run_plan import RunKind, RunPlan
    from topology.migration_waves import PlanMigration, Wave
    from topology.plan import Plan

STRATEGIES = ("consumers_first", "producers_first", "fenced")
AS_DECLARED = "as in the file"
ALL_WAVES = "everything"  # what the migration names, as one wave
WORKER_WAIT_S = 30.0  # so long a step may wait in a worker; longer it waits in the triggerer


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
    """A task. steps: what it does, its own step first. asks: it puts a step's question to a person, and to whom; ""
    is whoever is asked. waits: it waits in the triggerer from the beginning. span: all its steps are its own, and which
    they are depends on the run's strategy."""

    task: str
    steps: tuple[str, ...]
    does: str
    undo: str | None
    asks: str | None = None
    waits: bool = False
    span: bool = False


def preview_run_plan(
    plan: Plan, kind: RunKind, wave: str, strategy: str = "", choices: RunChoices = NO_CHOICES
) -> RunPlan:
    """The run plan of one wave as the file alone has it (`cutover.run_choice`). strategy: another one than the file's.

    Raises NotSupported."""
    from cutover.run_choice import preview_run

    return preview_run(plan, build_run_choice(plan, kind, wave, strategy, choices))


def build_run_choice(
    plan: Plan, kind: RunKind, wave: str, strategy: str = "", choices: RunChoices = NO_CHOICES
) -> RunChoice:
    """What a DAG run asks for. A task keeps the order of steps that its DAG was drawn with: the file's, or the one that
    was asked for."""
    from cutover.run_choice import RunChoice
    from cutover.run_plan import find_wave

    if kind in ("failover", "failback"):
        return RunChoice(
            kind,
            _joined(plan, choices),
            stranded=choices.stranded,
            accept_loss=choices.accept_loss,
            though_source_answers=choices.though_source_answers,
        )
    if kind == "migrate" and strategy in ("", AS_DECLARED):
        strategy = find_wave(plan, wave)[1].strategy
    return RunChoice(kind, wave, strategy or None, choices.stranded)  # type: ignore[arg-type]


def _joined(plan: Plan, choices: RunChoices) -> str | None:
    """The chosen waves under the one name that they have together, in the order of the file; None for all."""
    from cutover.wave_states import WAVE_SEPARATOR

    waves = plan.migration.waves if plan.migration is not None else ()
    return WAVE_SEPARATOR.join(wave.name for wave in waves if wave.name in choices.waves) or None


def list_wave_groups(plan: Plan | None, kind: RunKind) -> list[str]:
    """The waves that a DAG of this kind has, in their order; none where the file declares no such run."""
    from cutover.errors import NotSupported

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
    for at, step in enumerate(run_plan.steps):
        steps = (step.name, *_ahead(run_plan, at))
        row = StepTask(step.name, steps, step.does, step.undo, waits=_waits(step))
        if step.actor != "person":
            rows.append(row)
            continue
        names = _asked(run_plan, step)
        rows += [replace(row, task=f"{step.name}_{name}" if len(names) > 1 else step.name,
                         asks=name if len(names) > 1 else "") for name in names]  # fmt: skip
    return rows


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
    return StepTask(task, tuple(names), told, "each step's own; `topology migrate --dry-run` tells them", span=True)


def _asked(run_plan: RunPlan, step: Step) -> Sequence[str]:
    if run_plan.kind != "migrate":
        return ("",)
    return (run_plan.policy.soak_approvals if step.name == "soak" else run_plan.policy.approvals) or ("operator",)


def _waits(step: Step) -> bool:
    from cutover.step_definitions import STEPS

    return step.actor == "hook" or STEPS[step.name].waits_long or step.usual_ms > WORKER_WAIT_S * 1000


def needs_person(run_plan: RunPlan, step: str) -> bool:
    """Whether a person stops or starts an application of the wave in this step."""
    from cutover.application_steps import list_expected_orders

    return any(each.name in run_plan.policy.persons for each in list_expected_orders(step, run_plan.wave))


def _ahead(run_plan: RunPlan, at: int) -> Iterator[str]:
    """The steps that follow while nobody can write, up to one that somebody else has to do. A task asks a person once,
    so a step in which one is asked begins a task."""
    steps, names = run_plan.steps, [step.name for step in run_plan.steps]
    if "fence_producers" not in names or "switch_producers" not in names:
        return
    if not names.index("fence_producers") <= at < names.index("switch_producers"):
        return
    for step in steps[at + 1 : names.index("switch_producers") + 1]:
        if _waits(step) or step.actor == "person" or needs_person(run_plan, step.name):
            return
        yield step.name
