"""GRF219 proof-incomplete: the compiler stopped before it had followed every record.

Why: what was not followed is not proven, and an unproven topology must not look clean. The bounds lie far above what
anybody runs: 50,000 topic names and 20 more for each flow, 3,000,000 steps, routes of 500,000 flows together, 64 hops,
20,000 flows, 5,000 errors.

Bad:

    pattern:
      chain:
        path: [s01, s02, s03, s04, s05, s06, s07, s08, s09, s10, s11, s12, s13, s14, s15, s16, s17, s18,
          s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31, s32, s33, s34, s35, s36, s37, s38,
          s39, s40, s41, s42, s43, s44, s45, s46, s47, s48, s49, s50, s51, s52, s53, s54, s55, s56, s57, s58,
          s59, s60, s61, s62, s63, s64, s65, s66]
        topics: {include: [orders]}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Rule, RuleContext


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
