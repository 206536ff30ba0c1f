"""CLU108 orphan-cluster: a cluster is declared and no flow uses it.

Why: either the declaration is a leftover, which somebody will trust one day, or a flow was forgotten. Nothing is said
of a file without any flow, which is just being begun, nor while a flow names an undeclared cluster or the same one
twice: what is missing there may be this one.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.model import CheckedValue
from topology.rule import Rule, RuleContext
from topology.rules.clu.clu101_undefined_cluster import find_cluster_mentions


def check(context: RuleContext) -> Iterator[Problem]:
    clusters = context.topology.root.at("clusters") if context.topology is not None else None
    if context.topology is None or clusters is None:
        return
    used = {value.data for _, value in find_cluster_mentions(context.topology.root)}
    unfinished = not used <= clusters.fields.keys() or any(_loops(flow) for flow in context.topology.root.list("flows"))
    for alias, cluster in clusters.fields.items() if used and not unfinished else ():
        if alias not in used:
            yield Problem(
                "CLU108",
                f"no flow uses cluster `{alias}`",
                (Label(cluster.key or cluster.span),),
                path=f"clusters.{alias}",
                ids=(alias,),
                help="add the flow that is missing, or remove the cluster",
            )


def _loops(flow: CheckedValue) -> bool:
    return bool(flow.get("source") == flow.get("target"))


RULE = Rule("CLU108", "orphan-cluster", "warning", __doc__, check)
