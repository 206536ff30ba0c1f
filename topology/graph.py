"""What travels where: records and names followed over (cluster, topic symbol) nodes until nothing new appears.

Two things travel and stop differently. *Names*: a flow creates every topic that it selects, whatever guard drops the
records, so a rename on a loop grows names for ever. *Records*: a guarded flow skips what has been at its target, and
`forward: local` skips what another flow brought. A guard sees the path that guarded flows kept; an unguarded flow
forgets all but its own source.

In a topology without duplicates every birth arrives at most once at each name, so following it costs what it reaches;
a branch that arrives twice is reported and not followed, so meshes do not explode either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topology.model import Flow, Topology
from topology.symbols import Symbol, births, carried

if TYPE_CHECKING:
    import networkx

Node = tuple[str, Symbol]
MAX_HOPS = 64
MAX_ARRIVALS = 50_000


@dataclass(frozen=True, slots=True)
class Route:
    """The nodes passed and the flows taken between them: one more node than flows."""

    nodes: tuple[Node, ...]
    flows: tuple[Flow, ...]

    def __str__(self) -> str:
        return " -> ".join(f"{cluster}/{symbol}" for cluster, symbol in self.nodes)

    @property
    def end(self) -> Node:
        return self.nodes[-1]

    @property
    def running(self) -> bool:
        return all(flow.plan.state == "running" for flow in self.flows)

    @property
    def key(self) -> tuple[Any, ...]:
        """Shortest first, then by names: the order of witnesses."""
        return (len(self.flows), [(cluster, str(symbol)) for cluster, symbol in self.nodes], self.ids)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(flow.id for flow in self.flows)

    def then(self, flow: Flow, symbol: Symbol) -> Route:
        return Route((*self.nodes, (flow.target, symbol)), (*self.flows, flow))

    def loop(self) -> Route:
        """The part from the first visit of the last cluster on."""
        start = next(index for index, (cluster, _) in enumerate(self.nodes) if cluster == self.end[0])
        return Route(self.nodes[start:], self.flows[start:])


@dataclass(slots=True)
class TopicGraph:
    """What was found. `cycles`: records return under their name for ever. `returns`: they would, but for the guard.
    `growth`: names come back longer. `twice`: pairs of routes that deliver one record at one name. `writers`: for each
    cluster, what each flow writes there. `complete` is False when a bound stopped the search."""

    arrivals: dict[Node, Node | None] = field(default_factory=dict)
    edges: set[tuple[Node, Node, str]] = field(default_factory=set)
    cycles: list[Route] = field(default_factory=list)
    returns: list[Route] = field(default_factory=list)
    growth: list[Route] = field(default_factory=list)
    twice: list[tuple[Route, Route]] = field(default_factory=list)
    writers: dict[str, dict[tuple[str, Symbol], Flow]] = field(default_factory=dict)
    complete: bool = True

    def digraph(self) -> networkx.MultiDiGraph[Any]:
        """Nodes (cluster, topic), edges keyed by flow id."""
        import networkx

        graph: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
        for source, target, flow_id in sorted(self.edges, key=str):
            graph.add_edge((source[0], str(source[1])), (target[0], str(target[1])), key=flow_id)
        return graph

    def proofs(self) -> dict[str, Any]:
        """What the plan may say about a topology without findings."""
        return {
            "no_unbounded_copy": not self.cycles,
            "no_name_growth": not self.growth,
            "no_duplicate_delivery": not self.twice,
            "topic_nodes": len({(cluster, str(symbol)) for cluster, symbol in self.arrivals}),
            "guarded_loops": sorted({" ".join(sorted(set(route.loop().ids))) for route in self.returns}),
            "complete": self.complete,
        }


def build(topology: Topology) -> TopicGraph:
    """Follow every birth. The order of the file changes nothing."""
    graph = TopicGraph()
    leaving: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        if flow.source != flow.target:
            leaving.setdefault(flow.source, []).append(flow)
    loops = _loops(topology)
    begun: set[Node] = set()
    for flow in topology.flows:
        for symbol in births(flow.plan) if flow.source != flow.target else ():
            birth = (flow.source, symbol)
            if birth not in begun:
                begun.add(birth)
                grows = _names(graph, leaving, birth)
                if not grows:
                    _records(graph, leaving, birth, loops)
    graph.cycles.sort(key=lambda route: route.key)
    graph.returns.sort(key=lambda route: route.key)
    graph.growth.sort(key=lambda route: route.key)
    graph.twice.sort(key=lambda pair: (pair[0].key, pair[1].key))
    return graph


def _loops(topology: Topology) -> frozenset[str]:
    """Clusters on some loop of flows: only there can a record come back (strongly connected components)."""
    pairs = {(flow.source, flow.target) for flow in topology.flows if flow.source != flow.target}
    waiting = {flow.target: 0 for flow in topology.flows} | {flow.source: 0 for flow in topology.flows}
    for _, target in pairs:
        waiting[target] += 1
    ready = [alias for alias, count in waiting.items() if count == 0]
    for alias in ready:
        for source, target in pairs:
            if source == alias:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
    if len(ready) == len(waiting):
        return frozenset()  # acyclic: networkx stays unloaded, which halves the time of a small lint
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_edges_from(sorted(pairs))  # not DiGraph(pairs): that constructor imports pandas where it is installed
    return frozenset(alias for part in networkx.strongly_connected_components(graph) if len(part) > 1 for alias in part)


def _names(graph: TopicGraph, leaving: dict[str, list[Flow]], birth: Node) -> bool:
    """Follow a name over every flow that selects it; whether it grows."""
    todo = deque([Route((birth,), ())])
    graph.arrivals.setdefault(birth, None)
    seen = {birth}
    while todo:
        route = todo.popleft()
        for flow, symbol in _steps(leaving, route):
            node = (flow.target, symbol)
            graph.edges.add((route.end, node, flow.id))
            graph.arrivals.setdefault(node, route.end)
            graph.writers.setdefault(flow.target, {})[flow.id, symbol] = flow
            following = route.then(flow, symbol)
            if any(cluster == flow.target and symbol.grew_from(older) for cluster, older in route.nodes):
                graph.growth.append(following)
                return True
            if node not in seen and len(following.flows) < MAX_HOPS:
                seen.add(node)
                todo.append(following)
            if len(seen) > MAX_ARRIVALS:
                graph.complete = False
                return False
    return False


def _records(graph: TopicGraph, leaving: dict[str, list[Flow]], birth: Node, loops: frozenset[str]) -> None:
    """Follow one birth's records, guard and forward applied; note returns and second arrivals."""
    todo: deque[tuple[Route, frozenset[str]]] = deque([(Route((birth,), ()), frozenset({birth[0]}))])
    arrived: dict[str, list[Route]] = {}
    count = 0
    while todo:
        route, memory = todo.popleft()
        for flow, symbol in _steps(leaving, route):
            if route.flows and flow.plan.forward == "local":
                continue
            following = route.then(flow, symbol)
            back = flow.target in loops and any(
                cluster == flow.target and symbol.meets(older) for cluster, older in route.nodes
            )
            guarded = flow.plan.guard == "producer_id"
            if guarded and flow.target in memory:
                if back:
                    graph.returns.append(following)
                continue
            if back:
                graph.cycles.append(following)
                continue
            twin = next((one for one in arrived.get(flow.target, ()) if one.end[1].meets(symbol)), None)
            if twin is not None:
                if not (flow.duplicates_allowed and twin.flows[-1].duplicates_allowed):
                    graph.twice.append((twin, following))
                continue
            arrived.setdefault(flow.target, []).append(following)
            count += 1
            if len(following.flows) >= MAX_HOPS or count > MAX_ARRIVALS:
                graph.complete = False
                continue
            todo.append((following, (memory | {flow.target}) if guarded else frozenset({flow.source, flow.target})))


def _steps(leaving: dict[str, list[Flow]], route: Route) -> Iterator[tuple[Flow, Symbol]]:
    """Flows out of the route's end, in the order of their ids, with what each carries."""
    cluster, symbol = route.end
    for flow in leaving.get(cluster, ()):
        for arriving in carried(flow.plan, symbol):
            yield flow, arriving
