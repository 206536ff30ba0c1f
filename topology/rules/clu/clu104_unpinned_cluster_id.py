"""CLU104 unpinned-cluster-id: a cluster is declared without the `cluster_id` that its brokers must answer with.

Why: an address is only a name. A changed DNS entry, a tunnel or a copied file leads to another cluster, and nothing but
the pinned id notices before records are written there.

Source: segmentio/topicctl README, Tool safety
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    clusters = context.topology.root.at("clusters") if context.topology is not None else None
    for alias, cluster in clusters.fields.items() if clusters is not None else ():
        if cluster.at("cluster_id") is None:
            seen = context.inventory.cluster(alias) if context.inventory is not None else None
            found = (
                f"the scan saw `{shorten_and_escape(seen.cluster_id)}`"
                if seen is not None
                else "`topology scan` shows it"
            )
            yield Problem(
                "CLU104",
                f"cluster `{alias}` pins no `cluster_id`",
                (Label(cluster.key or cluster.span),),
                path=f"clusters.{alias}",
                ids=(alias,),
                help=f"write `cluster_id:` once somebody made sure that it is the right cluster; {found}",
            )


RULE = Rule("CLU104", "unpinned-cluster-id", "warning", __doc__, check, profile="strict")
