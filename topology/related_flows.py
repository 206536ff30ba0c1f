"""Groups of related flows: flows that read or write a common topic, directly or over other flows.

Applications can write at both ends, so a topic that one flow reads and another flow writes is common as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import networkx as nx

from watershed.topology.collisions import list_collision_candidates
from watershed.topology.model import Flow, Topology
from watershed.topology.selection_overlap import limit_overlap_work_for
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol, list_source_symbols

_MAX_PAIRS, _MAX_PAIRS_PER_SYMBOL = 200_000, 20


def find_related_flows(topology: Topology, ids: Collection[str]) -> frozenset[str]:
    """Ids of the flows that share a topic with one of `ids`, or with a flow that does, and so on; `ids` among them.

    Where that is too much to compare, all flows: that is always safe.
    """
    touching: nx.Graph[str] = nx.Graph()
    touching.add_nodes_from(flow.id for flow in topology.flows)
    with limit_overlap_work_for(len(topology.flows)):
        for by_symbol in _find_touched(topology).values():
            left = _MAX_PAIRS + _MAX_PAIRS_PER_SYMBOL * len(by_symbol)
            for one, two in list_collision_candidates(by_symbol):
                left -= 1
                if left < 0:
                    return frozenset(touching)
                if one is two or one.collides(two):
                    first = by_symbol[one][0].id
                    touching.add_edges_from((first, flow.id) for flow in (*by_symbol[one], *by_symbol[two]))
    return frozenset(each for flow_id in ids for each in nx.node_connected_component(touching, flow_id))


def _find_touched(topology: Topology) -> dict[str, dict[TopicSymbol, list[Flow]]]:
    """cluster → what flows read or write there → these flows."""
    found: dict[str, dict[TopicSymbol, list[Flow]]] = {}
    for flow in topology.flows:
        for cluster, symbol in set(_list_ends(flow)):
            found.setdefault(cluster, {}).setdefault(symbol, []).append(flow)
    return found


def _list_ends(flow: Flow) -> Iterator[tuple[str, TopicSymbol]]:
    for birth in list_source_symbols(flow.plan):
        yield flow.source, birth
        for arriving in carry_symbol(flow.plan, birth):
            yield flow.target, arriving
