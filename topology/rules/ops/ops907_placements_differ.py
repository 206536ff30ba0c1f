"""OPS907 placements-differ: flows into one cluster say different `workers.placement`.

Why: the workers of a target serve all flows into it, and one supervisor starts them. Whoever relied on the other
placement waits for workers that nobody starts, or finds a second fleet.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    into: dict[str, list[Flow]] = {}
    for flow in context.topology.flows:
        into.setdefault(flow.target, []).append(flow)
    for alias, flows in sorted(into.items()):
        by_placement = {flow.plan.placement: flow for flow in flows}
        if len(by_placement) > 1:
            named = [by_placement[each] for each in sorted(by_placement)]
            yield Problem(
                "OPS907",
                f"the workers of {alias} have one placement, and flows ask for {' and '.join(sorted(by_placement))}",
                build_labels(
                    *(
                        (flow.settings.where("workers", "placement"), f"{flow.id}: {flow.plan.placement}")
                        for flow in named
                    )
                ),
                path=f"{named[0].path}.workers.placement",
                ids=(alias,),
                help="say one `workers.placement` for all flows into the cluster, such as under `defaults`",
            )


RULE = Rule("OPS907", "placements-differ", "error", __doc__, check)
