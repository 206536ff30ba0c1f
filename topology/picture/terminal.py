"""The picture for a terminal. Small topologies flow by flow; in large ones flows that carry the same are one line."""

from __future__ import annotations

from collections.abc import Iterable

from watershed.topology.picture.edge import Edge, find_meshes

_FOLDED = 20  # more flows than this, and equal ones are told together
_SHOWN = 6


def render_terminal_picture(edges: list[Edge], alone: Iterable[str] = ()) -> str:
    """Without a newline at the end."""
    lines = _folded(edges) if len(edges) > _FOLDED else _each(edges)
    left = list(alone)
    lines += [f"no flow: {_some(left)}"] if left else []
    return "\n".join(lines).rstrip() or "no flows"


def _each(edges: list[Edge]) -> list[str]:
    lines = []
    for source in dict.fromkeys(edge.source for edge in edges):
        lines.append(source)
        mine = [edge for edge in edges if edge.source == source]
        width = max(len(edge.target) for edge in mine)
        for index, edge in enumerate(mine):
            corner = "└" if index == len(mine) - 1 else "├"
            lines.append(f"{corner}{_arrow(edge)} {edge.target:<{width}}  {edge.label}{edge.marks}")
        lines.append("")
    return lines


def _folded(edges: list[Edge]) -> list[str]:
    """Sources that send the same to the same targets are one line, and so is a mesh. What is on a loop stays alone."""
    whole, rest = find_meshes(edges)
    lines = []
    for mesh in whole:
        arrow = Edge("", "", "", mesh.label, mesh.paused, False)
        lines += [f"each of {_some(mesh.members)}", f"└{_arrow(arrow)} each other  {mesh.label}{arrow.marks}", ""]
    fans: dict[tuple[str, str, bool], set[str]] = {}
    for edge in rest:
        if not (edge.loop or edge.tool):
            fans.setdefault((edge.source, edge.label, edge.paused), set()).add(edge.target)
    groups: dict[tuple[frozenset[str], str, bool], list[str]] = {}
    for (source, label, paused), reached in fans.items():
        groups.setdefault((frozenset(reached), label, paused), []).append(source)
    for (targets, label, paused), sources in sorted(groups.items(), key=lambda each: (sorted(each[1]), each[0][1])):
        arrow = Edge("", "", "", label, paused, False)
        lines += [_some(sources), f"└{_arrow(arrow)} {_some(targets)}  {label}{arrow.marks}", ""]
    return lines + _each([edge for edge in edges if edge.loop or edge.tool])


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    if len(ordered) <= _SHOWN:
        return ", ".join(ordered)
    return f"{', '.join(ordered[: _SHOWN - 1])} and {len(ordered) - _SHOWN + 1} more"


def _arrow(edge: Edge) -> str:
    if edge.tool:
        return "··▷" if edge.paused else "··▶"
    return "╌╌▷" if edge.paused else "──▶"
