"""The topology as a picture: text, Mermaid, Graphviz or SVG; what lies on a loop that nothing stops is marked."""

from __future__ import annotations

from collections.abc import Sequence

from topology.graph import build
from topology.model import Topology
from topology.overlap import WORK, WORK_PER_FLOW, bounded
from topology.picture.edge import Edge
from topology.quoting import shown
from topology.selectors import Selector

_NAMED = 12  # selectors on one arrow


def draw(topology: Topology, form: str, level: str) -> str:
    """form: text | mermaid | dot | svg; level: clusters | topics. Without a newline at the end."""
    with bounded(WORK + WORK_PER_FLOW * len(topology.flows)):
        graph = build(topology)
    loops = {
        flow.id for route in (*graph.cycles, *(each.route for each in graph.growth)) for flow in route.loop().flows
    }
    paused = {flow.id for flow in topology.flows if flow.plan.state == "paused"}
    edges = []
    if level == "topics":
        for (source, one), (target, two), flow_id in graph.edges:
            pair = f"{source}/{one}", f"{target}/{two}"
            edges.append(Edge(*pair, flow_id, flow_id, flow_id in paused, flow_id in loops))
    else:
        for flow in topology.flows:
            names = _named(flow.plan.topics.include)
            if flow.plan.naming.policy != "identity":
                names += f" ({flow.plan.naming.policy})"
            edges.append(Edge(flow.source, flow.target, flow.id, names, flow.id in paused, flow.id in loops))
    edges = sorted(set(edges), key=lambda edge: (edge.source, edge.target, edge.flow))
    drawn = {name for edge in edges for name in (edge.source, edge.target)}
    alone = [] if level == "topics" else sorted(set(topology.clusters) - drawn)
    if form == "svg":
        from topology.picture.svg import svg

        return svg(topology.name, edges, alone)
    if form == "text":
        from topology.picture.text import text

        return text(edges, alone) + (f"\n\nloop: {graph.cycles[0].loop().rotated()}" if graph.cycles else "")
    from topology.picture import languages

    return {"mermaid": languages.mermaid, "dot": languages.dot}[form](edges, alone)


def _named(selectors: Sequence[Selector]) -> str:
    names = ", ".join(shown(each.text) for each in selectors[:_NAMED])
    return f"{names} and {len(selectors) - _NAMED} more" if len(selectors) > _NAMED else names
