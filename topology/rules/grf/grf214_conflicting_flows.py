"""GRF214 conflicting-flows: two flows with one id, or two on one route that copy the same topics to the same names.

Why: one of two processes that fight over one id silently loses; two flows with ids of their own write every record
twice.

Source: strimzi/proposals#178 ("last one wins"); apache/kafka docs/ops.html, Preventing Configuration Conflicts
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.grf.grf205_diamond_double_delivery import find_double_deliveries, is_parallel_hop


def check(context: RuleContext) -> Iterator[Problem]:
    yield from context.problems("GRF214")
    for one, two in find_double_deliveries(context):
        if is_parallel_hop(one, two) and one.flows[0].external is two.flows[0].external is None:
            first, second = sorted((one.flows[0], two.flows[0]), key=lambda flow: flow.id)
            yield Problem(
                "GRF214",
                f"{first.id} and {second.id} both copy `{one.birth[1]}` from {first.source} to {first.target}",
                tuple(sorted({Label(first.declared, first.id), Label(second.declared, second.id)})),
                path=second.path,
                ids=(first.id, second.id),
                severity=None if first.plan.state == second.plan.state == "running" else "warning",
                help="let them select different topics (`exclude` in one of them), or make one flow of both",
            )


RULE = Rule("GRF214", "conflicting-flows", "error", __doc__, check)
