"""MIG823 undefined-hook: a wave, a gate or a fence names a hook that `migration.hooks` does not have, or an external
fence names none.

Why: the migration is refused before it begins, since nobody would be called.

Source: own; rhysd/actionlint rule_job_needs.go for the offer of the nearest name
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import find_declared_fences, list_declared_waves
from watershed.topology.spelling import suggest_word

_POINTS = ("before", "fenced", "switched", "rolled_back")


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or topology.migration is None:
        return
    known = sorted(topology.migration.hooks)
    for path, value in _named(context):
        if value.data in topology.migration.hooks:
            continue
        near = suggest_word(value.data, known)
        yield Problem(
            "MIG823",
            f"there is no hook `{value.data}`",
            (Label(value.span),),
            path=path,
            ids=(value.data,),
            help=(f"did you mean `{near}`? " if near else "") + f"hooks: {', '.join(known) or 'none'}",
        )
    for path, fence in find_declared_fences(topology):
        if fence.get("kind") == "external" and fence.at("hook") is None:
            yield Problem(
                "MIG823",
                "an external fence names no hook that would raise and lower it",
                (Label(fence.where("kind")),),
                path=f"{path}.hook",
                help="declare one in `migration.hooks`, and say `fence: {kind: external, hook: NAME}`",
            )


def _named(context: RuleContext) -> Iterator[tuple[str, CheckedValue]]:
    """Every mention of a hook, with its path."""
    for path, fence in find_declared_fences(context.topology):
        hook = fence.at("hook")
        if hook is not None:
            yield f"{path}.hook", hook
    for move in list_declared_waves(context.topology):
        for point in _POINTS:
            for hook in move.value.list("hooks", point):
                yield f"{move.path}.hooks.{point}", hook
        for gate in move.gates("check"):
            hook = gate.at("hook")
            if hook is not None:
                yield f"{move.path}.gates", hook


RULE = Rule("MIG823", "undefined-hook", "error", __doc__, check)
