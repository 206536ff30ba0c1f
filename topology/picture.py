"""The topology as a picture: text art, Mermaid or Graphviz; what lies on an unguarded loop is marked."""

from __future__ import annotations

from dataclasses import dataclass

from topology.graph import build
from topology.model import Topology


@dataclass(frozen=True, slots=True)
class Edge:
    """One arrow. `loop`: it is part of a cycle that nothing stops, or of names that grow."""

    source: str
    target: str
    flow: str
    label: str
    paused: bool
    loop: bool


def draw(topology: Topology, form: str, level: str) -> str:
    """form: text | mermaid | dot; level: clusters | topics."""
    graph = build(topology)
    loops = {flow.id for route in (*graph.cycles, *graph.growth) for flow in route.loop().flows}
    paused = {flow.id for flow in topology.flows if flow.plan.state == "paused"}
    edges = []
    if level == "topics":
        for (source, one), (target, two), flow_id in graph.digraph().edges(keys=True):
            pair = f"{source}/{one}", f"{target}/{two}"
            edges.append(Edge(*pair, flow_id, flow_id, flow_id in paused, flow_id in loops))
    else:
        for flow in topology.flows:
            names = ", ".join(str(each) for each in flow.plan.topics.include)
            if flow.plan.naming.policy != "identity":
                names += f" ({flow.plan.naming.policy})"
            edges.append(Edge(flow.source, flow.target, flow.id, names, flow.id in paused, flow.id in loops))
    edges.sort(key=lambda edge: (edge.source, edge.target, edge.flow))
    drawn = {"text": _text, "mermaid": _mermaid, "dot": _dot}[form](edges)
    if form == "text" and graph.cycles:
        drawn += f"\n\nloop: {graph.cycles[0].loop().rotated()}"
    return drawn


def _text(edges: list[Edge]) -> str:
    if not edges:
        return "no flows"
    lines = []
    for source in dict.fromkeys(edge.source for edge in edges):
        lines.append(source)
        mine = [edge for edge in edges if edge.source == source]
        width = max(len(edge.target) for edge in mine)
        for index, edge in enumerate(mine):
            corner = "└" if index == len(mine) - 1 else "├"
            arrow = "╌╌▷" if edge.paused else "──▶"
            marks = ("  [paused]" if edge.paused else "") + ("  [LOOP]" if edge.loop else "")
            lines.append(f"{corner}{arrow} {edge.target:<{width}}  {edge.label}{marks}")
        lines.append("")
    return "\n".join(lines).rstrip()


def _mermaid(edges: list[Edge]) -> str:
    nodes = {
        name: f"n{index}" for index, name in enumerate(dict.fromkeys(n for e in edges for n in (e.source, e.target)))
    }
    lines = ["flowchart LR", *(f'  {key}["{name}"]' for name, key in nodes.items())]
    for index, edge in enumerate(edges):
        arrow = "-.->" if edge.paused else "-->"
        lines.append(f'  {nodes[edge.source]} {arrow}|"{edge.label}"| {nodes[edge.target]}')
        if edge.loop:
            lines.append(f"  linkStyle {index} stroke:#c00,stroke-width:3px")
    return "\n".join(lines)


def _dot(edges: list[Edge]) -> str:
    lines = ["digraph topology {", "  rankdir=LR;", "  node [shape=box];"]
    for edge in edges:
        style = (", style=dashed" if edge.paused else "") + (", color=red, penwidth=2" if edge.loop else "")
        lines.append(f'  "{edge.source}" -> "{edge.target}" [label="{edge.label}"{style}];')
    return "\n".join([*lines, "}"])
