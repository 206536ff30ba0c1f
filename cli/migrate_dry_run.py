"""`topology migrate --dry-run`: every step of every wave with its undo, its bound, and where the line is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from topology.application_controls import UNDECLARED_APPLICATION

if TYPE_CHECKING:
    from cutover.migration_step_order import Step
    from cutover.run_plan import RunPlan
    from topology.migration_waves import Wave, WaveStrategy
    from topology.plan import Plan


def show_dry_run(plan: Plan, waves: Sequence[Wave], form: str, strategy: WaveStrategy | None = None) -> None:
    """Connects to nothing. strategy: another one than the file's."""
    from cutover.run_plan import plan_migration

    run_plans = [plan_migration(plan, wave.name, strategy=strategy) for wave in waves]
    if form == "json":
        shown = [_document(run_plan) for run_plan in run_plans]
        document = {"schema": 1, "plan": plan.hash, "waves": shown}
        if len(shown) == 1:  # scripts read the fields of a single wave at the top
            document |= {"wave": shown[0]["wave"], "steps": shown[0]["steps"]}
        click.echo(json.dumps(document, indent=2))
        return
    for number, run_plan in enumerate(run_plans):
        if number:
            click.echo()
        _tell(plan, run_plan)
    click.echo("\nNothing was touched.")


def _document(run_plan: RunPlan) -> dict[str, Any]:
    from cutover.migration_step_order import describe_way_back, estimate_write_pause_ms

    wave, steps = run_plan.wave, run_plan.steps
    return {
        "wave": wave.name,
        "after": list(wave.after),
        "strategy": run_plan.policy.strategy,
        "topics": list(wave.topics),
        "without_writes_ms": estimate_write_pause_ms(steps),
        "way_back": describe_way_back(run_plan.policy),
        "steps": [asdict(step) for step in steps],
    }


def _tell(plan: Plan, run_plan: RunPlan) -> None:
    wave, flow, chosen = run_plan.wave, run_plan.flow, run_plan.policy.strategy
    click.echo(f"{plan.topology}, wave {wave.name}: {flow.source} → {flow.target}, plan {plan.hash[:19]}")
    told = chosen if chosen == wave.strategy else f"{chosen} (the file says {wave.strategy})"
    click.echo(f"strategy   {told}" + (f", after {', '.join(wave.after)}" if wave.after else ""))
    click.echo(f"topics     {', '.join(wave.topics) or 'all that the flow selects'}")
    for title, names in (("consumers", wave.consumers), ("producers", wave.producers)):
        those = (f"{name} ({_told(plan, name)})" for name in names)
        click.echo(f"{title:10} {', '.join(those) or 'none'}")
    show_run_steps(run_plan.steps)


def show_run_steps(steps: Sequence[Step]) -> None:
    """Every step with its undo, and where the line is."""
    from cutover.migration_step_order import estimate_write_pause_ms

    without = estimate_write_pause_ms(tuple(steps))
    if without is not None:
        click.echo(f"no writes  about {without / 1000:.0f} s, between fence and switch, when everybody follows at once")
    for number, step in enumerate(steps, 1):
        if step.point_of_no_return:
            click.echo(click.style(f"\n{' POINT OF NO RETURN ':═^100}", bold=True))
        bound = f"  (at most {step.bound_ms / 1000:g} s)" if step.bound_ms else ""
        click.echo(f"\n{number:2}. {click.style(step.name, bold=True)}, by {_by(step.actor)}{bound}")
        click.echo(f"    {step.does}")
        click.echo(f"    undo: {step.undo or 'nothing is changed'}")


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
