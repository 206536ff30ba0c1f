"""`topology apply`: make the clusters ready and write the desired flows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
from watershed.cutover.operations.moved_applications import describe_moved_applications
from watershed.topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watershed.replicator.apply import AppliedChange
    from watershed.topology.drift import FieldDrift
    from watershed.topology.plan import Plan


@click.command(epilog="Example: topology apply orders.yaml --yes")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask before the first change (only a terminal is asked).")
@click.option(
    "--capabilities",
    "probed",
    multiple=True,
    type=click.Path(path_type=Path),
    help="What `topology probe` saw a cluster do; may be repeated.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def apply(path: Path, yes: bool, probed: tuple[Path, ...], form: str) -> int:
    """Create what the plan needs on its clusters and write the desired flows.

    Creates control topics and missing target topics, and carries over what `sync` asks for. Never deletes anything; an
    existing topic is changed only in configs that `sync.configs: continuous` keeps equal, where that is safe.
    Applying the same file again changes nothing.

    With --capabilities a flow is refused whose cluster failed a probe, before anything is created.
    """
    from watershed.cutover.operations.plan_review import describe_left_alone, list_missing_apply_rights
    from watershed.replicator.apply import apply_plan
    from watershed.topology.inventory_json import decode_capability_record
    from watershed.topology.loader import read_text_file
    from watershed.topology.unsupported_settings import list_unsupported_promises

    plan = compile_plan_at(path)
    records = [decode_capability_record(read_text_file(file)) for file in probed]
    if not yes and sys.stdin.isatty():
        targets = ", ".join(sorted({flow.target for flow in plan.flows}))
        click.confirm(f"Apply {plan.topology} ({len(plan.flows)} flows) to {targets}?", abort=True, err=True)

    def say(change: AppliedChange) -> None:
        if form == "text":
            click.echo(f"{change.cluster}: {change.what} {change.name}" + (f": {change.error}" if change.error else ""))

    for each in list_unsupported_promises(path):
        click.echo(f"note: {each}", err=True)
    connect = build_settings_lookup(plan)
    if lacking := list_missing_apply_rights(plan, connect):
        for line in lacking:
            click.echo(line, err=True)
        return 1
    left: list[FieldDrift] = []
    changes = apply_plan(plan, connect, say, left.append, records)
    if form == "json" or not changes:
        _tell_changes(plan, changes, form)
    for line in describe_moved_applications(plan, connect):
        click.echo(f"note: {line}", err=True)
    if left:
        why = render_shell_command("topology", "plan", path)
        click.echo(f"note: {describe_left_alone(left)}; `{why}` says why", err=True)
    return 1 if any(change.error for change in changes) else 0


def _tell_changes(plan: Plan, changes: Sequence[AppliedChange], form: str) -> None:
    """All of them as a document, or that there is none."""
    if form != "json":
        click.echo(f"{plan.topology}: nothing to change (plan {plan.hash[:19]})")
        return
    rows = [
        {"cluster": change.cluster, "what": change.what, "name": change.name, "error": change.error or None}
        for change in changes
    ]
    click.echo(json.dumps({"schema": 1, "plan": plan.hash, "changes": rows}, indent=2))
