"""SEC607 superuser-worker: a principal may do everything at a cluster, and no narrower one could run the workers there.

Why: one leaked worker then owns the cluster. A topology does not name the workers' principal, and a scan cannot see
super users; so the rule looks for users with ALLOW ALL on every topic or on the cluster, and stays silent as soon as
some other user has all that the flows need (READ at a source; WRITE, CREATE and `watershed.*` at a target): the workers
can be that one.

Source: own; KIP-11 for what the operations include
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import InventoryAcl, InventoryCluster
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.sec.scanned_acls import (
    ClusterRights,
    NeededRights,
    find_unlimited_principals,
    list_source_rights,
    list_target_rights,
)


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    if topology is None or inventory is None:
        return
    flows: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        for alias in {flow.source, flow.target}:
            flows.setdefault(alias, []).append(flow)
    for alias in sorted(flows):
        cluster = inventory.cluster(alias)
        principals = find_unlimited_principals(cluster) if cluster is not None else {}
        needed = _needed(context, alias, cluster, flows[alias]) if cluster is not None and principals else ()
        if cluster is None or not needed:
            continue
        if ClusterRights(cluster).able(needed) - principals.keys():
            continue
        first = next(iter(principals.values()))
        declared = topology.root.at("clusters", alias)
        yield Problem(
            "SEC607",
            f"{render_some_names(tuple(principals))} may do everything at {alias}, and no narrower user could "
            f"run the workers there",
            build_labels((declared.key if declared is not None else None, "this cluster")),
            path=f"clusters.{alias}",
            ids=(alias, *principals),
            notes=(f"{first.principal}: ALLOW ALL on {_shown(first)}",),
            help="give the workers a user of their own: READ and DESCRIBE_CONFIGS on what they copy; at a target WRITE "
            "and CREATE there, and the topics `watershed.*`",
            confidence="possible",
        )


def _needed(context: RuleContext, alias: str, cluster: InventoryCluster, flows: list[Flow]) -> NeededRights:
    reads = [right for flow in flows if flow.source == alias for right in list_source_rights(context, flow)]
    writes = [right for flow in flows if flow.target == alias for right in list_target_rights(context, flow, cluster)]
    return tuple(dict.fromkeys((*reads, *writes)))


def _shown(acl: InventoryAcl) -> str:
    return "the cluster" if acl.resource.upper() == "CLUSTER" else "topic `*`"


RULE = Rule("SEC607", "superuser-worker", "warning", __doc__, check, needs="inventory")
