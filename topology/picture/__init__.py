"""The topology as a picture: text, Mermaid, Graphviz or SVG; what lies on a loop that nothing stops is marked."""

from __future__ import annotations

from collections.abc import Sequence

from watershed.topology.external_flows import TOOL_NAMES
from watershed.topology.model import Topology
from watershed.topology.picture.edge import Edge
from watershed.topology.selection_overlap import limit_overlap_work_for
from watershed.topology.selectors import Selector
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.topic_graph_builder import build_topic_graph

_NAMED = 12  # selectors on one arrow


def render_picture(topology: Topology, form: str, level: str) -> str:
    """form: text | mermaid | dot | svg; level: clusters | topics. Without a newline at the end."""
    with limit_overlap_work_for(len(topology.all_flows)):
        graph = build_topic_graph(topology)
    loops = {
        flow.id for route in (*graph.cycles, *(each.route for each in graph.growth)) for flow in route.loop().flows
    }
    paused = {flow.id for flow in topology.all_flows if flow.plan.state == "paused"}
    tools = {each.id: TOOL_NAMES[each.external.tool] for each in topology.external_flows if each.external is not None}
    edges = []
    if level == "topics":
        for (source, one), (target, two), flow_id in graph.edges:
            pair, is_paused, is_loop = (f"{source}/{one}", f"{target}/{two}"), flow_id in paused, flow_id in loops
            edges.append(Edge(*pair, flow_id, flow_id, is_paused, is_loop, tools.get(flow_id, "")))
    else:
        for flow in topology.all_flows:
            names = _named(flow.plan.topics.include)
            if flow.plan.naming.policy != "identity":
                names += f" ({flow.plan.naming.policy})"
            is_paused, is_loop = flow.id in paused, flow.id in loops
            edges.append(Edge(flow.source, flow.target, flow.id, names, is_paused, is_loop, tools.get(flow.id, "")))
    edges = sorted(set(edges), key=lambda edge: (edge.source, edge.target, edge.flow))
    drawn = {name for edge in edges for name in (edge.source, edge.target)}
    alone = [] if level == "topics" else sorted(set(topology.clusters) - drawn)
    if form == "svg":
        from watershed.topology.picture.svg import render_svg

        return render_svg(topology.name, edges, alone)
    if form == "text":
        from watershed.topology.picture.terminal import render_terminal_picture

        return render_terminal_picture(edges, alone) + (
            f"\n\nloop: {graph.cycles[0].loop().rotate_loop()}" if graph.cycles else ""
        )
    from watershed.topology.picture import mermaid_graphviz

    return {"mermaid": mermaid_graphviz.render_mermaid, "dot": mermaid_graphviz.render_graphviz}[form](edges, alone)


def _named(selectors: Sequence[Selector]) -> str:
    names = ", ".join(shorten_and_escape(each.text) for each in selectors[:_NAMED])
    return f"{names} and {len(selectors) - _NAMED} more" if len(selectors) > _NAMED else names
