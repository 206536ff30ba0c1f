"""MIG830 unknown-group: a wave moves a consumer group that the scan did not find at the source.

Why: a misspelt name moves nothing. The run waits for a group that never empties or fills, the real group stays at the
source, and reads what nobody writes there any more. A group that has never committed is not found either.

Source: `topology scan`; apache/kafka ListGroups names every group with members or offsets
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import InventoryCluster
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import find_migration_flow, list_declared_waves
from watershed.topology.spelling import suggest_word
from watershed.topology.text_escaping import shorten_and_escape


def has_hidden_groups(seen: InventoryCluster) -> bool:
    """Whether the scan may have missed groups: a broker that coordinates some did not answer, or none was listed and
    something was refused."""
    return any("groups it coordinates" in line for line in seen.not_seen) or (not seen.groups and bool(seen.not_seen))


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    flow = find_migration_flow(topology) if topology is not None else None
    here = inventory.cluster(flow.source) if inventory is not None and flow is not None else None
    if topology is None or flow is None or here is None or has_hidden_groups(here):
        return
    for move in list_declared_waves(topology):
        missing = [name for name in move.wave.consumers if name not in here.groups]
        if missing:
            near = suggest_word(missing[0], here.groups)
            meant = f"did you mean `{shorten_and_escape(near)}`? " if near else ""
            yield Problem(
                "MIG830",
                f"wave `{move.name}` moves {render_some_names([shorten_and_escape(name) for name in missing])}, and "
                f"{flow.source} has no such group",
                build_labels((move.value.where("consumers"), f"not among the groups of {flow.source}")),
                path=f"{move.path}.consumers",
                ids=(move.name, *missing),
                help=f"{meant}correct the name, or take it out; scan again if the group is newer than the inventory. "
                "A wave that has moved may stay as it is: its group at the source may have expired",
            )


RULE = Rule("MIG830", "unknown-group", "warning", __doc__, check, needs="inventory")
