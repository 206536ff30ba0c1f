"""MIG805 missing-lag-gate: a wave has no lag gate before it begins.

Why: the wave then starts whatever is still on its way, and everything that is stopped (consumers, producers) stays
stopped for as long as the flow takes to catch up. What must be true beforehand is said in the file, not left to a
default.

Source: own; confluentinc/kcp waits for lag before it promotes
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import BEFORE, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    for move in list_declared_waves(context.topology):
        if not any(move.gates("lag", BEFORE)):
            yield Problem(
                "MIG805",
                f"wave `{move.name}` has no lag gate",
                (Label(move.span),),
                path=f"{move.path}.gates.before",
                ids=(move.name,),
                help="say `gates: {before: [{lag: {max_records: 0, hold: 5m}}]}`",
            )


RULE = Rule("MIG805", "missing-lag-gate", "error", __doc__, check)
