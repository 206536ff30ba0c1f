"""GRF203 prefix-growth: a name comes back to a cluster longer than it left, and is selected again.

Why: `orders` becomes `a.orders`, `b.a.orders`, `a.b.a.orders` … until names hit 249 characters or the controllers
suffer. The guard does not help: it drops records, but the topics are created all the same.

Source: strimzi/strimzi-kafka-operator#3249, #3977
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    """One witness, the shortest, for flows that grow names together."""
    told: set[str] = set()
    for growth in context.graph.growth if context.graph else ():
        loop = growth.route.loop()
        flows = set(loop.ids)
        if flows & told:
            continue
        told |= flows
        labels = {Label(flow.declared, f"{flow.id} renames with `{flow.plan.naming.policy}`") for flow in loop.flows}
        yield Problem(
            "GRF203",
            "names grow for ever: a renamed topic comes back and is selected again",
            tuple(sorted(labels)),
            path=loop.flows[0].path,
            ids=tuple(sorted(flows)),
            notes=(f"growth: {loop} -> …",),
            help="select the originals only: a narrower pattern, or `exclude` the renamed names",
            confidence="certain" if growth.certain else "possible",
        )


RULE = Rule("GRF203", "prefix-growth", "error", __doc__, check, ignorable=False)
