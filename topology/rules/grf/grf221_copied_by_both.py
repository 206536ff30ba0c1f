"""GRF221 copied-by-both: a flow of ours and another tool copy one topic between the same clusters, to one name.

Why: every record is there twice. Switch the tool off for these topics first; `topology flow adopt` then lets our flow
go on where it stopped, without a second copy.

Source: own; docs/takeover.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.grf.grf205_diamond_double_delivery import find_double_deliveries, is_parallel_hop


def check(context: RuleContext) -> Iterator[Problem]:
    for one, two in find_double_deliveries(context):
        first, second = (*one.flows[-1:], *two.flows[-1:]) if is_parallel_hop(one, two) else (None, None)
        if first is None or second is None or {first.external, second.external} == {None}:
            continue
        ours, theirs = (first, second) if first.external is None else (second, first)
        yield Problem(
            "GRF221",
            f"{ours.id} and {theirs.id} both copy `{one.birth[1]}` from {ours.source} to {ours.target}",
            tuple(sorted({Label(ours.declared, ours.id), Label(theirs.declared, theirs.id)})),
            path=ours.path,
            ids=tuple(sorted((ours.id, theirs.id))),
            severity=None if ours.plan.state == theirs.plan.state == "running" else "warning",
            help="exclude these topics from one of the two; `topology flow adopt` goes on behind a tool that has "
            f"stopped (`enabled: false` on {theirs.id} says so)",
        )


RULE = Rule("GRF221", "copied-by-both", "error", __doc__, check)
