"""The picture in the languages of other tools: Mermaid and Graphviz."""

from __future__ import annotations

import json
from collections.abc import Iterable

from watershed.topology.picture.edge import Edge
from watershed.topology.text_escaping import escape_controls


def render_mermaid(edges: list[Edge], alone: Iterable[str] = ()) -> str:
    """A Mermaid flowchart. alone: clusters without a flow."""
    names = dict.fromkeys([name for edge in edges for name in (edge.source, edge.target)] + list(alone))
    nodes = {name: f"n{index}" for index, name in enumerate(names)}
    lines = ["flowchart LR", *(f'  {key}["{_quoted(name)}"]' for name, key in nodes.items())]
    for index, edge in enumerate(edges):
        arrow = "-.->" if edge.paused else "-->"
        label = edge.label + (f" (by {edge.tool})" if edge.tool else "")
        lines.append(f'  {nodes[edge.source]} {arrow}|"{_quoted(label)}"| {nodes[edge.target]}')
        if edge.tool:
            lines.append(f"  linkStyle {index} stroke:#8a5a00,stroke-dasharray:2 3")
        if edge.loop:
            lines.append(f"  linkStyle {index} stroke:#c00,stroke-width:3px")
    return "\n".join(lines)


def render_graphviz(edges: list[Edge], alone: Iterable[str] = ()) -> str:
    """A Graphviz digraph. alone: clusters without a flow."""
    lines = ["digraph topology {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f"  {_string(name)};" for name in alone]
    for edge in edges:
        style = ", style=dotted, color=darkorange3" if edge.tool else ", style=dashed" if edge.paused else ""
        label = edge.label + (f" (by {edge.tool})" if edge.tool else "")
        style += ", color=red, penwidth=2" if edge.loop else ""
        lines.append(f"  {_string(edge.source)} -> {_string(edge.target)} [label={_string(label)}{style}];")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    """Mermaid's own entity codes for what would end a label or begin markup."""
    return escape_controls(text).replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _string(text: str) -> str:
    return json.dumps(escape_controls(text), ensure_ascii=False)
