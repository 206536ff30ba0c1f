"""`topology migrate --dry-run`: every step of every wave with its undo, its bound, and where the line is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from watershed.cutover.migration_step_order import Step
    from watershed.cutover.run_plan import RunPlan
    from watershed.topology.migration_waves import Wave, WaveStrategy
    from watershed.topology.plan import Plan


def show_dry_run(plan: Plan, waves: Sequence[Wave], form: str, strategy: WaveStrategy | None = None) -> None:
    """Connects to nothing. strategy: another one than the file's."""
    from watershed.cutover.run_plan import plan_migration

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
    from watershed.cutover.migration_step_order import describe_way_back, estimate_write_pause_ms

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
    from watershed.cutover.run_preview import describe_run

    show_preview_lines(describe_run(plan, run_plan))


def show_run_steps(steps: Sequence[Step]) -> None:
    """Every step with its undo, and where the line is."""
    from watershed.cutover.run_preview import describe_steps

    show_preview_lines(describe_steps(steps))


def show_preview_lines(lines: Iterable[str]) -> None:
    """Prints them; the names of steps and the point of no return are bold."""
    for line in lines:
        number, dot, rest = line.partition(". ")
        name, comma, more = rest.partition(",")
        if dot and number.strip().isdigit():
            line = f"{number}. {click.style(name, bold=True)}{comma}{more}"
        click.echo(click.style(line, bold=True) if line.startswith("═") else line)
