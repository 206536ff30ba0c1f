"""Names followed over every flow that selects them, whatever guards do: which topics come to be, and whether a name
comes back longer than it left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from topology.graph import MAX_HOPS, MAX_NODES, Lanes, Node, Route, TopicGraph


def follow_names(graph: TopicGraph, lanes: Lanes, begun: Iterable[Node]) -> None:
    """Breadth first over all births together, each node once, so the cost is what there is.

    A name that grows for ever makes an endless branch; clusters are finite, so the branch passes one of them again
    with a longer name, and there it is reported and left.
    """
    todo: deque[Route] = deque()
    for node in begun:
        if node not in graph.nodes:
            graph.nodes[node] = None
            todo.append(Route((node,)))
    while todo:
        route = todo.popleft()
        for symbol, flows in lanes.out_of(route.end):
            for flow in flows:
                node = (flow.target, symbol)
                graph.edges[route.end, node, flow.id] = flow
                graph.writers.setdefault(flow.target, {})[flow.id, symbol] = flow
                if node in graph.nodes:
                    continue
                graph.nodes[node] = None
                following = route.then(flow, symbol)
                if any(cluster == flow.target and symbol.grew_from(older) for cluster, older in route.nodes):
                    graph.growth.append(following)
                elif len(following.flows) >= MAX_HOPS or len(graph.nodes) > MAX_NODES:
                    graph.complete = False
                else:
                    todo.append(following)
