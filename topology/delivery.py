"""Records followed from their birth, guards and forwarding applied: where they arrive, twice, or for ever.

A guard sees the path that guarded flows kept; an unguarded flow forgets all but its own two ends. In a topology without
duplicates every birth arrives at most once at each name, so following it costs what it reaches; a branch that arrives
where another one was is reported and not followed (unless it is allowed), so that meshes do not explode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from topology.graph import MAX_HOPS, Lanes, Node, Route, TopicGraph
from topology.model import Flow
from topology.symbols import MAX_NAME, Symbol

MAX_STEPS = 3_000_000
MAX_TOLD = 2_000
MAX_TOLD_OF_ONE = 50


@dataclass(frozen=True, slots=True)
class Copy:
    """A record at the end of a route. memories: for each node of the route, the clusters that a guard there knows."""

    route: Route
    memories: tuple[frozenset[str], ...]

    @property
    def memory(self) -> frozenset[str]:
        return self.memories[-1]


def follow_records(graph: TopicGraph, lanes: Lanes, begun: Iterable[Node], loops: frozenset[str]) -> None:
    """Fill cycles, returns, twice, stopped and deliveries."""
    steps = 0
    for birth in begun:
        steps += _Birth(graph, lanes, birth, loops).follow(MAX_STEPS - steps)
        if steps >= MAX_STEPS:
            graph.complete = False
            return


class _Birth:
    def __init__(self, graph: TopicGraph, lanes: Lanes, birth: Node, loops: frozenset[str]) -> None:
        self.graph = graph
        self.lanes = lanes
        self.loops = loops
        self.birth = birth
        self.todo = deque([Copy(Route((birth,)), (frozenset({birth[0]}),))])
        self.arrived: dict[str, list[Route]] = {birth[0]: [Route((birth,))]}
        self.told = 0

    def follow(self, budget: int) -> int:
        """The steps taken, at most about `budget`."""
        steps = 0
        stopped: list[tuple[Route, Flow]] = []
        while self.todo and steps < budget and self.told < MAX_TOLD_OF_ONE:
            copy = self.todo.popleft()
            for symbol, flows in self.lanes.out_of(copy.route.end):
                steps += len(flows)
                for flow in flows:
                    if copy.route.flows and flow.plan.forward == "local":
                        stopped.append((copy.route, flow))
                    else:
                        self._step(copy, flow, symbol)
        routes = [route for found in self.arrived.values() for route in found if route.flows]
        if routes:
            self.graph.deliveries[self.birth] = routes
        self.graph.stopped += [(route, flow) for route, flow in stopped if flow.target not in self.arrived]
        return steps + 1

    def _step(self, copy: Copy, flow: Flow, symbol: Symbol) -> None:
        route, graph = copy.route, self.graph
        following = route.then(flow, symbol)
        earlier = [
            index
            for index, (cluster, older) in enumerate(route.nodes)
            if cluster == flow.target and flow.target in self.loops and symbol.meets(older)
        ]
        guarded = flow.plan.guard == "producer_id"
        if guarded and flow.target in copy.memory:
            if earlier:
                graph.returns.append(following)
            return
        memory = copy.memory | {flow.target} if guarded else frozenset({flow.source, flow.target})
        grew = any(cluster == flow.target and symbol.grew_from(older) for cluster, older in route.nodes)
        if grew and (graph.growth or symbol.shortest > MAX_NAME):
            return  # told by `follow_names`, or no topic can have that name
        if any(index > 0 and copy.memories[index] == memory for index in earlier):
            graph.cycles.append(following)
            self.told += 1
            return
        if len(following.flows) >= MAX_HOPS:
            graph.complete = False
            return
        twin = next((one for one in self.arrived.get(flow.target, ()) if one.end[1].meets(symbol)), None)
        if twin is not None:
            self._twice(twin, following)
            if not earlier and not flow.duplicates_allowed:
                return
        else:
            self.arrived.setdefault(flow.target, []).append(following)
        self.todo.append(Copy(following, (*copy.memories, memory)))

    def _twice(self, twin: Route, following: Route) -> None:
        """Both ways must allow it; the birth itself is a way that allows nothing."""
        allowed = following.flows[-1].duplicates_allowed and bool(twin.flows) and twin.flows[-1].duplicates_allowed
        if not allowed and len(self.graph.twice) < MAX_TOLD:
            self.graph.twice.append((twin, following))
            self.told += 1
