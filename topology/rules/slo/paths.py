"""The worst sum of budgets along the flows that records take one after the other."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from topology.graph import MAX_HOPS, Lanes
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
    best: dict[tuple[str, Symbol], int] = {}
    visits: Counter[tuple[str, Symbol]] = Counter()
    found: dict[str, Path] = {}
    todo: deque[tuple[Symbol, Path]] = deque()

    def arrive(flow: Flow, symbol: Symbol, path: Path) -> None:
        known = found.get(flow.id)
        if known is None or path.total > known.total:
            found[flow.id] = path
        node = (flow.target, symbol)
        if path.total > best.get(node, -1) and visits[node] < _MAX_VISITS and len(path.flows) < MAX_HOPS:
            best[node] = path.total
            visits[node] += 1
            todo.append((symbol, path))

    for birth in lanes.births():
        for arriving, flows in lanes.out_of(birth):
            for flow in flows:
                arrive(flow, arriving, Path((flow,), budget(flow, kind)))
    while todo:
        symbol, path = todo.popleft()
        passed = set(path.clusters)
        for arriving, flows in lanes.out_of((path.flows[-1].target, symbol)):
            for flow in flows:
                if flow.plan.forward != "local" and flow.target not in passed:
                    arrive(flow, arriving, Path((*path.flows, flow), path.total + budget(flow, kind)))
    return found
