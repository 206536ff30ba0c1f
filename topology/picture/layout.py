"""Where boxes stand: columns from left to right in the direction of the flows, little crossing within them.

Own code, because networkx lays out with numpy, which linting must not need: columns by the longest way through the
condensed graph, order by repeated barycentres (Sugiyama, Tagawa, Toda 1981).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx

_ROUNDS = 8
_DENSE = 0.8


def arrange_columns(nodes: Iterable[str], ways: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The nodes of each column, from the top down; the same for the same graph in any order."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(sorted(nodes))
    graph.add_edges_from(sorted(set(ways)))
    if not graph:
        return []
    level = _levels(graph)
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for node in sorted(graph, key=lambda each: (level[each], each)):
        rows[level[node]].append(node)
    rows = [row for row in rows if row]
    for number in range(_ROUNDS):
        order = range(1, len(rows)) if number % 2 == 0 else range(len(rows) - 2, -1, -1)
        for index in order:
            beside = rows[index - 1] if number % 2 == 0 else rows[index + 1]
            rows[index] = _by_barycentre(graph, rows[index], beside)
    return rows


def _levels(graph: networkx.DiGraph[str]) -> Mapping[str, int]:
    """Each node's column. A loop of clusters spreads from its busiest member, a mesh stays in one column."""
    whole = networkx.condensation(graph)
    start: dict[int, int] = {}
    width: dict[int, int] = {}
    level: dict[str, int] = {}
    for part in networkx.lexicographical_topological_sort(whole, key=lambda each: min(whole.nodes[each]["members"])):
        members = sorted(whole.nodes[part]["members"])
        start[part] = max((start[before] + width[before] for before in whole.predecessors(part)), default=0)
        inside = _inside(graph, members)
        width[part] = max(inside.values()) + 1
        level |= {node: start[part] + depth for node, depth in inside.items()}
    return level


def _inside(graph: networkx.DiGraph[str], members: list[str]) -> dict[str, int]:
    among = graph.subgraph(members)
    count = len(members)
    if count == 1 or (count > 2 and among.number_of_edges() > _DENSE * count * (count - 1)):
        return dict.fromkeys(members, 0)
    busiest = min(members, key=lambda node: (-among.degree(node), node))
    return dict(networkx.single_source_shortest_path_length(among.to_undirected(as_view=True), busiest))


def _by_barycentre(graph: networkx.DiGraph[str], row: list[str], beside: list[str]) -> list[str]:
    place = {node: index for index, node in enumerate(beside)}
    scale = max(len(beside) - 1, 1) / max(len(row) - 1, 1)

    def centre(index_node: tuple[int, str]) -> float:
        index, node = index_node
        near = [place[each] for each in (*graph.predecessors(node), *graph.successors(node)) if each in place]
        return sum(near) / len(near) if near else index * scale

    return [node for _, node in sorted(enumerate(row), key=lambda each: (centre(each), each[0]))]
