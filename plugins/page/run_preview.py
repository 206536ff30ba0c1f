"""What a run would do, before anybody starts it: what `topology migrate --dry-run` says, from the plan alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from watershed.cutover.errors import CutoverError
from watershed.cutover.migration_step_order import Step, describe_way_back, estimate_write_pause_ms
from watershed.cutover.run_plan import RunKind, RunPlan
from watershed.plugins.steps.migration_dag_tasks import (
    AS_DECLARED,
    STRATEGIES,
    RunChoices,
    list_wave_groups,
    preview_run_plan,
)
from watershed.topology.plan import Plan

_Row = dict[str, Any]
_WAVES = 20
PREVIEWED_KINDS: tuple[str, ...] = tuple(kind for kind in get_args(RunKind) if kind != "drill")
_ACTORS = {
    "watershed": "Watershed",
    "application": "the application",
    "proof": "Spark",
    "person": "a person",
    "hook": "your own hooks",
}


def build_run_preview(plan: Plan, kind: str, waves: Sequence[str], strategy: str = "") -> _Row:
    """Of each chosen wave its steps: what each does, who acts, how it is undone, how long it may take; the point of no
    return and the seconds without writes that are to be expected. Connects to nothing.

    plan: its hash; a run that is started with it is refused where the file has changed since. waves: of a migration or
    rollback; empty for all. `problem` says why a wave has no such run.
    """
    if kind not in PREVIEWED_KINDS:
        return {"kind": kind, "plan": plan.hash, "waves": [], "more": 0}
    known = list_wave_groups(plan, kind)  # type: ignore[arg-type]
    by_wave = kind in ("migrate", "rollback")
    chosen = [name for name in known if name in waves or not waves] if by_wave else known
    other = strategy if strategy in STRATEGIES else AS_DECLARED
    choices = RunChoices(waves=() if by_wave else tuple(waves))
    return {
        "kind": kind,
        "plan": plan.hash,
        "waves": [_preview(plan, kind, name, other, choices) for name in chosen[:_WAVES]],
        "more": max(0, len(chosen) - _WAVES),
    }


def _preview(plan: Plan, kind: str, wave: str, strategy: str, choices: RunChoices) -> _Row:
    try:
        run_plan = preview_run_plan(plan, kind, wave, strategy, choices)  # type: ignore[arg-type]
    except CutoverError as problem:
        return {"wave": wave, "problem": str(problem), "steps": []}
    return _told(run_plan)


def _told(run_plan: RunPlan) -> _Row:
    wave, steps = run_plan.wave, run_plan.steps
    return {
        "wave": wave.name,
        "problem": None,
        "source": run_plan.flow.source,
        "target": run_plan.flow.target,
        "strategy": run_plan.policy.strategy if run_plan.kind == "migrate" else None,
        "topics": list(wave.topics[:12]),
        "consumers": list(wave.consumers[:12]),
        "producers": list(wave.producers[:12]),
        "without_writes_ms": estimate_write_pause_ms(steps),
        "way_back": describe_way_back(run_plan.policy) if run_plan.kind == "migrate" else None,
        "steps": [_step(step) for step in steps],
    }


def _step(step: Step) -> _Row:
    return {
        "name": step.name,
        "does": step.does,
        "actor": _ACTORS.get(step.actor, step.actor),
        "undo": step.undo,
        "bound_ms": step.bound_ms,
        "usual_ms": step.usual_ms,
        "point_of_no_return": step.point_of_no_return,
    }
