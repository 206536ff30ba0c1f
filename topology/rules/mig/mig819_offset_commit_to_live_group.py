"""MIG819 offset-commit-to-live-group: a group that is to move already has members at the target.

Why: translated positions cannot be committed into a group with members, so the wave is refused in the middle of its
window; and whoever those members are, they read already. Waves that have started are not looked at: their groups
belong there. Where the journal was not read, only groups with members on both sides are told.

Source: apache/kafka GroupCoordinator, UNKNOWN_MEMBER_ID for a commit into a live group
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import InventoryCluster
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural, render_some_names
from watershed.topology.rules.mig.declared_waves import find_migration_flow, list_declared_waves
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    inventory = context.inventory
    there = inventory.cluster(flow.target) if inventory is not None and flow is not None else None
    if topology is None or inventory is None or flow is None or there is None:
        return
    here = inventory.cluster(flow.source)
    for move in list_declared_waves(topology):
        if f"{topology.name}/{move.name}" in (there.started_waves or ()):
            continue
        alive = [name for name in move.wave.consumers if _members(there, name)]
        if there.started_waves is None:
            alive = [name for name in alive if _members(here, name)]
        if alive:
            first, names = there.groups[alive[0]], [shorten_and_escape(name) for name in alive]
            yield Problem(
                "MIG819",
                f"wave `{move.name}` moves {render_some_names(names)} to {flow.target}, where `{names[0]}` already has "
                f"{render_plural(first.members, 'member')}",
                build_labels((move.value.where("consumers"), "not empty at the target")),
                path=f"{move.path}.consumers",
                ids=(move.name, *alive),
                help="stop these consumers at the target before the wave, or give one of the two another group id",
            )


def _members(cluster: InventoryCluster | None, name: str) -> int:
    group = cluster.groups.get(name) if cluster is not None else None
    return group.members if group is not None else 0


RULE = Rule("MIG819", "offset-commit-to-live-group", "error", __doc__, check, needs="live")
