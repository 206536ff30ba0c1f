"""GRF219 proof-incomplete: the compiler stopped before it had followed every record.

Why: what was not followed is not proven, and an unproven topology must not look clean. The bounds lie far above what
anybody runs: 50,000 topic names and 20 more for each flow, 3,000,000 steps, routes of 500,000 flows together, 64 hops,
20,000 flows, 5,000 errors.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    yield from context.problems("GRF219")
    if context.topology is not None and context.graph is not None and not context.graph.complete:
        yield Problem(
            "GRF219",
            "too many ways to follow: that nothing loops, doubles or collides is not proven",
            (Label(context.topology.flows[0].declared, f"one of {len(context.topology.flows)} flows"),),
            help="split the topology, or let fewer flows forward (`provenance: {forward: local}`)",
        )


RULE = Rule("GRF219", "proof-incomplete", "error", __doc__, check, ignorable=False)
