"""The topic graph: nodes are (cluster, topic symbol), edges are flows.

Names and records are followed separately, because they stop at different places. Names: a flow creates every topic that
it selects, also if its guard drops all records, so a rename on a loop grows names without end (`name_propagation`).
Records: a guarded flow skips records that have been at its target, and `forward: local` skips replicated records
(`record_loops`). `topic_graph_builder.build_topic_graph` runs both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from watershed.topology.external_flows import REPLICATOR_HEADER
from watershed.topology.model import Flow, Topology
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol, list_source_symbols

TopicNode = tuple[str, TopicSymbol]
MAX_PATH_HOPS = 64
_MAX_TOLD_NODES = 16
_MAX_TOLD_NAME = 70
# What is followed before the search gives up and nothing is proven: see `names` and `delivery`.
MAX_GRAPH_NODES = 50_000
MAX_GRAPH_NODES_PER_FLOW = 20


@dataclass(frozen=True, slots=True)
class FlowPath:
    """The nodes passed and the flows taken between them: one more node than flows."""

    nodes: tuple[TopicNode, ...]
    flows: tuple[Flow, ...] = ()

    def __str__(self) -> str:
        told = [f"{cluster}/{shorten_and_escape(str(symbol), _MAX_TOLD_NAME)}" for cluster, symbol in self.nodes]
        if len(told) > _MAX_TOLD_NODES:
            ends = _MAX_TOLD_NODES // 2
            told = [*told[:ends], f"({len(told) - 2 * ends} more)", *told[-ends:]]
        return " -> ".join(told)

    @property
    def birth(self) -> TopicNode:
        """Where the path begins."""
        return self.nodes[0]

    @property
    def end(self) -> TopicNode:
        """Where the path ends."""
        return self.nodes[-1]

    @property
    def running(self) -> bool:
        """True if all flows of the path run."""
        return all(flow.plan.state == "running" for flow in self.flows)

    @property
    def key(self) -> tuple[Any, ...]:
        """Shortest first, then by names: the order of witnesses."""
        return (len(self.flows), [(cluster, str(symbol)) for cluster, symbol in self.nodes], self.ids)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the flows, in order."""
        return tuple(flow.id for flow in self.flows)

    def then(self, flow: Flow, symbol: TopicSymbol) -> FlowPath:
        """The path with one more flow, which brings the topic as `symbol`."""
        return FlowPath((*self.nodes, (flow.target, symbol)), (*self.flows, flow))

    def is_kept_local_by(self, flow: Flow) -> bool:
        """Whether a flow with `forward: local` does not take the records of this path: it knows that they are not born
        where they stand."""
        return flow.plan.forward == "local" and bool(self.flows) and self.flows[-1].is_told_apart

    def is_known_to_return_by(self, flow: Flow) -> bool:
        """Whether a guard knows from the last flow of the path that its records come from where `flow` leads."""
        return bool(self.flows) and self.flows[-1].is_known_return(flow)

    def is_left_out_by(self, flow: Flow) -> bool:
        """Whether `flow` is another tool's and does not copy the records of this path: they have the header that it
        leaves out, or Replicator's own note that it took them from where it would bring them."""
        tool = flow.external
        if tool is None:
            return False
        if tool.leaves_out is not None and tool.leaves_out in _list_headers(self.flows):
            return True
        noted = tool.tool == "replicator" and tool.marks_with == REPLICATOR_HEADER
        return noted and any(
            each.external is not None and each.external.marks_with == REPLICATOR_HEADER and each.source == flow.target
            for each in self.flows
        )

    def loop(self) -> FlowPath:
        """The part from the first visit of the last cluster on."""
        start = next(index for index, (cluster, _) in enumerate(self.nodes) if cluster == self.end[0])
        return FlowPath(self.nodes[start:], self.flows[start:])

    def rotate_loop(self) -> FlowPath:
        """The same loop, starting at its smallest node, so that one loop is always reported in one form."""
        around = self.nodes[:-1]
        start = min(range(len(around)), key=lambda index: (around[index][0], str(around[index][1])))
        nodes = (*around[start:], *around[:start])
        return FlowPath((*nodes, nodes[0]), (*self.flows[start:], *self.flows[:start]))


def _list_headers(flows: tuple[Flow, ...]) -> set[str]:
    """Headers that every record has which passed these flows, as far as the file tells."""
    found: set[str] = set()
    for flow in flows:
        if flow.plan.header is not None:
            found.add(flow.plan.header)
        if flow.external is not None and flow.external.marks_with is not None:
            found.add(flow.external.marks_with)
        elif flow.plan.transform is not None:
            found = (found | set(flow.plan.transform.list_constant_headers())) - set(
                flow.plan.transform.list_uncertain_headers()
            )
    return found


@dataclass(frozen=True, slots=True)
class NameGrowth:
    """A path on which a name returns longer. certain: one name was followed until it was too long for Kafka."""

    route: FlowPath
    certain: bool


