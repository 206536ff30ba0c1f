"""MIG826 unheeded-fence: an external fence is raised by a hook whose failure is taken for success.

Why: the hook is what keeps producers out. With `on_failure: continue` the file asks to go on when it says no, breaks or
is silent, which would be a fence that nobody has raised: producers write on, and the watch for stragglers is all that
notices. The migration refuses such an answer whatever the file says; say so in the file, too.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import find_continue_on_failure, find_declared_fences


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or topology.migration is None:
        return
    for path, fence in find_declared_fences(topology):
        hook = fence.at("hook")
        if hook is None or (said := find_continue_on_failure(topology, str(hook.data))) is None:
            continue
        yield Problem(
            "MIG826",
            f"hook `{hook.data}` raises a fence, and its failure is to be taken for success",
            (Label(said.span, "whatever it answers"), Label(hook.span, "is a raised fence")),
            path=f"{path}.hook",
            ids=(str(hook.data),),
            help=f"take `on_failure: continue` out of `migration.hooks.{hook.data}`",
        )


RULE = Rule("MIG826", "unheeded-fence", "error", __doc__, check)
