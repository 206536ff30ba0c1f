"""CLU105 cluster-id-mismatch: the brokers answer with another cluster id than the file pins.

Why: this is another cluster behind the same address, or one that was built anew. Positions, the ledger and the loop
guard of the old one mean nothing there, so nothing must be written.

Source: segmentio/topicctl README, Tool safety; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    for alias, cluster in topology.clusters.items() if topology is not None and inventory is not None else ():
        seen = inventory.cluster(alias) if inventory is not None else None
        if topology is None or seen is None or cluster.cluster_id in (None, seen.cluster_id):
            continue
        yield Problem(
            "CLU105",
            f"`{alias}` is cluster {shorten_and_escape(seen.cluster_id)}, but the file pins "
            f"{shorten_and_escape(cluster.cluster_id or '')}",
            (Label(topology.root.where("clusters", alias, "cluster_id"), "pinned here"),),
            path=f"clusters.{alias}.cluster_id",
            ids=(alias,),
            help="find out which cluster answers at these addresses; change the pinned id only if the new one is meant",
        )


RULE = Rule("CLU105", "cluster-id-mismatch", "error", __doc__, check, needs="live")
