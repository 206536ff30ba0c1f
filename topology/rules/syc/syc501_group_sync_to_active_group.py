"""SYC501 group-sync-to-active-group: positions are written into a group that consumes at the target itself.

Why: a group with members refuses the commit; an empty one takes it, and after a pause or restart its consumers jump
back to where the source's group stood, or forward over records nobody read. Found where a scan sees members at the
target, and where applications run on both sides (`active_active`). Use group ids of their own on each side.

A group that the flow's migration moves is carried until it moves, and a failover needs that; behind the switch its
positions at the target are the application's own, which Watershed leaves alone.

Source: apache/kafka MirrorCheckpointTask.java, which writes only to groups that are empty or unknown; Amazon MSK
Replicator, active-active: different group ids
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural, render_some_names
from watershed.topology.rules.syc.declared_group_sync import (
    DeclaredGroupSync,
    build_declared_group_sync,
    list_scanned_groups,
)
from watershed.topology.rules.syc.two_way_group_sync import find_two_way_flows


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    told = {flow_id for pair in find_two_way_flows(topology) for flow_id in (pair.one.flow.id, pair.two.flow.id)}
    for flow in topology.flows:
        groups = build_declared_group_sync(flow)
        if not groups.running:
            continue
        active = _with_members(context, groups, _moved(topology, groups.flow))
        if active:
            yield from active
        elif flow.id not in told:
            yield from _everywhere(topology, groups)


def _moved(topology: Topology, flow: Flow) -> set[str]:
    """Groups that the migration moves from the flow's source to its target."""
    migration = topology.migration
    if migration is None or migration.flow != flow.id:
        return set()
    return {group for wave in migration.waves for group in wave.consumers}


def _with_members(context: RuleContext, groups: DeclaredGroupSync, moved: set[str]) -> list[Problem]:
    """Groups that a scan of the target sees at work, but for those that have moved there."""
    inventory = context.inventory
    there = inventory.cluster(groups.flow.target) if inventory is not None else None
    if there is None:
        return []
    active = [
        there.groups[group.id]
        for group in list_scanned_groups(context, groups)
        if group.id not in moved and group.id in there.groups and there.groups[group.id].members > 0
    ]
    if not active:
        return []
    names = [group.id for group in active]
    return [
        Problem(
            "SYC501",
            f"flow {groups.flow.id} writes positions of {render_some_names(names)}, in use at {groups.flow.target}",
            build_labels((groups.span, "writes positions")),
            path=f"{groups.flow.path}.sync.groups",
            ids=(groups.flow.id, *names[:3]),
            notes=(
                f"`{names[0]}` at {groups.flow.target}: {active[0].state}, "
                f"{render_plural(active[0].members, 'member')}",
            ),
            help="exclude the groups, or give the applications of the two sides different group ids",
        )
    ]


def _everywhere(topology: Topology, groups: DeclaredGroupSync) -> Iterator[Problem]:
    """In an active-active pattern applications run on every side, so a group that is not named is on both."""
    pattern = topology.root.at("pattern", "active_active")
    if pattern is None or not groups.flow.path.startswith("pattern.active_active"):
        return
    chosen = render_some_names([str(each) for each in groups.include]) if groups.include else "all groups"
    yield Problem(
        "SYC501",
        f"flow {groups.flow.id} writes positions of {chosen}, and applications of {groups.flow.target} consume there",
        build_labels((groups.span, "writes positions"), (pattern.key, "active on all sides")),
        path=f"{groups.flow.path}.sync.groups",
        ids=(groups.flow.id,),
        help="say `sync: {groups: {mode: never}}`, with group ids that name their region",
        confidence="likely",
    )


RULE = Rule("SYC501", "group-sync-to-active-group", "error", __doc__, check)
