"""Builds the topic graph of a topology: names first, then records, both followed over all flows."""

from __future__ import annotations

from collections.abc import Collection

from watershed.topology.model import Topology
from watershed.topology.name_propagation import follow_names
from watershed.topology.record_loops import follow_records
from watershed.topology.topic_graph import OutgoingFlows, TopicGraph


def build_topic_graph(topology: Topology) -> TopicGraph:
    """Follows the topics of every flow's source until nothing new appears. The result is the same for every order of
    the flows in the file."""
    graph = TopicGraph(ways=frozenset((flow.source, flow.target) for flow in topology.all_flows))
    outgoing = OutgoingFlows(topology)
    origins = list(outgoing.births())
    follow_names(graph, outgoing, origins)
    follow_records(graph, outgoing, origins, _find_clusters_on_loops(topology))
    graph.cycles.sort(key=lambda route: route.key)
    graph.returns.sort(key=lambda route: route.key)
    graph.growth.sort(key=lambda growth: growth.route.key)
    graph.duplicate_deliveries.sort(key=lambda pair: (pair[0].key, pair[1].key))
    graph.stopped.sort(key=lambda pair: (pair[0].key, pair[1].id))
    return graph


def _find_clusters_on_loops(topology: Topology) -> frozenset[str]:
    """Clusters that lie on a cycle of flows, or on a path between two cycles: only there can a record come back.

    Found by removing clusters without incoming flows, then those without outgoing flows, until none is left to remove.
    """
    edges = {(flow.source, flow.target) for flow in topology.all_flows if flow.source != flow.target}
    reachable = _remove_unreached_clusters(edges)
    backward = {(target, source) for source, target in edges if source in reachable and target in reachable}
    return _remove_unreached_clusters(backward)


def _remove_unreached_clusters(edges: Collection[tuple[str, str]]) -> frozenset[str]:
    """The clusters that remain after those without an incoming edge are removed, as often as there are any."""
    outgoing: dict[str, list[str]] = {}
    incoming: dict[str, int] = {}
    for source, target in edges:
        outgoing.setdefault(source, []).append(target)
        incoming.setdefault(source, 0)
        incoming[target] = incoming.get(target, 0) + 1
    removed = [alias for alias, count in incoming.items() if count == 0]
    for alias in removed:  # grows while it is read
        for target in outgoing.get(alias, ()):
            incoming[target] -= 1
            if incoming[target] == 0:
                removed.append(target)
    return frozenset(incoming).difference(removed)
