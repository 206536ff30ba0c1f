"""MIG807 no-rollback: a wave says neither how it is taken back nor why it cannot be.

Why: once applications write at the target there is no free way back; what has not been prepared is then decided in
the night. Say `rollback: {until: …, reverse: flow}`, or `rollback: {none: "why"}`, which somebody has to answer for.

Source: confluentinc/kcp getting-started guide: after promotion there is no free way back
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    for move in list_declared_waves(context.topology):
        rollback = move.wave.rollback
        if move.wave.is_late and move.value.at("rollback") is None:
            continue  # it has the way back of its producers' wave, or MIG833 says that there is none
        if rollback is None or (rollback.until_ms is None and rollback.reverse is None and not rollback.none_because):
            yield Problem(
                "MIG807",
                f"wave `{move.name}` says no way back",
                (Label(move.value.where("rollback") if rollback is not None else move.span),),
                path=f"{move.path}.rollback",
                ids=(move.name,),
                help='say `rollback: {until: 24h, reverse: <flow back>}`, or `rollback: {none: "why there is none"}`',
            )


RULE = Rule("MIG807", "no-rollback", "error", __doc__, check)
