"""CLU109 single-bootstrap: a cluster is reached through one address only.

Why: a client needs any one broker that answers to learn all others. With a single address nothing starts while that
broker is down, and restarts tend to come together. Not told of a cluster that is known to have one broker.

Source: apache/kafka CommonClientConfigs.java, BOOTSTRAP_SERVERS_DOC
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import is_placeholder_address


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for alias, cluster in topology.clusters.items() if topology is not None else ():
        if topology is None or len(cluster.bootstrap) != 1 or is_placeholder_address(cluster.bootstrap[0]):
            continue
        if context.facts.cluster(alias).brokers != 1:
            yield Problem(
                "CLU109",
                f"cluster `{alias}` has a single bootstrap address",
                (Label(topology.root.where("clusters", alias, "bootstrap")),),
                path=f"clusters.{alias}.bootstrap",
                ids=(alias,),
                help="add the address of a second broker; with one broker say `facts: {brokers: 1}`",
            )


RULE = Rule("CLU109", "single-bootstrap", "info", __doc__, check)
