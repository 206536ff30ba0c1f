"""MIG827 unheeded-check: a `check` gate asks a hook whose failure is taken for success.

Why: with `on_failure: continue` a no, an error and silence are all a yes, so the gate is open whatever it is asked.
Somebody who reads the file, or the evidence of the run, counts on a check that could not have failed. A hook that is
only to be told belongs under `hooks` of the wave.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import find_continue_on_failure, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    for move in list_declared_waves(topology):
        for gate in move.gates("check"):
            hook = gate.at("hook")
            if hook is None or (said := find_continue_on_failure(topology, str(hook.data))) is None:
                continue
            yield Problem(
                "MIG827",
                f"wave `{move.name}` is gated by hook `{hook.data}`, which can never say no",
                (Label(said.span, "whatever it answers"), Label(hook.span, "passes")),
                path=f"{move.path}.gates",
                ids=(move.name, str(hook.data)),
                help=f"take `on_failure: continue` out of `migration.hooks.{hook.data}`, or name it in `hooks.before`",
            )


RULE = Rule("MIG827", "unheeded-check", "warning", __doc__, check)
