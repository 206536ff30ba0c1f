"""Positions of groups by hand: `topology offsets groups`, `sync`, `reset-group`, and the DAGs `inspect__<name>`,
`operate__<name>` and `decide__<name>`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.settings import SettingsLookup
from watershed.clusters.sync_reports import SyncReport
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.replicator.sync.group_control_records import GroupResetDecision, journal_group_reset, record_group_sync
from watershed.replicator.sync.group_decisions import (
    GroupObservation,
    PositionDecision,
    decide_positions,
    defer_commit,
    is_set_by_another,
)
from watershed.replicator.sync.group_sync import GroupSyncer
from watershed.replicator.sync.groups import build_group_report
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import Plan, PlanFlow

_HEAD = ("partition", "committed", "lag", "translated", "at target", "re-read", "skipped", "state")
_SETTLED = ("equal", "carried")


class PositionsLeft(OperationRefused):
    """The others are synced; these positions wait, are left alone or are refused."""

    exit_code = 1


class NothingToDecide(OperationRefused):
    """Every position is followed, or already there."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class GroupScene:
    """The groups of one flow, as both clusters have them now."""

    flow: PlanFlow
    topology: str
    syncer: GroupSyncer
    sights: list[GroupObservation]

    def build_reports(self, found: dict[str, list[PositionDecision]]) -> list[SyncReport]:
        """A report for each group. found: what becomes of its positions."""
        return [build_group_report(self.flow, sight, found[sight.group]) for sight in self.sights]


def read_group_scene(plan: Plan, connect: SettingsLookup, flow_id: str, wanted: Sequence[str] = ()) -> GroupScene:
    """wanted: these groups only, as the source calls them, also where `sync.groups` does not select them. Raises
    ClusterError, NotInPlan; OperationRefused for a group that is not there."""
    flow = plan.flow(flow_id)
    syncer = GroupSyncer(flow, SyncClusters(connect(flow.source), connect(flow.target)), frozenset(wanted), retries=1)
    sights = syncer.observe(tuple(wanted) or None)
    missing = sorted(set(wanted) - {sight.group for sight in sights})
    if missing:
        raise OperationRefused(
            f"{', '.join(missing)}: no such group at {flow.source}, or it holds no position in a topic that "
            f"{flow.id} copies"
        )
    return GroupScene(flow, plan.topology, syncer, sights)


def compare_positions(scene: GroupScene) -> list[SyncReport]:
    """Where every group stands, and what it would read again or skip if it went on at the target now."""
    return scene.build_reports({s.group: [defer_commit(move) for move in decide_positions(s)] for s in scene.sights})


def sync_positions(scene: GroupScene, actor: str) -> list[SyncReport]:
    """Writes down who ordered it, then commits translated positions at the target now; only into groups that are empty
    there and that nobody else has moved. Raises ClusterError."""
    if scene.sights:
        with ControlWriter(scene.syncer.sides.target, "watershed-cli") as writer:
            groups = [sight.group for sight in scene.sights]
            record_group_sync(writer, str(scene.flow.id), groups, actor, scene.topology)
    return scene.build_reports(scene.syncer.carry(scene.sights))


def list_positions_left(reports: Sequence[SyncReport]) -> list[SyncReport]:
    """Those that wait, are left alone or are refused."""
    return [report for report in reports if report.state not in _SETTLED]


def propose_position_sync(plan: Plan, connect: SettingsLookup, flow_id: str, wanted: Sequence[str] = ()) -> Proposal:
    """Commit translated positions at the target. Raises what `read_group_scene` raises, and OperationRefused for a flow
    that carries no groups over where none is named."""
    require_synced_groups(plan.flow(flow_id), wanted)
    scene = read_group_scene(plan, connect, flow_id, wanted)

    def carry_out(actor: str) -> Iterator[str]:
        reports = sync_positions(read_group_scene(plan, connect, flow_id, wanted), actor)
        yield from render_positions(scene.flow, reports)
        if left := list_positions_left(reports):
            raise PositionsLeft("\n".join(f"{each.name}: {each.state}: {each.why}" for each in left))

    lines = tuple(render_positions(scene.flow, compare_positions(scene)))
    # Positions grow while people look. What was approved is which groups, not at which offsets.
    basis = f"sync {flow_id}: {', '.join(sorted(sight.group for sight in scene.sights)) or 'no group'}"
    return Proposal(f"commit the translated positions at {scene.flow.target} now?", lines, basis, carry_out)


