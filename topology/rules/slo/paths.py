"""The worst sum of budgets along the flows that records take one after the other."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from topology.graph import MAX_HOPS, Lanes, Node
from topology.model import Flow, Topology
from topology.symbols import Symbol

_MAX_VISITS = 16  # of one (cluster, topic): in a dense mesh the longest path is not worth its search


@dataclass(frozen=True, slots=True)
class Path:
    """Flows in the order of the records. total: ms, the sum of the hops' budgets that are declared."""

    flows: tuple[Flow, ...]
    total: int

    @property
    def clusters(self) -> tuple[str, ...]:
        return (self.flows[0].source, *(flow.target for flow in self.flows))


def budget(flow: Flow, kind: str) -> int:
    """`slo.lag.<kind>` in ms; what is not declared adds nothing."""
    said: int = flow.settings.get("slo", "lag", kind, default=0)
    return said


def worst(topology: Topology, kind: str) -> dict[str, Path]:
    """By flow id: of all ways over clusters that end with this flow, the one with the largest sum. A way goes on only
    where a topic does, over MAX_HOPS flows at most, and not through a flow that takes local records alone."""
    lanes = Lanes(topology)
    search = _Search()
    for birth in lanes.births():
        for symbol, flow in _ways_out(lanes, birth):
            search.arrive(symbol, Path((flow,), budget(flow, kind)))
    while search.todo:
        symbol, path = search.todo.popleft()
        passed = set(path.clusters)
        for arriving, flow in _ways_out(lanes, (path.flows[-1].target, symbol)):
            if flow.plan.forward != "local" and flow.target not in passed:
                search.arrive(arriving, Path((*path.flows, flow), path.total + budget(flow, kind)))
    return search.found


def _ways_out(lanes: Lanes, node: Node) -> Iterator[tuple[Symbol, Flow]]:
    return ((symbol, flow) for symbol, flows in lanes.out_of(node) for flow in flows)


@dataclass(slots=True)
class _Search:
    """found: the longest way by its last flow; best and visits: what bounds how often a node is gone through again."""

    found: dict[str, Path] = field(default_factory=dict)
    todo: deque[tuple[Symbol, Path]] = field(default_factory=deque)
    best: dict[Node, int] = field(default_factory=dict)
    visits: Counter[Node] = field(default_factory=Counter)

    def arrive(self, symbol: Symbol, path: Path) -> None:
        flow = path.flows[-1]
        known = self.found.get(flow.id)
        if known is None or path.total > known.total:
            self.found[flow.id] = path
        node = (flow.target, symbol)
        longer = path.total > self.best.get(node, -1)
        if longer and self.visits[node] < _MAX_VISITS and len(path.flows) < MAX_HOPS:
            self.best[node] = path.total
            self.visits[node] += 1
            self.todo.append((symbol, path))