@dataclass(slots=True)
class TopicGraph:
    """What following names and records has found.

    cycles: paths on which records return to their own topic without end.
    returns: paths on which they would, if a guard did not stop them.
    growth: paths on which a name returns longer.
    duplicate_deliveries: pairs of paths that deliver the same record to the same topic.
    stopped: paths that end before a flow with `forward: local`, with that flow.
    writers: for each cluster, what each flow writes there.
    deliveries: for each origin, the paths that arrive anywhere; the origin itself is not among them.
    ways: pairs of clusters (source, target) that some flow connects.
    consecutive: pairs of flows that a record can pass one after the other, by ids.
    complete: False if a bound stopped the search; then nothing is proven.
    """

    edges: dict[tuple[TopicNode, TopicNode, str], Flow] = field(default_factory=dict)
    nodes: dict[TopicNode, None] = field(default_factory=dict)
    cycles: list[FlowPath] = field(default_factory=list)
    returns: list[FlowPath] = field(default_factory=list)
    growth: list[NameGrowth] = field(default_factory=list)
    duplicate_deliveries: list[tuple[FlowPath, FlowPath]] = field(default_factory=list)
    stopped: list[tuple[FlowPath, Flow]] = field(default_factory=list)
    writers: dict[str, dict[tuple[str, TopicSymbol], Flow]] = field(default_factory=dict)
    deliveries: dict[TopicNode, list[FlowPath]] = field(default_factory=dict)
    ways: frozenset[tuple[str, str]] = frozenset()
    consecutive: dict[tuple[str, str], tuple[Flow, Flow]] = field(default_factory=dict)
    complete: bool = True

    def proofs(self) -> dict[str, Any]:
        """The `proofs` section of a plan."""
        return {
            "no_unbounded_copy": not self.cycles,
            "no_name_growth": not self.growth,
            "no_duplicate_delivery": not self.duplicate_deliveries,
            "topic_nodes": len({(cluster, str(symbol)) for cluster, symbol in self.nodes}),
            "guarded_loops": sorted({" ".join(sorted(set(route.loop().ids))) for route in self.returns}),
            "complete": self.complete,
        }


class OutgoingFlows:
    """Flows by their source cluster, in groups of equal topics and naming: the effect on a symbol is computed once for
    a group."""

    def __init__(self, topology: Topology) -> None:
        self.flows = len(topology.all_flows)
        lanes: dict[str, dict[Any, list[Flow]]] = {}
        for flow in topology.all_flows:
            if flow.source != flow.target:
                lanes.setdefault(flow.source, {}).setdefault((flow.plan.topics, flow.plan.naming), []).append(flow)
        self._lanes: Mapping[str, _Leaving] = {
            cluster: _Leaving([(topics.prefixes, tuple(flows)) for (topics, _), flows in found.items()])
            for cluster, found in lanes.items()
        }
        self._carried: dict[tuple[str, TopicSymbol], tuple[tuple[TopicSymbol, tuple[Flow, ...]], ...]] = {}

    def births(self) -> Iterator[TopicNode]:
        """The (source cluster, symbol) nodes that some flow selects, each once."""
        found: dict[TopicNode, None] = {}
        for cluster, lanes in self._lanes.items():
            for flows in lanes.all:
                for symbol in list_source_symbols(flows[0].plan):
                    found[cluster, symbol] = None
        return iter(found)

    def out_of(self, node: TopicNode) -> tuple[tuple[TopicSymbol, tuple[Flow, ...]], ...]:
        """What flows copy from a node: pairs (symbol at the target, flows)."""
        known = self._carried.get(node)
        if known is None:
            cluster, symbol = node
            lanes = self._lanes.get(cluster)
            known = tuple(
                (arriving, flows)
                for flows in (lanes.touching(symbol) if lanes is not None else ())
                for arriving in carry_symbol(flows[0].plan, symbol)
            )
            self._carried[node] = known
        return known


class _Leaving:
    """The groups of flows that leave one cluster, found by the prefixes of topic names."""

    def __init__(self, lanes: list[tuple[tuple[str, ...], tuple[Flow, ...]]]) -> None:
        self.all = [flows for _, flows in lanes]
        self._by_prefix: dict[str, list[int]] = {}
        for number, (prefixes, _) in enumerate(lanes):
            for prefix in prefixes:
                self._by_prefix.setdefault(prefix, []).append(number)
        self._sorted = sorted(self._by_prefix)
        self._lengths = sorted({len(prefix) for prefix in self._sorted})

    def touching(self, symbol: TopicSymbol) -> list[tuple[Flow, ...]]:
        """The groups with a selector that can match a name with the symbol's prefixes, in order."""
        found: set[int] = set()
        for prefix in symbol.prefixes:
            for length in self._lengths:
                if length >= len(prefix):
                    break
                found.update(self._by_prefix.get(prefix[:length], ()))
            for place in range(bisect_left(self._sorted, prefix), len(self._sorted)):
                if not self._sorted[place].startswith(prefix):
                    break
                found.update(self._by_prefix[self._sorted[place]])
        return [self.all[number] for number in sorted(found)]
