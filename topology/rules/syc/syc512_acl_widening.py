"""SYC512 acl-widening: a rename turns an ACL into one that grants more than it did at the source.

Why: `*`, or a prefix where the flow puts text behind the name, has no equal under the new names. What can be written
instead covers topics of the target, or of other sources, that the principal never had a right to.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [{glob: "orders.*"}]}
        naming: {policy: prefix}
        sync: {acls: {mode: once}}
    --- # topology scan
    a:
      topics: {orders.paid: {}}
      acls:
        - {principal: "User:app", operation: READ, permission: ALLOW, resource: TOPIC, name: "*", pattern: LITERAL}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [{glob: "orders.*"}]}
        naming: {policy: prefix}
        sync: {acls: {mode: once}}
    --- # topology scan
    a:
      topics: {orders.paid: {}}
      acls:
        - {principal: "User:app", operation: READ, permission: ALLOW, resource: TOPIC, name: orders., pattern: PREFIXED}

Source: own; KIP-290 for prefixed ACLs
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.inventory import InventoryAcl
from topology.model import Flow
from topology.rule import Context, Rule
from topology.rules.mention import labels, plural

ANY = "*"


def check(context: Context) -> Iterator[Problem]:
    if context.topology is None or context.inventory is None:
        return
    for flow in context.topology.flows:
        cluster = context.inventory.cluster(flow.source)
        acls = flow.settings.at("sync", "acls")
        renames = flow.plan.naming.policy != "identity"
        if acls is None or acls.get("mode", default="never") == "never" or not renames or cluster is None:
            continue
        wider = [acl for acl in cluster.acls or () if _wider(flow, acl)]
        if wider:
            first = min(wider, key=lambda acl: (acl.name, acl.principal, acl.operation))
            yield Problem(
                "SYC512",
                f"flow {flow.id} renames topics, and {plural(len(wider), 'ACL')} of {flow.source} would grant more at "
                f"{flow.target}: {_shown(first)}",
                labels((acls.where("mode"), "carries ACLs over"), (flow.settings.where("naming"), "renames topics")),
                path=f"{flow.path}.sync.acls",
                ids=(flow.id, first.name),
                help="grant the rights under the new names at the target by hand, and `exclude` these ACLs",
            )


def _wider(flow: Flow, acl: InventoryAcl) -> bool:
    """Whether the new names of exactly the old topics cannot be said in one ACL. A denial that is wider takes, never
    gives."""
    if acl.resource.upper() != "TOPIC" or acl.permission.upper() != "ALLOW":
        return False
    if acl.pattern.upper() == "PREFIXED":
        return bool(flow.plan.naming.after) or flow.plan.naming.policy == "map"
    return acl.name == ANY


def _shown(acl: InventoryAcl) -> str:
    names = f"{acl.name}*" if acl.pattern.upper() == "PREFIXED" else acl.name
    return f"{acl.principal} may {acl.operation.upper()} `{names}`"


RULE = Rule("SYC512", "acl-widening", "error", __doc__, check, needs="inventory")
