"""MIG824 policy-for-no-group: `migration.groups` says how a group moves that no wave moves.

Why: the policy was written for a group, and under this name it does nothing: the group that was meant is refused, or
begins where nobody chose.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import list_declared_waves
from watershed.topology.spelling import suggest_word


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    groups = topology.root.at("migration", "groups") if topology is not None else None
    if topology is None or topology.migration is None or groups is None:
        return
    moved = sorted({group for move in list_declared_waves(topology) for group in move.wave.consumers})
    for name, value in sorted(groups.fields.items()):
        if name in moved:
            continue
        near = suggest_word(name, moved)
        yield Problem(
            "MIG824",
            f"no wave moves the group `{name}`",
            (Label(value.span),),
            path=f"migration.groups.{name}",
            ids=(name,),
            help=(f"did you mean `{near}`? " if near else "") + f"waves move {', '.join(moved) or 'no group'}",
        )


RULE = Rule("MIG824", "policy-for-no-group", "warning", __doc__, check)
