"""GRF217 selects-remote-topics: a flow's pattern also takes topics that another flow brings to its source, renamed.

Why: under prefix naming `.*` matches `a.orders` as well as `orders`, so copies travel on and are renamed once more.
That is meant in a chain, and nowhere else.

Source: apache/kafka docs/ops.html (remote topics); DefaultReplicationPolicy.java
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.graph is None or context.topology.root.at("pattern", "chain") is not None:
        return
    told: set[str] = set()
    for birth in sorted(context.graph.deliveries, key=lambda node: (node[0], str(node[1]))):
        for route in context.graph.deliveries[birth]:
            if len(route.flows) < 2 or route.flows[-1].id in told:
                continue
            onward, bringing = route.flows[-1], route.flows[-2]
            renamed = "identity" not in (bringing.plan.naming.policy, onward.plan.naming.policy)
            literal = str(route.nodes[-2][1]) in onward.plan.topics.included.literals
            if renamed and not literal:
                told.add(onward.id)
                yield Problem(
                    "GRF217",
                    f"{onward.id} also takes `{route.nodes[-2][1]}`, which {bringing.id} brings, and renames it again",
                    (
                        Label(onward.settings.where("topics", "include"), onward.id),
                        Label(bringing.declared, f"{bringing.id} brings it"),
                    ),
                    path=f"{onward.path}.topics",
                    ids=tuple(sorted((onward.id, bringing.id))),
                    notes=(f"route: {route}",),
                    help=f"exclude the names that {bringing.id} makes, set `forward: local` on {onward.id}, "
                    "or use the pattern `chain` if it is meant",
                )


RULE = Rule("GRF217", "selects-remote-topics", "warning", __doc__, check)
