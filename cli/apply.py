"""`topology apply`: make the clusters ready and write the desired flows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.moved_applications import describe_moved_applications
from cli.plan_settings import build_settings_lookup, compile_plan_at
from topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusters.required_role_acls import AccountRole
    from clusters.settings import SettingsLookup
    from topology.drift import FieldDrift
    from topology.plan import Plan


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
    from replicator.apply import AppliedChange, apply_plan
    from topology.inventory_json import decode_capability_record
    from topology.loader import read_text_file
    from topology.unsupported_settings import read_unsupported_settings

    plan = compile_plan_at(path)
    records = [decode_capability_record(read_text_file(file)) for file in probed]
    if not yes and sys.stdin.isatty():
        targets = ", ".join(sorted({flow.target for flow in plan.flows}))
        click.confirm(f"Apply {plan.topology} ({len(plan.flows)} flows) to {targets}?", abort=True, err=True)

    def say(change: AppliedChange) -> None:
        if form == "text":
            click.echo(f"{change.cluster}: {change.what} {change.name}" + (f": {change.error}" if change.error else ""))

    for each in read_unsupported_settings(path):
        click.echo(f"note: {each}", err=True)
    connect = build_settings_lookup(plan)
    if not _has_rights(plan, connect):
        return 1
    left: list[FieldDrift] = []
    changes = apply_plan(plan, connect, say, left.append, records)
    if form == "json":
        rows = [
            {"cluster": change.cluster, "what": change.what, "name": change.name, "error": change.error or None}
            for change in changes
        ]
        click.echo(json.dumps({"schema": 1, "plan": plan.hash, "changes": rows}, indent=2))
    elif not changes:
        click.echo(f"{plan.topology}: nothing to change (plan {plan.hash[:19]})")
    for line in describe_moved_applications(plan, connect):
        click.echo(f"note: {line}", err=True)
    if left:
        _note_unchanged(left, path)
    return 1 if any(change.error for change in changes) else 0


def _has_rights(plan: Plan, connect: SettingsLookup) -> bool:
    """False when the account lacks a right that applying needs: each is named, before anything is changed."""
    from clusters.missing_rights import find_missing_role_rights

    roles: tuple[AccountRole, ...] = ("apply", "align")
    lacking = {role: found for role in roles if (found := find_missing_role_rights(plan, role, connect))}
    for missing in (each for found in lacking.values() for each in found):
        click.echo(str(missing), err=True)
    if lacking:
        how = " and ".join(f"`topology acls --role {role} --format commands`" for role in lacking)
        click.echo(f"nothing was changed; {how} shows how to give them", err=True)
    return not lacking


def _note_unchanged(left: Sequence[FieldDrift], path: Path) -> None:
    kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(Counter(each.kind for each in left).items()))
    click.echo(
        f"note: what differs beside that waits or is left alone ({kinds}); "
        f"`{render_shell_command('topology', 'plan', path)}` says why",
        err=True,
    )
