"""Chooses how each flow writes: by sequence numbers or in transactions, and with one producer id or with one per path.

A flow that is the only writer of its target partitions copies by sequence numbers. All others copy in transactions.
A flow has other writers in three cases. The file allows a merge. Another running flow writes the same topic name. Or
the flow is on a loop of running flows that brings a topic back under its own name, so applications may write at both
ends.

A flow that forwards replicated records (`forward: all`) needs one producer id per path if a record could return to a
cluster that it visited before the flow's source. That happens on rings of three or more clusters. On a ring of two it
does not: each producer id already names the flow's source.

A paused flow does not write, so it does not count as another writer. Its own mode is chosen as if this one paused flow
were started. The search for rings includes paused flows, because a flow that starts later still finds old batches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from watershed.topology.collisions import list_collision_candidates
from watershed.topology.model import Flow, Topology
from watershed.topology.name_propagation import follow_names
from watershed.topology.naming import Naming
from watershed.topology.selection_overlap import limit_overlap_work_for
from watershed.topology.selectors import TopicSelection
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.topic_graph import OutgoingFlows, TopicGraph, TopicNode
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol, list_source_symbols

_MAX_STEPS = 3_000_000  # of all searches together; beyond that a flow counts as being on a ring, which is always safe
_MAX_PAIRS, _MAX_PAIRS_PER_NAME = 200_000, 20
_MAX_TOLD_NAME = 70


@dataclass(frozen=True, slots=True)
class DeliveryMode:
    """How one flow writes, as in `PlanFlow`."""

    delivery: Literal["sequence", "transactions"] = "sequence"
    reason: str = ""
    paths: bool = False


def choose_delivery_modes(topology: Topology) -> dict[str, DeliveryMode]:
    """The delivery mode of each flow, by flow id. The order of flows in the file does not matter."""
    graph = TopicGraph()
    with limit_overlap_work_for(len(topology.all_flows)):
        lanes = OutgoingFlows(topology)
        follow_names(graph, lanes, list(lanes.births()))
        found = _Found(topology, graph)
        return {flow.id: found.judged(flow) for flow in topology.flows}


@dataclass(slots=True)
class _Found:
    """Answers questions about the name graph for every flow. edges: of each flow, as (source node, target node)."""

    topology: Topology
    graph: TopicGraph
    edges: dict[str, list[tuple[TopicNode, TopicNode]]] = field(default_factory=dict)
    leaving: dict[TopicNode, dict[TopicNode, list[Flow]]] = field(default_factory=dict)
    arriving: dict[TopicNode, dict[TopicNode, list[Flow]]] = field(default_factory=dict)
    also: dict[str, tuple[str, str]] = field(default_factory=dict)  # flow → (another running writer, name)
    loops: dict[TopicNode, int] = field(default_factory=dict)  # node → its loop of running flows
    back: dict[tuple[TopicNode, bool], str] = field(default_factory=dict)  # node → first flow that brings its name back
    steps: int = _MAX_STEPS

    def __post_init__(self) -> None:
        for (source, target, flow_id), flow in sorted(self.graph.edges.items(), key=lambda edge: _order(edge[0])):
            self.edges.setdefault(flow_id, []).append((source, target))
            self.leaving.setdefault(source, {}).setdefault(target, []).append(flow)
            self.arriving.setdefault(target, {}).setdefault(source, []).append(flow)
        self.also = _find_other_writers(self.topology, self.graph)
        running = {
            node: [target for target, flows in targets.items() if any(map(_runs, flows))]
            for node, targets in self.leaving.items()
        }
        self.loops = number_loop_components(running)

    def judged(self, flow: Flow) -> DeliveryMode:
        plan = flow.plan
        third = self._find_third_cluster(flow) if plan.guard == "producer_id" and plan.forward == "all" else None
        if plan.delivery == "transactions":
            return DeliveryMode("transactions", plan.delivery_reason, third is not None)
        if plan.transform is not None:
            return DeliveryMode("transactions", "records are changed on their way (`transform`)", third is not None)
        reason = self._explain_merge(flow) or self._explain_return(flow)
        if not reason and third is not None:
            reason = f"records may come round by {third} to where they were, so each batch tells the way it came"
        return DeliveryMode("transactions" if reason else "sequence", reason, third is not None)

    def _explain_merge(self, flow: Flow) -> str:
        """Which other writer the target topics have; "" if none is known."""
        other = self.also.get(flow.id)
        if other is not None:
            return f"{other[0]} writes {other[1]} in {flow.target}, too"
        if flow.merge_allowed:
            return f"the file lets other writers share its topics in {flow.target} (`merge.allowed`)"
        return ""

    def _explain_return(self, flow: Flow) -> str:
        """Why a topic of this flow can return to its source under its own name, over running flows; "" if none can."""
        for source, target in self.edges.get(flow.id, ()):
            if _runs(flow):
                found = source in self.loops and self.loops[source] == self.loops.get(target)
            else:
                found = self._leads(target, source, lambda each: _runs(each) or each is flow)
            if found:
                return self._told_return(flow, source)
        if not self.graph.complete and self._back_by_clusters(flow):
            return f"there are too many names to tell whether they come back from {flow.target} to {flow.source}"
        return ""

    def _told_return(self, flow: Flow, source: TopicNode) -> str:
        key = (source, _runs(flow))
        if key not in self.back:
            self.back[key] = min(
                (
                    each.id
                    for before, flows in self.arriving.get(source, {}).items()
                    for each in flows
                    if _runs(each) and (not _runs(flow) or self.loops.get(before) == self.loops.get(source))
                ),
                default=flow.id,
            )
        name = shorten_and_escape(str(source[1]), _MAX_TOLD_NAME)
        return f"{self.back[key]} brings {name} back to {flow.source}, so applications may write at both ends"

    def _back_by_clusters(self, flow: Flow) -> bool:
        todo, seen = [flow.target], {flow.target}
        following: dict[str, set[str]] = {}
        for each in self.topology.all_flows:
            if _runs(each):
                following.setdefault(each.source, set()).add(each.target)
        while todo:
            for cluster in following.get(todo.pop(), set()) - seen:
                seen.add(cluster)
                todo.append(cluster)
        return flow.source in seen

    def _find_third_cluster(self, flow: Flow) -> str | None:
        """A third cluster on a ring through this flow; None if there is none.

        Flows lead from the target to it without passing the source, and from it to the source without passing the
        target. Topic names may differ, because the guard compares clusters.
        """
        thirds = (self._between(source, target) for source, target in self.edges.get(flow.id, ()))
        return next((third for third in thirds if third is not None), None)

    def _between(self, source: TopicNode, target: TopicNode) -> str | None:
        ends = (source[0], target[0])

        def onward(node: TopicNode) -> list[TopicNode]:
            return [after for after in self.leaving.get(node, ()) if after[0] not in ends]

        def back(node: TopicNode) -> list[TopicNode]:
            return [before for before in self.arriving.get(node, ()) if before[0] not in ends]

        met = self._meeting(target, onward, source, back, key=lambda node: node[0])
        return None if met is None else str(met)

    def _leads(self, start: TopicNode, goal: TopicNode, taken: Callable[[Flow], bool]) -> bool:
        def onward(node: TopicNode) -> list[TopicNode]:
            return [after for after, flows in self.leaving.get(node, {}).items() if any(map(taken, flows))]

        def back(node: TopicNode) -> list[TopicNode]:
            return [before for before, flows in self.arriving.get(node, {}).items() if any(map(taken, flows))]

        return self._meeting(start, onward, goal, back, key=lambda node: node, ends=True) is not None

    def _meeting(
        self,
        start: TopicNode,
        onward: Callable[[TopicNode], list[TopicNode]],
        goal: TopicNode,
        back: Callable[[TopicNode], list[TopicNode]],
        key: Callable[[TopicNode], Hashable],
        ends: bool = False,
    ) -> Hashable | None:
        """The first place that a search from `start` and a search back from `goal` both reach; None if there is none.

        Each step continues the search whose next node has fewer edges. So a hub with thousands of spokes costs as
        little as one spoke. ends: `start` and `goal` count as such places, too.
        """
        seen = ({start}, {goal})
        met: tuple[set[Hashable], set[Hashable]] = (set(), set())
        if ends:
            met = ({key(start)}, {key(goal)})
        borders = ([start], [goal])
        neighbours = (self.leaving, self.arriving)

        def degree(side: int, node: TopicNode) -> int:
            return len(neighbours[side].get(node, ()))

        while borders[0] or borders[1]:
            done = [side for side in (0, 1) if not borders[side]]
            if done and (ends or not met[done[0]]):
                return None
            side = 1 - done[0] if done else int(degree(1, borders[1][-1]) < degree(0, borders[0][-1]))
            node = borders[side].pop()
            for found in (onward, back)[side](node):
                self.steps -= 1
                if found not in seen[side]:
                    seen[side].add(found)
                    met[side].add(key(found))
                    borders[side].append(found)
                    if key(found) in met[1 - side]:
                        return key(found)
            if self.steps < 0:
                return key(start)
        return None


def _find_other_writers(topology: Topology, graph: TopicGraph) -> dict[str, tuple[str, str]]:
    """flow id → (the first other running flow that writes one of its target topics, the name of that topic)."""
    found: dict[str, tuple[str, str]] = {}

    def tell(flows: Iterable[Flow], others: Iterable[Flow], name: str) -> None:
        first = sorted({each.id for each in others if _runs(each)})[:2]
        for flow in flows:
            told = next(((other, name) for other in first if other != flow.id), None)
            if told is not None and (flow.id not in found or told < found[flow.id]):
                found[flow.id] = told

    for by_symbol in _written(topology).values():
        if len({flow.id for flows in by_symbol.values() for flow in flows}) < 2:
            continue
        most = _MAX_PAIRS + _MAX_PAIRS_PER_NAME * sum(map(len, by_symbol.values()))
        for number, (one, two) in enumerate(list_collision_candidates(by_symbol)):
            if number >= most:
                graph.complete = False
                break
            tells = _tells(by_symbol[one], by_symbol[two]) or _tells(by_symbol[two], by_symbol[one])
            if tells and (one is two or one.collides(two)):
                name = shorten_and_escape(max(str(one), str(two), key=lambda text: (len(text), text)), _MAX_TOLD_NAME)
                tell(by_symbol[one], by_symbol[two], name)
                if one is not two:
                    tell(by_symbol[two], by_symbol[one], name)
    return found


def _written(topology: Topology) -> dict[str, dict[TopicSymbol, list[Flow]]]:
    """cluster → topic symbol → the flows that write it there.

    An application may produce to any topic that a flow selects, so topics that other flows bring to its source add
    nothing.
    """
    found: dict[str, dict[TopicSymbol, list[Flow]]] = {}
    known: dict[tuple[TopicSelection, Naming], tuple[TopicSymbol, ...]] = {}
    for flow in topology.all_flows:
        if flow.source == flow.target:
            continue
        key = (flow.plan.topics, flow.plan.naming)
        if key not in known:
            arriving = (symbol for birth in list_source_symbols(flow.plan) for symbol in carry_symbol(flow.plan, birth))
            known[key] = tuple(dict.fromkeys(arriving))
        by_symbol = found.setdefault(flow.target, {})
        for symbol in known[key]:
            by_symbol.setdefault(symbol, []).append(flow)
    return found


def _tells(flows: list[Flow], others: list[Flow]) -> bool:
    """Whether some flow of `flows` has another running writer among `others`."""
    running = {other.id for other in others if _runs(other)}
    return any(running - {flow.id} for flow in flows)


def number_loop_components(following: Mapping[TopicNode, list[TopicNode]]) -> dict[TopicNode, int]:
    """Node → number of its strongly connected component, for nodes on a cycle of two or more (Kosaraju's algorithm).

    following: node → the nodes that its edges lead to. Written without recursion: a chain of flows can be long.
    """
    preceding: dict[TopicNode, list[TopicNode]] = {}
    for node, targets in following.items():
        for target in targets:
            preceding.setdefault(target, []).append(node)
    numbers: dict[TopicNode, int] = {}
    seen: set[TopicNode] = set()
    for number, root in enumerate(reversed(_list_in_finish_order(following))):
        component = _collect_unseen(root, preceding, seen)
        if len(component) > 1:
            numbers |= dict.fromkeys(component, number)
    return numbers


def _list_in_finish_order(following: Mapping[TopicNode, list[TopicNode]]) -> list[TopicNode]:
    """All nodes in the order in which a depth-first search leaves them."""
    finished: list[TopicNode] = []
    seen: set[TopicNode] = set()
    for root in following:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(following[root]))]
        while path:
            node, rest = path[-1]
            after = next((target for target in rest if target not in seen), None)
            if after is None:
                finished.append(node)
                path.pop()
            else:
                seen.add(after)
                path.append((after, iter(following.get(after, ()))))
    return finished


def _collect_unseen(
    root: TopicNode, edges: Mapping[TopicNode, list[TopicNode]], seen: set[TopicNode]
) -> list[TopicNode]:
    """The nodes that `root` leads to and that are not in `seen`, with `root`; adds them to `seen`."""
    if root in seen:
        return []
    seen.add(root)
    found = [root]
    for node in found:  # grows while it is read
        for target in edges.get(node, ()):
            if target not in seen:
                seen.add(target)
                found.append(target)
    return found


def _runs(flow: Flow) -> bool:
    return flow.plan.state == "running"


def _order(edge: tuple[TopicNode, TopicNode, str]) -> tuple[str, str, str, str, str]:
    (here, name), (there, arriving), flow_id = edge
    return flow_id, here, str(name), there, str(arriving)
