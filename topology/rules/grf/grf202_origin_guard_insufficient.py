"""GRF202 origin-guard-insufficient: a guard is on the loop, but an unguarded flow makes it forget where records were.

Why: a guard reads the clusters that a record has been in from the producer id of its batch. A flow with `guard: none`
writes with an id that names only its own two ends, so a guard further on does not recognise what comes round again.
Knowing the birth place alone is not enough either: the loop need not pass it.

Source: RFC 8586 (append and check on every hop); own simulation of five guards on rings, hubs and meshes
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.grf.grf201_identity_cycle import find_unguarded_loops


def check(context: RuleContext) -> Iterator[Problem]:
    for route, problem in find_unguarded_loops(
        context, "GRF202", "records circulate for ever although a flow on the loop is guarded"
    ):
        if any(flow.plan.guard == "producer_id" for flow in route.flows):
            yield problem


RULE = Rule("GRF202", "origin-guard-insufficient", "error", __doc__, check, ignorable=False)
