"""GRF215 chain-too-long: records pass more hops than `max_hops`.

Why: lag adds up hop by hop, every cluster on the way must keep records for the outage of the next hop, and names grow
when each hop renames.

Source: own; three hops are vessel, shore, cloud, and one more
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Rule, RuleContext, RuleOption
from topology.topic_graph import FlowPath

_MAX_HOPS = RuleOption("max_hops", "count", 3, "How many flows a record may pass one after the other.")


def check(context: RuleContext) -> Iterator[Problem]:
    bound = context.option(_MAX_HOPS)
    told: set[str] = set()
    every = context.graph.deliveries.values() if context.graph is not None else ()
    for route in sorted((route for routes in every for route in _long(routes, bound)), key=lambda each: each.key[1:]):
        last = route.flows[-1]
        if last.id not in told and not told & set(route.ids):
            told.add(last.id)
            born, name = route.birth
            yield Problem(
                "GRF215",
                f"records of `{born}/{name}` pass {len(route.flows)} flows, at most {bound} are wanted",
                tuple(sorted({Label(flow.declared, flow.id) for flow in route.flows})),
                path=last.path,
                ids=(last.id,),
                notes=(f"route: {route}",),
                help=f"let {last.target} read nearer to the birth place, or raise `max_hops` in topology.lint.yaml",
            )


def _long(routes: list[FlowPath], bound: int) -> Iterator[FlowPath]:
    """The paths over the limit. A path that only extends a reported one is not reported again."""
    heads = {route.flows for route in routes if len(route.flows) == bound + 1}
    for route in routes:
        if len(route.flows) > bound and (len(route.flows) == bound + 1 or route.flows[: bound + 1] not in heads):
            yield route


RULE = Rule("GRF215", "chain-too-long", "warning", __doc__, check, options=(_MAX_HOPS,))
