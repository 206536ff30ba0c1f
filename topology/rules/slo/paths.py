"""The largest sum of lag budgets along a path of flows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from watershed.topology.model import Flow, Topology
from watershed.topology.topic_graph import MAX_PATH_HOPS, OutgoingFlows, TopicNode
from watershed.topology.topic_symbols import TopicSymbol

_MAX_VISITS = 16  # of one (cluster, topic): in a dense mesh the longest path is not worth its search


@dataclass(frozen=True, slots=True)
class BudgetPath:
    """Flows in the order of the records. total: ms, the sum of the hops' budgets that are declared."""

    flows: tuple[Flow, ...]
    total: int

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters in the order of the records."""
        return (self.flows[0].source, *(flow.target for flow in self.flows))


def find_lag_budget(flow: Flow, kind: str) -> int:
    """`slo.lag.<kind>` in ms; what is not declared adds nothing."""
    said: int = flow.settings.get("slo", "lag", kind, default=0)
    return said


def find_worst_paths(topology: Topology, kind: str) -> dict[str, BudgetPath]:
    """By flow id: the path that ends with this flow and has the largest sum of lag budgets. A path follows a topic from
    flow to flow, over at most MAX_PATH_HOPS flows. It stops at a flow with `forward: local`."""
    lanes = OutgoingFlows(topology)
    search = _Search()
    for birth in lanes.births():
        for symbol, flow in _ways_out(lanes, birth):
            search.arrive(symbol, BudgetPath((flow,), find_lag_budget(flow, kind)))
    while search.todo:
        symbol, path = search.todo.popleft()
        passed = set(path.clusters)
        for arriving, flow in _ways_out(lanes, (path.flows[-1].target, symbol)):
            if flow.plan.forward != "local" and flow.target not in passed:
                search.arrive(arriving, BudgetPath((*path.flows, flow), path.total + find_lag_budget(flow, kind)))
    return search.found


def _ways_out(lanes: OutgoingFlows, node: TopicNode) -> Iterator[tuple[TopicSymbol, Flow]]:
    return ((symbol, flow) for symbol, flows in lanes.out_of(node) for flow in flows)


@dataclass(slots=True)
class _Search:
    """found: the longest way by its last flow; best and visits: what bounds how often a node is gone through again."""

    found: dict[str, BudgetPath] = field(default_factory=dict)
    todo: deque[tuple[TopicSymbol, BudgetPath]] = field(default_factory=deque)
    best: dict[TopicNode, int] = field(default_factory=dict)
    visits: Counter[TopicNode] = field(default_factory=Counter)

    def arrive(self, symbol: TopicSymbol, path: BudgetPath) -> None:
        flow = path.flows[-1]
        known = self.found.get(flow.id)
        if known is None or path.total > known.total:
            self.found[flow.id] = path
        node = (flow.target, symbol)
        longer = path.total > self.best.get(node, -1)
        if longer and self.visits[node] < _MAX_VISITS and len(path.flows) < MAX_PATH_HOPS:
            self.best[node] = path.total
            self.visits[node] += 1
            self.todo.append((symbol, path))