def require_synced_groups(flow: PlanFlow, wanted: Sequence[str]) -> None:
    """Raises OperationRefused for a flow that carries no groups over, where none is named."""
    if not wanted and flow.sync.groups.mode == "never":
        raise OperationRefused(
            f"{flow.id} carries no groups over (`sync.groups.mode: never`): name those that should be with --group"
        )


def propose_group_reset(
    plan: Plan,
    connect: SettingsLookup,
    flow_id: str,
    group: str,
    topic: str | None = None,
    partition: int | None = None,
) -> Proposal:
    """Let a group's position at the target go back, or replace a position that another program committed there.

    Raises OperationRefused; NothingToDecide where every position is followed."""
    scene = read_group_scene(plan, connect, flow_id, (group,))
    [sight] = scene.sights
    if sight.refusal:
        raise OperationRefused(f"group {group}: {sight.refusal}")
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
        raise NothingToDecide(f"group {group}: every position is followed, or already there; there is nothing to order")
    lines = []
    for move in held:
        there, translated = move.at_target or 0, move.translated or 0
        lines += [
            f"{sight.target_group} at {scene.flow.target}, {move.there}: {move.at_target} -> {move.translated}",
            f"  why it is not followed: {move.why}",
            f"  reads again {max(0, there - translated)} offsets, skips {max(0, translated - there)}",
        ]
    answers = {move.there: move.at_target for move in held if move.there}

    def carry_out(actor: str) -> Iterator[str]:
        order = GroupResetDecision(scene.flow.id, sight.target_group, answers, actor)
        with ControlWriter(scene.syncer.sides.target, "watershed-cli") as writer:
            journal_group_reset(writer, order, scene.topology)
        yield f"ordered as {order.id}; `topology offsets sync` does it now, or the keeper with its next round"

    basis = f"reset {sight.target_group}: " + ", ".join(f"{place} at {at}" for place, at in sorted(answers.items()))
    return Proposal(f"set positions of group {sight.target_group} back?", tuple(lines), basis, carry_out)


def render_positions(flow: PlanFlow, reports: Sequence[SyncReport]) -> Iterator[str]:
    """A table for each group."""
    if not reports:
        yield f"no group of {flow.source} holds a position in {flow.id}"
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
        if "streams" in detail:
            yield f"  {detail['streams']['told']}"
        rows = [_row(each) for each in detail["partitions"]]
        widths = [max(len(row[column]) for row in [_HEAD, *rows]) for column in range(len(_HEAD))]
        for row in (_HEAD, *rows):
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:7], widths[1:7], strict=True)),
            ]
            yield f"  {'  '.join(cells)}  {row[7]}"


def encode_positions(flow: PlanFlow, reports: Sequence[SyncReport]) -> str:
    """The same as a JSON document."""
    rows = [{"group": each.name, "state": each.state, "why": each.why, **each.detail} for each in reports]
    return json.dumps({"schema": 1, "flow": flow.id, "groups": rows}, indent=2)


def _row(partition: dict[str, Any]) -> tuple[str, ...]:
    def number(key: str) -> str:
        return "-" if partition[key] is None else str(partition[key])

    state = partition["state"] + (f": {partition['why']}" if partition["why"] else "")
    keys = ("committed", "lag", "translated", "at_target", "rereads", "skips")
    return (f"{partition['topic']}-{partition['partition']}", *(number(key) for key in keys), state)
