"""GRF207 local-forward-breaks-chain: a flow selects topics that another flow brings, but takes only local records.

Why: `forward: local` skips everything that a flow brought to the source. Behind it the topic exists and stays empty of
those records, without any error.

Source: own simulation (behind a local hop of a chain nothing arrives)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    told: set[str] = set()
    for route, flow in context.graph.stopped if context.graph else ():
        if flow.id in told:
            continue
        told.add(flow.id)
        born, name = route.birth
        where = flow.settings.at("provenance", "forward")
        here = Label(flow.declared if where is None else where.span, f"{flow.id} skips them")
        bringing = route.flows[-1]
        yield Problem(
            "GRF207",
            f"records of `{born}/{name}` end at {flow.source}: {flow.id} selects them but takes only local records",
            (here, Label(bringing.declared, f"{bringing.id} brings them")),
            path=flow.path,
            ids=(flow.id,),
            notes=(f"route: {route}",),
            help=f"set `provenance: {{forward: all}}` on {flow.id}, or exclude `{route.end[1]}` from it",
        )


RULE = Rule("GRF207", "local-forward-breaks-chain", "error", __doc__, check)
