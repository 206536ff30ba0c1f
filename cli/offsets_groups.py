"""`topology offsets groups`, `sync` and `reset-group`: positions of groups by hand, as the keeper sees them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.actor import name_actor
from watershed.cli.confirmation import require_confirmation
from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.clusters.sync_reports import SyncReport
    from watershed.cutover.operations.group_positions import GroupScene

_path = click.argument("path", type=click.Path(path_type=Path))
_flow = click.option("--flow", "flow_id", required=True, help="The flow that copies the topics.")
_group = click.option("--group", "wanted", multiple=True, help="Only this group (as it is called at the source).")
_form = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.command(epilog="Example: topology offsets groups orders.yaml --flow a-to-b --group billing")
@_path
@_flow
@_group
@_form
def groups(path: Path, flow_id: str, wanted: tuple[str, ...], form: str) -> int:
    """Where every group stands on both sides, and what it would read again or skip if it went on at the target now.

    Nothing is written. A group named with --group is shown even where `sync.groups` does not select it.
    """
    from watershed.cutover.operations.group_positions import compare_positions

    scene = _scene(path, flow_id, wanted)
    _show(scene, compare_positions(scene), form)
    return 0


@click.command(epilog="Example: topology offsets sync orders.yaml --flow a-to-b")
@_path
@_flow
@_group
@_form
def sync(path: Path, flow_id: str, wanted: tuple[str, ...], form: str) -> int:
    """Commit translated positions at the target now: the last time before applications move.

    Only into groups that are empty there and that nobody else has moved. Exit code 1 when a position waits, is left
    alone or is refused; each is named. A flow with `sync.groups.mode: never` takes only groups named with --group.
    """
    from watershed.cutover.operations.group_positions import list_positions_left, require_synced_groups, sync_positions

    require_synced_groups(compile_plan_at(path).flow(flow_id), wanted)
    scene = _scene(path, flow_id, wanted)
    reports = sync_positions(scene, name_actor())
    _show(scene, reports, form)
    left = list_positions_left(reports)
    for report in left:
        click.echo(f"{report.name}: {report.state}: {report.why}", err=True)
    return 1 if left else 0


@click.command("reset-group", epilog="Example: topology offsets reset-group orders.yaml --flow a-to-b --group billing")
@_path
@_flow
@click.option("--group", "group", required=True, help="The group, as it is called at the source.")
@click.option("-t", "--topic", default=None, help="Only this topic (at the source).")
@click.option("-p", "--partition", type=click.IntRange(0), default=None, help="Only this partition.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def reset_group(path: Path, flow_id: str, group: str, topic: str | None, partition: int | None, yes: bool) -> int:
    """Let a group's position at the target go back, or replace a position that another program committed there.

    The decision is journaled with the positions that it answers. The next sync of the group (by the worker, `apply`,
    or `topology offsets sync`) obeys it once, and only while the group is empty and still has these positions.
    Exit code 1 when there is nothing to decide.
    """
    from watershed.cutover.operations.group_positions import NothingToDecide, propose_group_reset

    plan = compile_plan_at(path)
    try:
        proposal = propose_group_reset(plan, build_settings_lookup(plan), flow_id, group, topic, partition)
    except NothingToDecide as nothing:
        click.echo(str(nothing))
        return nothing.exit_code
    for line in proposal.lines:
        click.echo(line)
    if not yes:
        require_confirmation("Order it?")
    for line in proposal.carry_out(name_actor()):
        click.echo(line)
    return 0


def _scene(path: Path, flow_id: str, wanted: tuple[str, ...]) -> GroupScene:
    from watershed.cutover.operations.group_positions import read_group_scene

    plan = compile_plan_at(path)
    return read_group_scene(plan, build_settings_lookup(plan), flow_id, wanted)


def _show(scene: GroupScene, reports: Sequence[SyncReport], form: str) -> None:
    from watershed.cutover.operations.group_positions import encode_positions, render_positions

    if form == "json":
        click.echo(encode_positions(scene.flow, reports))
    else:
        click.echo("\n".join(render_positions(scene.flow, reports)))
