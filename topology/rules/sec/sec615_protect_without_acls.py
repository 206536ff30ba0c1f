"""SEC615 protect-without-acls: the target cannot refuse anybody, so `protect` is without effect.

Why: `protect` works by ACLs. Brokers that do not know who asks (no SASL, no client certificate) cannot tell
applications from Watershed. Neither does a cluster without an authorizer refuse anybody, nor one with
`allow.everyone.if.no.acl.found=true`, for topics that no ACL mentions. Whoever believes the file thinks the mirror is
read-only.

Source: own; KIP-11
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import InventoryCluster
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    for flow in topology.flows if topology is not None else ():
        if topology is None or not flow.plan.protect:
            continue
        why = _explain(topology, flow.target, inventory.cluster(flow.target) if inventory is not None else None)
        if why:
            yield Problem(
                "SEC615",
                f"flow {flow.id} cannot protect its topics: {why}",
                build_labels((flow.settings.where("protect"), "without effect"), (flow.declared, flow.id)),
                path=f"{flow.path}.protect",
                ids=(flow.id, flow.target),
                help=f"give {flow.target} authentication and an authorizer, or remove `protect`",
            )


def _explain(topology: Topology, alias: str, live: InventoryCluster | None) -> str:
    security = topology.clusters[alias].security
    if security.protocol in ("PLAINTEXT", "SSL") and security.certificate is None:
        return f"everybody is anonymous at {alias}, Watershed as well"
    if live is not None and live.configs.get("authorizer.class.name") == "":
        return f"{alias} has no authorizer"
    if live is not None and live.configs.get("allow.everyone.if.no.acl.found") == "true":
        return f"{alias} has allow.everyone.if.no.acl.found=true"
    return ""


RULE = Rule("SEC615", "protect-without-acls", "error", __doc__, check)
