"""SYC501 group-sync-to-active-group: positions are written into a group that consumes at the target itself.

Why: a group with members refuses the commit; an empty one takes it, and after a pause or restart its consumers jump
back to where the source's group stood, or forward over records nobody read. Found where a scan sees members at the
target, where a migration moves the group there while the sync goes on, and where applications run on both sides
(`active_active`). Use group ids of their own on each side.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        sync: {groups: {mode: continuous, include: [billing]}}
    migration:
      flow: a-to-b
      waves:
        - name: all
          topics: [orders]
          consumers: [billing]
          producers: [checkout]
          rollback: {none: "the source is switched off the same day"}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        sync: {groups: {mode: continuous, exclude: [billing]}}

Source: apache/kafka MirrorCheckpointTask.java, which writes only to groups that are empty or unknown; Amazon MSK
Replicator, active-active: different group ids
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.model import Topology
from topology.rule import Context, Rule
from topology.rules.mention import labels, plural, some, unique
from topology.rules.syc.both_ways import both_ways
from topology.rules.syc.groups import Groups, groups_of, scanned


def check(context: Context) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    told = {flow_id for pair in both_ways(topology) for flow_id in (pair.one.flow.id, pair.two.flow.id)}
    for flow in topology.flows:
        groups = groups_of(flow)
        if not groups.running:
            continue
        yield from _moved(topology, groups)
        active = _with_members(context, groups)
        if active:
            yield from active
        elif flow.id not in told:
            yield from _everywhere(topology, groups)


def _moved(topology: Topology, groups: Groups) -> Iterator[Problem]:
    """Groups that the migration moves to the target while the sync goes on."""
    migration, root = topology.migration, topology.root.at("migration")
    if migration is None or root is None or migration.flow != groups.flow.id or groups.mode != "continuous":
        return
    consumers = [each for wave in root.list("waves") for each in wave.list("consumers") if groups.selects(each.data)]
    if consumers:
        names = unique(each.data for each in consumers)
        yield Problem(
            "SYC501",
            f"flow {groups.flow.id} keeps writing positions of {some(names)}, which the migration moves to "
            f"{groups.flow.target}",
            labels((groups.span, "goes on after the move"), (consumers[0].span, f"consumes at {groups.flow.target}")),
            path=f"{groups.flow.path}.sync.groups",
            ids=(groups.flow.id, *names[:3]),
            help="leave these groups to the migration, which translates their positions: `exclude` them from the sync",
        )


def _with_members(context: Context, groups: Groups) -> list[Problem]:
    """Groups that a scan of the target sees at work."""
    inventory = context.inventory
    there = inventory.cluster(groups.flow.target) if inventory is not None else None
    if there is None:
        return []
    active = [
        there.groups[group.id]
        for group in scanned(context, groups)
        if group.id in there.groups and there.groups[group.id].members > 0
    ]
    if not active:
        return []
    names = [group.id for group in active]
    return [
        Problem(
            "SYC501",
            f"flow {groups.flow.id} writes positions of {some(names)}, in use at {groups.flow.target}",
            labels((groups.span, "writes positions")),
            path=f"{groups.flow.path}.sync.groups",
            ids=(groups.flow.id, *names[:3]),
            notes=(f"`{names[0]}` at {groups.flow.target}: {active[0].state}, {plural(active[0].members, 'member')}",),
            help="exclude the groups, or give the applications of the two sides different group ids",
        )
    ]


def _everywhere(topology: Topology, groups: Groups) -> Iterator[Problem]:
    """In an active-active pattern applications run on every side, so a group that is not named is on both."""
    pattern = topology.root.at("pattern", "active_active")
    if pattern is None or not groups.flow.path.startswith("pattern.active_active"):
        return
    chosen = some([str(each) for each in groups.include]) if groups.include else "all groups"
    yield Problem(
        "SYC501",
        f"flow {groups.flow.id} writes positions of {chosen}, and applications of {groups.flow.target} consume there",
        labels((groups.span, "writes positions"), (pattern.key, "active on all sides")),
        path=f"{groups.flow.path}.sync.groups",
        ids=(groups.flow.id,),
        help="say `sync: {groups: {mode: never}}`, with group ids that name their region",
        confidence="likely",
    )


RULE = Rule("SYC501", "group-sync-to-active-group", "error", __doc__, check)
