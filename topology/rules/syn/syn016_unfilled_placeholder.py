"""SYN016 unfilled-placeholder: an address ends in `.invalid`: nobody has filled it in yet.

Why: no such name can ever exist, so nothing of this cluster would start. `topology import` writes it where the foreign
file does not say the addresses.

Source: RFC 2606, section 2 (reserved names)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import is_placeholder_address


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for alias, cluster in topology.clusters.items() if topology is not None else ():
        unfilled = [each for each in cluster.bootstrap if is_placeholder_address(each)]
        if unfilled and topology is not None:
            yield Problem(
                "SYN016",
                f"cluster `{alias}` has the address `{unfilled[0]}`, which cannot exist: nobody has filled it in",
                (Label(topology.root.where("clusters", alias, "bootstrap")),),
                path=f"clusters.{alias}.bootstrap",
                ids=(alias,),
                help="write the addresses of its brokers, as `host:port`",
            )


RULE = Rule("SYN016", "unfilled-placeholder", "error", __doc__, check, ignorable=False)
