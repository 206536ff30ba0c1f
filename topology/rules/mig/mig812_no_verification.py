"""MIG812 no-verification: a wave has no proof among its gates.

Why: that the flow has caught up says nothing about what arrived. Without a proof of content a record that is missing
or different shows up in an invoice.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    for move in list_declared_waves(context.topology):
        if not any(move.gates("verify")):
            yield Problem(
                "MIG812",
                f"wave `{move.name}` is never verified",
                (Label(move.span),),
                path=f"{move.path}.gates",
                ids=(move.name,),
                help="say `gates: {before: [{verify: {level: L1}}]}`: every record compared before anything is moved",
            )


RULE = Rule("MIG812", "no-verification", "warning", __doc__, check)
