"""What a dry run tells of a run: who moves, every step with its undo and its bound, and the point of no return.

The command line prints these lines, Airflow's task `dry_run` logs them. No cluster and no journal is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watershed.cutover.migration_step_order import Step, estimate_write_pause_ms
from watershed.cutover.run_plan import RunPlan
from watershed.topology.application_controls import UNDECLARED_APPLICATION
from watershed.topology.plan import Plan

_NO_RETURN = f"{' POINT OF NO RETURN ':═^100}"


def describe_run(plan: Plan, run_plan: RunPlan) -> Iterator[str]:
    """A line each: of a migration with its strategy and who tells each application, then all steps."""
    yield from (describe_migration_head if run_plan.kind == "migrate" else describe_run_head)(plan, run_plan)
    yield from describe_steps(run_plan.steps)


def describe_migration_head(plan: Plan, run_plan: RunPlan) -> Iterator[str]:
    """Wave, flow, strategy, topics and applications."""
    wave, flow, chosen = run_plan.wave, run_plan.flow, run_plan.policy.strategy
    yield f"{plan.topology}, wave {wave.name}: {flow.source} → {flow.target}, plan {plan.hash[:19]}"
    told = chosen if chosen == wave.strategy else f"{chosen} (the file says {wave.strategy})"
    yield f"strategy   {told}" + (f", after {', '.join(wave.after)}" if wave.after else "")
    yield f"topics     {', '.join(wave.topics) or 'all that the flow selects'}"
    for title, names in (("consumers", wave.consumers), ("producers", wave.producers)):
        those = (f"{name} ({_told(plan, name)})" for name in names)
        yield f"{title:10} {', '.join(those) or 'none'}"


def describe_run_head(plan: Plan, run_plan: RunPlan) -> Iterator[str]:
    """Kind, wave, flow, topics and applications."""
    yield f"{plan.topology}: {run_plan.kind} of {run_plan.wave.name}, {run_plan.flow.source} → {run_plan.flow.target}"
    yield f"topics     {', '.join(run_plan.wave.topics)}"
    yield f"consumers  {', '.join(run_plan.wave.consumers) or 'none'}"
    yield f"producers  {', '.join(run_plan.wave.producers) or 'none'}"


def describe_steps(steps: Sequence[Step]) -> Iterator[str]:
    """Every step with who acts, its bound and its undo, behind how long nobody can write."""
    without = estimate_write_pause_ms(tuple(steps))
    if without is not None:
        yield f"no writes  about {without / 1000:.0f} s, between fence and switch, when everybody follows at once"
    for number, step in enumerate(steps, 1):
        yield ""
        if step.point_of_no_return:
            yield from (_NO_RETURN, "")
        bound = f"  (at most {step.bound_ms / 1000:g} s)" if step.bound_ms else ""
        yield f"{number:2}. {step.name}, by {_by(step.actor)}{bound}"
        yield f"    {step.does}"
        yield f"    undo: {step.undo or 'nothing is changed'}"


def _told(plan: Plan, name: str) -> str:
    app = plan.migration.applications.get(name, UNDECLARED_APPLICATION) if plan.migration else UNDECLARED_APPLICATION
    match app.kind:
        case "http":
            return f"told at {app.http}"
        case "command":
            return f"program {app.command} of the host"
        case "airflow":
            assert app.airflow is not None
            return f"DAGs {app.airflow.stop} and {app.airflow.start}"
        case "kubernetes":
            assert app.kubernetes is not None
            return f"{', '.join(app.kubernetes.workloads)} in namespace {app.kubernetes.namespace}"
    return "a person confirms"


def _by(actor: str) -> str:
    words = {"application": "the application", "proof": "Spark", "person": "a person", "hook": "your own hooks"}
    return words.get(actor, "watershed")
