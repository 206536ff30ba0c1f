"""TPC419 gap-policy-continue: the flow goes on when records expired before they were copied.

Why: the target then silently lacks records, and every proof over that range fails. It is right only for data that is
refilled anyway, such as a cache.

Source: apache/kafka#22248, apache/kafka#23091: gaps that nobody was told about
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        if flow.settings.get("delivery", "on_gap") == "continue":
            yield Problem(
                "TPC419",
                f"flow {flow.id} goes on over a gap: records that expired before they were copied stay missing",
                (Label(flow.settings.where("delivery", "on_gap"), "goes on"),),
                path=f"{flow.path}.delivery.on_gap",
                ids=(flow.id,),
                help="say `on_gap: stop`; for a cache keep it, with a comment that says why",
            )


RULE = Rule("TPC419", "gap-policy-continue", "warning", __doc__, check)
