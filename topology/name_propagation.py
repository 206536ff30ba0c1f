"""Names followed over every flow that selects them, whatever guards do: which topics come to be, and whether a name
comes back longer and is selected again, without end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from watershed.topology.model import Flow
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.selection_overlap import find_overlap
from watershed.topology.topic_graph import (
    MAX_GRAPH_NODES,
    MAX_GRAPH_NODES_PER_FLOW,
    MAX_PATH_HOPS,
    FlowPath,
    NameGrowth,
    OutgoingFlows,
    TopicGraph,
    TopicNode,
)
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol

_ROUNDS = 6


def follow_names(graph: TopicGraph, lanes: OutgoingFlows, begun: Iterable[TopicNode]) -> None:
    """Breadth first over all births together, each node once, so the cost is what there is.

    A flow that is passed a second time with a longer name is looked at: when the same way can be gone until names are
    as long as Kafka allows, that is growth, and the branch is left; otherwise it ends by itself.
    """
    todo: deque[FlowPath] = deque()
    for node in begun:
        if node not in graph.nodes:
            graph.nodes[node] = None
            todo.append(FlowPath((node,)))
    growing: dict[frozenset[str], bool] = {}
    bound = MAX_GRAPH_NODES + MAX_GRAPH_NODES_PER_FLOW * lanes.flows
    while todo:
        if len(graph.nodes) > (bound if graph.complete and not graph.growth else bound // 10):
            graph.complete = False  # where names grow for ever, the rest of them says nothing new
            return
        route = todo.popleft()
        for symbol, flows in lanes.out_of(route.end):
            for flow in flows:
                node = (flow.target, symbol)
                graph.edges[route.end, node, flow.id] = flow
                graph.writers.setdefault(flow.target, {})[flow.id, symbol] = flow
                if node in graph.nodes or symbol.shortest > MAX_TOPIC_NAME_LETTERS:
                    continue
                graph.nodes[node] = None
                following = route.then(flow, symbol)
                if (shown := _growth(_loop(route, flow), symbol, growing)) is not None:
                    graph.growth.append(NameGrowth(following, shown))
                    continue
                if len(following.flows) >= MAX_PATH_HOPS:
                    graph.complete = False
                else:
                    todo.append(following)


def _growth(loop: tuple[Flow, ...], symbol: TopicSymbol, known: dict[frozenset[str], bool]) -> bool | None:
    """`_decide_growth` for this loop; None also for no loop. known: the answers for loops of the same flows."""
    if not loop:
        return None
    ids = frozenset(each.id for each in loop)
    shown = known[ids] if ids in known else _decide_growth(symbol, loop)
    if shown is not None:
        known[ids] = shown
    return shown


def _loop(route: FlowPath, flow: Flow) -> tuple[Flow, ...]:
    """The flows of the loop if `flow` is taken again with a longer name, in order; empty if there is no such loop."""
    here = route.end[1]
    for index in range(len(route.flows) - 1, -1, -1):
        if route.flows[index] is flow and here.grew_from(route.nodes[index][1]):
            return (*route.flows[index + 1 :], flow)
    return ()


def _decide_growth(symbol: TopicSymbol, loop: tuple[Flow, ...]) -> bool | None:
    """Can a name grow around this loop until it exceeds 249 letters?

    True: one name does. None: all names die out after a few rounds. False: undecided after `_ROUNDS`; reported as
    growth, with less confidence, because a missed growth fills both clusters.
    """
    here = [symbol]
    for _ in range(_ROUNDS):
        if any(_can_grow_too_long(each, loop) for each in here):
            return True
        here = _round(here, loop)
        if not here:
            return None
    return False


def _can_grow_too_long(symbol: TopicSymbol, loop: tuple[Flow, ...]) -> bool:
    """True if one example name of the symbol grows with every round until Kafka refuses it."""
    name = symbol.birth if symbol.birth is not None else find_overlap(symbol.constraints).name
    if name is None:
        return False
    here = [symbol if symbol.now is not None else TopicSymbol(name, name, f"{symbol.before}{name}{symbol.after}")]
    while here and here[0].shortest <= MAX_TOPIC_NAME_LETTERS:
        before, here = here[0], _round(here, loop)
        if here and not here[0].grew_from(before):
            return False
    return bool(here)


def _round(here: list[TopicSymbol], loop: tuple[Flow, ...]) -> list[TopicSymbol]:
    for flow in loop:
        here = [after for before in here for after in carry_symbol(flow.plan, before)][:2]
    return here
