"""SEC611 missing-acl-for-worker: no user has all the rights that a flow's workers need at a cluster.

Why: the workers start after the change window opened, and are refused there. The topology does not name their user, so
the rule asks whether any user could run them: READ and DESCRIBE_CONFIGS on the topics at the source; WRITE, CREATE of
what does not exist and the control topics `watershed.*` at the target. A super user needs no ACL and cannot be seen.
Clusters that show no ACLs, and those that allow what no ACL mentions, are not judged.

Source: own; KIP-11 and KIP-290 for what ACLs mean
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import Inventory
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.sec.scanned_acls import (
    ClusterRights,
    NeededRights,
    list_source_rights,
    list_target_rights,
)


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    if topology is None or inventory is None:
        return
    rights = _rights(inventory)
    for flow in topology.flows:
        if flow.plan.state == "paused":
            continue
        source, target = inventory.cluster(flow.source), inventory.cluster(flow.target)
        if source is not None and flow.source in rights:
            yield from _lacking(flow, flow.source, rights[flow.source], list_source_rights(context, flow))
        if target is not None and flow.target in rights:
            yield from _lacking(flow, flow.target, rights[flow.target], list_target_rights(context, flow, target))


def _rights(inventory: Inventory) -> dict[str, ClusterRights]:
    """Of the clusters that show their ACLs and refuse what none allows."""
    shown = {alias: ClusterRights(each) for alias, each in inventory.clusters.items() if each.acls is not None}
    return {alias: rights for alias, rights in shown.items() if not rights.open}


def _lacking(flow: Flow, alias: str, rights: ClusterRights, needed: NeededRights) -> Iterator[Problem]:
    if not needed or rights.able(needed):
        return
    nearest = rights.nearest(needed)
    note = "no user has any right there"
    if nearest is not None:
        user, missing = nearest
        note = f"{user} comes nearest; it lacks {render_some_names([str(right) for right in missing])}"
    yield Problem(
        "SEC611",
        f"no user has the rights at {alias} that the workers of flow {flow.id} need",
        build_labels((flow.declared, f"works at {alias}")),
        path=flow.path,
        ids=(flow.id, alias),
        notes=(note,),
        help="grant what is missing to the workers' user; when that is a super user, say so in a comment that silences "
        "this rule",
        confidence="likely",
    )


RULE = Rule("SEC611", "missing-acl-for-worker", "error", __doc__, check, needs="live")
