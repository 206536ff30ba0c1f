"""SYC512 acl-widening: an ACL has no exact equal behind the flow, so it is not carried over.

Why: an ACL names one thing, or a beginning of names. Where the selection or the new names cut through it, the nearest
ACL would grant topics of the target, or of other sources, that the principal never had a right to (or, for a denial,
leave some out). Watershed then carries nothing, and also nothing that such a denial takes away from: applications are
refused at the target until somebody says there what is meant.

Source: own; KIP-290 for prefixed ACLs
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.acl_translation import READ_OPERATIONS, render_acl, translate_acls
from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.inventory is None:
        return
    for flow in context.topology.flows:
        cluster = context.inventory.cluster(flow.source)
        acls = flow.settings.at("sync", "acls")
        if acls is None or flow.plan.sync.acls.mode == "never" or cluster is None:
            continue
        left = [
            each for each in translate_acls(flow.plan, cluster.acls or ()).left if each.acl.resource in READ_OPERATIONS
        ]
        if left:
            first = left[0]
            yield Problem(
                "SYC512",
                f"{render_plural(len(left), 'ACL')} of {flow.source} cannot be said exactly at {flow.target}, and flow "
                f"{flow.id} does not carry {'it' if len(left) == 1 else 'them'} over: {render_acl(first.acl)}",
                build_labels(
                    (acls.where("mode"), "carries ACLs over"), (flow.settings.where("naming"), "renames topics")
                ),
                path=f"{flow.path}.sync.acls",
                ids=(flow.id, first.acl.name),
                help=f"grant (or deny) at {flow.target} by hand what is meant, and `exclude` these names",
                notes=(first.why,),
                severity="warning",
            )


RULE = Rule("SYC512", "acl-widening", "error", __doc__, check, needs="inventory")
