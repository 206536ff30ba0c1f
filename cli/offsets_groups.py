"""`topology offsets groups`, `sync` and `reset-group`: positions of groups by hand, as the keeper sees them."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.confirmation import require_confirmation
from cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from clusters.sync_reports import SyncReport
    from replicator.sync.group_decisions import GroupObservation, PositionDecision
    from replicator.sync.group_sync import GroupSyncer
    from topology.plan import PlanFlow

_HEAD = ("partition", "committed", "lag", "translated", "at target", "re-read", "skipped", "state")
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
    from replicator.sync.group_decisions import decide_positions, defer_commit

    flow, watch, _ = _watch(path, flow_id, wanted)
    sights = _looked(watch, wanted)
    found = {sight.group: [defer_commit(move) for move in decide_positions(sight)] for sight in sights}
    _show(flow, sights, found, form)
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
    flow, watch, _ = _watch(path, flow_id, wanted)
    if not wanted and flow.sync.groups.mode == "never":
        raise click.UsageError(
            f"{flow_id} carries no groups over (`sync.groups.mode: never`): name those that should be with --group"
        )
    sights = _looked(watch, wanted)
    found = watch.carry(sights)
    reports = _show(flow, sights, found, form)
    left = [report for report in reports if report.state not in ("equal", "carried")]
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
    from clusters.control_topics import ControlWriter
    from replicator.sync.group_control_records import GroupResetDecision, journal_group_reset
    from replicator.sync.group_decisions import decide_positions, is_set_by_another

    flow, watch, topology = _watch(path, flow_id, (group,))
    [sight] = _looked(watch, (group,))
    if sight.refusal:
        raise click.UsageError(f"group {group}: {sight.refusal}")
    held = [
        move
        for move in decide_positions(sight)
        if move.write is None
        and move.at_target is not None
        and move.translated is not None
        and (move.translated != move.at_target or is_set_by_another(sight, move))
        and topic in (None, move.place.topic)
        and partition in (None, move.place.partition)
    ]
    if not held:
        click.echo(f"group {group}: every position is followed, or already there; there is nothing to order")
        return 1
    for move in held:
        click.echo(f"{sight.target_group} at {flow.target}, {move.there}: {move.at_target} -> {move.translated}")
        click.echo(f"  why it is not followed: {move.why}")
        click.echo(f"  reads again {max(0, (move.at_target or 0) - (move.translated or 0))} offsets, "
                   f"skips {max(0, (move.translated or 0) - (move.at_target or 0))}")  # fmt: skip
    if not yes:
        require_confirmation("Order it?")
    order = GroupResetDecision(
        flow.id, sight.target_group, {move.there: move.at_target for move in held if move.there}, getpass.getuser()
    )
    with ControlWriter(watch.sides.target, "watershed-cli") as writer:
        journal_group_reset(writer, order, topology)
    click.echo(f"ordered as {order.id}; `topology offsets sync` does it now, or the keeper with its next round")
    return 0


def _watch(path: Path, flow_id: str, wanted: tuple[str, ...]) -> tuple[PlanFlow, GroupSyncer, str]:
    from replicator.sync.group_sync import GroupSyncer
    from replicator.sync.sync_kind import SyncClusters

    plan = compile_plan_at(path)
    flow = plan.flow(flow_id)
    connect = build_settings_lookup(plan)
    sides = SyncClusters(connect(flow.source), connect(flow.target))
    return flow, GroupSyncer(flow, sides, frozenset(wanted)), plan.topology


def _looked(watch: GroupSyncer, wanted: tuple[str, ...]) -> list[GroupObservation]:
    sights = watch.observe(wanted or None)
    missing = sorted(set(wanted) - {sight.group for sight in sights})
    if missing:
        raise click.UsageError(
            f"{', '.join(missing)}: no such group at {watch.flow.source}, or it holds no position in a topic that "
            f"{watch.flow.id} copies"
        )
    return sights


def _show(
    flow: PlanFlow, sights: list[GroupObservation], found: dict[str, list[PositionDecision]], form: str
) -> list[SyncReport]:
    from replicator.sync.groups import build_group_report

    reports = [build_group_report(flow, sight, found[sight.group]) for sight in sights]
    if form == "json":
        rows = [{"group": each.name, "state": each.state, "why": each.why, **each.detail} for each in reports]
        click.echo(json.dumps({"schema": 1, "flow": flow.id, "groups": rows}, indent=2))
    else:
        click.echo("\n".join(_lines(flow, reports)) or f"no group of {flow.source} holds a position in {flow.id}")
    return reports


def _lines(flow: PlanFlow, reports: Iterable[SyncReport]) -> Iterable[str]:
    for report in reports:
        detail = report.detail
        called = "" if detail["target_group"] == report.name else f" as {detail['target_group']}"
        yield (
            f"{report.name} ({detail['type']}): {report.state}; {detail['state']} at {flow.source}, "
            f"{detail['target_state'] or 'not there'}{called} at {flow.target}"
        )
        if not detail["partitions"]:
            yield f"  {report.why}"
            continue
        if "known" in detail:
            yield f"  {detail['known']}"
        rows = [_row(each) for each in detail["partitions"]]
        widths = [max(len(row[column]) for row in [_HEAD, *rows]) for column in range(len(_HEAD))]
        for row in (_HEAD, *rows):
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:7], widths[1:7], strict=True)),
            ]
            yield f"  {'  '.join(cells)}  {row[7]}"


def _row(partition: dict[str, Any]) -> tuple[str, ...]:
    def number(key: str) -> str:
        return "-" if partition[key] is None else str(partition[key])

    state = partition["state"] + (f": {partition['why']}" if partition["why"] else "")
    keys = ("committed", "lag", "translated", "at_target", "rereads", "skips")
    return (f"{partition['topic']}-{partition['partition']}", *(number(key) for key in keys), state)
