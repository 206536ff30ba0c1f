"""GRF205 diamond-double-delivery: one record reaches one topic on two ways.

Why: every record is there twice. A guard does not stop it, because neither way passes a cluster twice; three or more
clusters that all copy to each other do it as well, unless they say `forward: local`.

Source: own simulation of five guards (path guard: D receives 2); apache/kafka docs/ops.html
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.topic_graph import FlowPath


def check(context: RuleContext) -> Iterator[Problem]:
    for one, two in find_double_deliveries(context):
        if not is_mesh_path(context, two) and not is_parallel_hop(one, two):
            cluster, symbol = one.end
            born, name = one.birth
            running = one.running and two.running
            yield Problem(
                "GRF205",
                f"records of `{born}/{name}` arrive twice in `{cluster}/{symbol}`",
                tuple(sorted({Label(flow.declared, flow.id) for flow in (*one.flows, *two.flows)})),
                path=two.flows[-1].path,
                ids=tuple(sorted({*one.ids, *two.ids})),
                notes=(f"one way:   {one}" if one.flows else f"one:       born there, {one}", f"the other: {two}"),
                help=_help(one, two) if running else "one of the ways is paused; never run both",
                severity="error" if running else "warning",
                confidence="certain" if one.end[1].certain and symbol.certain else "possible",
            )


def _help(one: FlowPath, two: FlowPath) -> str:
    foreign = [flow for flow in (*one.flows, *two.flows) if flow.external is not None]
    if not foreign:
        return "remove one of the ways, or set `provenance: {forward: local}` where records should end"
    tool = foreign[-1].id
    return (
        f"exclude these topics from {tool} or from ours; or let our flow put a header on its records (`provenance: "
        f"{{header: NAME}}`), let the tool skip records that have it, and say `leaves_out: NAME` "
        f"on {tool}"
    )


def find_double_deliveries(context: RuleContext) -> Iterator[tuple[FlowPath, FlowPath]]:
    """Two routes of one birth to one name, once for each pair of last flows; not what a cycle makes anyway."""
    graph = context.graph
    if graph is None:
        return
    cycling = {flow for route in graph.cycles for flow in route.loop().ids}
    seen: set[tuple[str, frozenset[str]]] = set()
    for one, two in graph.duplicate_deliveries:
        key = (one.end[0], frozenset((*one.ids[-1:], *two.ids[-1:])))
        if key not in seen and not cycling & {*one.ids, *two.ids}:
            seen.add(key)
            yield one, two


def is_parallel_hop(one: FlowPath, two: FlowPath) -> bool:
    """Whether both are a single hop between the same clusters: then GRF214 says it."""
    return len(one.flows) == len(two.flows) == 1 and one.flows[0].source == two.flows[0].source


def is_mesh_path(context: RuleContext, route: FlowPath) -> bool:
    """Whether the clusters of a longer way all send to each other: then GRF206 knows better what to do."""
    clusters = {cluster for cluster, _ in route.nodes}
    assert context.graph is not None, "it has the route"
    ways = context.graph.ways
    return len(clusters) > 2 and all((one, two) in ways for one in clusters for two in clusters if one != two)


RULE = Rule("GRF205", "diamond-double-delivery", "error", __doc__, check, ignorable=False)
