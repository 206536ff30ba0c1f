"""Finds the cycles of records behind a second path to a topic, which `record_loops` reports and does not follow.

On the second path a guard can know other clusters than on the first one. So a guard that ends the first path may let
the second one pass, and records circulate there.

Every cycle has a flow without a guard: guarded flows alone bring no record to a cluster where it has been. After a flow
without a guard, a guard knows only its source and its target, whatever was before. So there is a cycle exactly if a
record that begins with such a flow comes back to the source of that flow under its first name. That is a question of
reachability: a path is followed only if no other path brought the same topics there with fewer known clusters, because
a guard stops a record the sooner, the more clusters it knows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from watershed.topology.model import Flow
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.topic_graph import MAX_PATH_HOPS, FlowPath, OutgoingFlows, TopicGraph, TopicNode
from watershed.topology.topic_symbols import TopicSymbol

_MAX_TOLD_OF_ONE = 50


@dataclass(slots=True)
class UnguardedReturns:
    """Searches from one origin, and adds to `cycles` of the graph. loops: clusters where a record can come back.

    steps: the work that was done, one for each flow or earlier arrival looked at. told: the cycles found.
    """

    graph: TopicGraph
    outgoing: OutgoingFlows
    origin: TopicNode
    loops: frozenset[str]
    steps: int = 0
    told: int = 0
    _todo: deque[tuple[FlowPath, frozenset[str]]] = field(default_factory=deque)
    _arrived: dict[tuple[str, str | None], list[tuple[TopicSymbol, frozenset[str]]]] = field(default_factory=dict)

    def find(self, budget: int) -> None:
        """Searches until about `budget` steps are used up. Then the graph is not `complete`."""
        self._todo.append((FlowPath((self.origin,)), frozenset()))
        while self._todo and self.told < _MAX_TOLD_OF_ONE:
            if self.steps >= budget:
                self.graph.complete = False
                return
            route, memory = self._todo.popleft()
            for symbol, flows in self.outgoing.out_of(route.end):
                self.steps += len(flows)
                for flow in flows:
                    if self._lets_pass(flow, route, memory):
                        self._step(route, flow, symbol, memory)

    def _lets_pass(self, flow: Flow, route: FlowPath, memory: frozenset[str]) -> bool:
        """True if a record can pass the flow on a cycle: the first flow of the path has no guard, and a record that
        circulates is a replicated one for every flow."""
        if flow.target not in self.loops or route.is_left_out_by(flow):
            return False
        if flow.plan.forward == "local" and (not route.flows or route.is_kept_local_by(flow)):
            return False
        if flow.plan.guard == "none":
            return True
        return bool(route.flows) and flow.target not in memory and not route.is_known_to_return_by(flow)

    def _step(self, route: FlowPath, flow: Flow, symbol: TopicSymbol, memory: frozenset[str]) -> None:
        following = route.then(flow, symbol)
        cluster, first = self.origin
        if flow.target == cluster and symbol.meets(first):
            if following.is_left_out_by(following.flows[0]):
                return  # it takes them once, and not again when they come back
            self.graph.cycles.append(following)
            self.told += 1
            return
        if self._grows(following):
            return
        known = memory | {flow.target} if flow.plan.guard == "producer_id" else flow.list_written_clusters()
        if self._is_covered(flow.target, symbol, known):
            return
        if len(following.flows) >= MAX_PATH_HOPS:
            self.graph.complete = False
            return
        self._arrived.setdefault((flow.target, symbol.birth), []).append((symbol, known))
        self._todo.append((following, known))

    def _grows(self, route: FlowPath) -> bool:
        """True if Kafka has no such name, or `follow_names` reports that names grow and this one has grown."""
        cluster, symbol = route.end
        if symbol.shortest > MAX_TOPIC_NAME_LETTERS:
            return True
        visits = (before for here, before in route.nodes[:-1] if here == cluster)
        return bool(self.graph.growth) and any(symbol.grew_from(before) for before in visits)

    def _is_covered(self, cluster: str, symbol: TopicSymbol, known: frozenset[str]) -> bool:
        """True if these topics arrived at the cluster already, and a guard knows no more clusters there."""
        for birth in dict.fromkeys((symbol.birth, None)):  # a pattern, whose birth is None, may cover one topic
            arrived = self._arrived.get((cluster, birth), [])
            self.steps += len(arrived)
            if any(memory <= known and before.covers(symbol) for before, memory in arrived):
                return True
        return False
