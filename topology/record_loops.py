"""Follows records from the topic where they are produced: where they arrive, arrive twice, or circulate without end.

A guard knows the path of a record only as far as guarded flows recorded it. Behind an unguarded flow, it knows only the
source and the target of that flow. Behind another tool it knows what the file lets it tell (`Flow.is_told_apart`).

In a topology without duplicates, records of one origin arrive at most once at each topic. So the work grows linearly
with the topics that they reach. Unless duplicates are allowed, a second path to the same topic is reported and not
followed. To follow all paths would cost exponential work in a mesh. Cycles behind what was not followed are found by
`unguarded_returns`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from watershed.topology.model import Flow
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.topic_graph import MAX_PATH_HOPS, FlowPath, OutgoingFlows, TopicGraph, TopicNode
from watershed.topology.topic_symbols import TopicSymbol
from watershed.topology.unguarded_returns import UnguardedReturns

_MAX_STEPS = 3_000_000
# Bound for the total length of all kept paths, in flows. Smaller if there were too many names: then nothing is proven.
_MAX_PASSED = 500_000
_MAX_PASSED_UNPROVEN = 50_000
_MAX_TOLD = 2_000
_MAX_TOLD_OF_ONE = 50


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """A record at the end of a path. memories: for each node of the path, the clusters that a guard there knows."""

    route: FlowPath
    memories: tuple[frozenset[str], ...]

    @property
    def memory(self) -> frozenset[str]:
        """Clusters that the record has visited, as far as a guard can know."""
        return self.memories[-1]


def follow_records(graph: TopicGraph, lanes: OutgoingFlows, begun: Iterable[TopicNode], loops: frozenset[str]) -> None:
    """Fills `cycles`, `returns`, `duplicate_deliveries`, `stopped`, `deliveries` and `consecutive` of the graph.

    begun: the origins to follow. loops: clusters where a record can come back.
    """
    steps = passed = 0
    cut: list[TopicNode] = []
    for birth in begun:
        one = _Birth(graph, lanes, birth, loops)
        bound = _MAX_PASSED if graph.complete else _MAX_PASSED_UNPROVEN
        steps += one.follow(_MAX_STEPS - steps, bound - passed)
        passed += one.passed
        if steps >= _MAX_STEPS or passed >= bound:
            graph.complete = False
            return
        if one.cut and birth[0] in loops:
            cut.append(birth)
    _find_cycles_behind_duplicates(graph, lanes, cut, loops, _MAX_STEPS - steps)


def _find_cycles_behind_duplicates(
    graph: TopicGraph, lanes: OutgoingFlows, begun: Iterable[TopicNode], loops: frozenset[str], budget: int
) -> None:
    told = 0
    for birth in begun:
        search = UnguardedReturns(graph, lanes, birth, loops)
        search.find(budget)  # without a budget left it says that the graph is not complete
        budget -= search.steps
        told += search.told
        if told >= _MAX_TOLD:
            return


class _Birth:
    def __init__(self, graph: TopicGraph, lanes: OutgoingFlows, birth: TopicNode, loops: frozenset[str]) -> None:
        self.graph = graph
        self.lanes = lanes
        self.loops = loops
        self.birth = birth
        self.todo = deque([TracedRecord(FlowPath((birth,)), (frozenset({birth[0]}),))])
        self.arrived: dict[str, list[FlowPath]] = {}
        self._by_name: dict[tuple[str, int], list[tuple[str, TopicSymbol, FlowPath]]] = {}
        self._arrive(FlowPath((birth,)))
        self.told = 0
        self.passed = 0
        self.cut = False  # whether a path inside loops was not followed to its end

    def follow(self, budget: int, passing: int) -> int:
        """Follows records until about `budget` steps or `passing` flows are used up. Returns the steps taken."""
        steps = 0
        stopped: list[tuple[FlowPath, Flow]] = []
        while self.todo and steps < budget and self.passed < passing and self.told < _MAX_TOLD_OF_ONE:
            copy = self.todo.popleft()
            for symbol, flows in self.lanes.out_of(copy.route.end):
                steps += len(flows)
                for flow in flows:
                    if copy.route.is_kept_local_by(flow):
                        stopped.append((copy.route, flow))
                    elif not copy.route.is_left_out_by(flow):
                        self._step(copy, flow, symbol)
        self.cut |= bool(self.todo)
        routes = [route for found in self.arrived.values() for route in found if route.flows]
        if routes:
            self.graph.deliveries[self.birth] = routes
        self.graph.stopped += [(route, flow) for route, flow in stopped if flow.target not in self.arrived]
        return steps + 1

    def _step(self, copy: TracedRecord, flow: Flow, symbol: TopicSymbol) -> None:
        route, graph = copy.route, self.graph
        following = route.then(flow, symbol)
        looping = flow.target in self.loops  # outside loops no record returns, so no memory is needed
        visits = [index for index, node in enumerate(route.nodes) if node[0] == flow.target] if looping else []
        earlier = [index for index in visits if symbol.meets(route.nodes[index][1])]
        guarded = flow.plan.guard == "producer_id"
        if guarded and (flow.target in copy.memory or route.is_known_to_return_by(flow)):
            if earlier:
                graph.returns.append(following)
            return
        memory = (copy.memory | {flow.target} if looping else copy.memory) if guarded else self._ends(flow)
        grew = any(symbol.grew_from(route.nodes[index][1]) for index in visits)
        if grew and (graph.growth or symbol.shortest > MAX_TOPIC_NAME_LETTERS):
            return  # `follow_names` reports it, or no topic can have that name
        if any(index > 0 and copy.memories[index] == memory for index in earlier):
            graph.cycles.append(following)
            self.told += 1
            return
        if len(following.flows) >= MAX_PATH_HOPS:
            graph.complete = False
            return
        twin = self._twin(flow.target, symbol)
        if twin is not None:
            self._twice(twin, following)
            if not earlier and not flow.duplicates_allowed:
                self.arrived[flow.target].append(following)  # it arrives as well, but is not followed further
                self.cut |= looping
                return
        else:
            self._arrive(following)
        self.passed += len(following.flows)
        if route.flows:
            graph.consecutive[route.flows[-1].id, flow.id] = (route.flows[-1], flow)
        self.todo.append(TracedRecord(following, (*copy.memories, memory)))

    def _arrive(self, route: FlowPath) -> None:
        cluster, symbol = route.end
        found = self.arrived.setdefault(cluster, [])
        found.append(route)
        self._by_name.setdefault(_key(cluster, symbol), []).append((symbol.before, symbol, route))

    def _twin(self, cluster: str, symbol: TopicSymbol) -> FlowPath | None:
        """The first path that arrived at the cluster with a topic name that `symbol` contains, too."""
        mine = symbol.before
        for before, other, route in self._by_name.get(_key(cluster, symbol), ()):
            # a name can begin with both prefixes only if one of the prefixes begins with the other
            if (before.startswith(mine) or mine.startswith(before)) and other.meets(symbol):
                return route
        return None

    def _ends(self, flow: Flow) -> frozenset[str]:
        """The clusters that a guard knows for a record that an unguarded flow wrote."""
        return self.loops & flow.list_written_clusters()

    def _twice(self, twin: FlowPath, following: FlowPath) -> None:
        """Reports a duplicate, unless the last flows of both paths allow it.

        The path of the origin itself has no flow, so it allows no duplicate.
        """
        allowed = following.flows[-1].duplicates_allowed and bool(twin.flows) and twin.flows[-1].duplicates_allowed
        if not allowed and len(self.graph.duplicate_deliveries) < _MAX_TOLD:
            self.graph.duplicate_deliveries.append((twin, following))
            self.told += 1


def _key(cluster: str, symbol: TopicSymbol) -> tuple[str, int]:
    """Two symbols with one origin can meet only if these agree: the cluster, and how much was added to the name."""
    if symbol.birth is not None and symbol.now is not None:
        return cluster, len(symbol.now) - len(symbol.birth)
    return cluster, len(symbol.before) + len(symbol.after)
