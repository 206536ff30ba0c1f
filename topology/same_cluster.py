"""Whether clusters of several topologies are one: their aliases say nothing, each file has its own."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from watershed.topology.model import Topology


def is_same_cluster(topology: Topology, alias: str, other: Topology, twin: str) -> bool:
    """Whether two declarations are one cluster: an equal id, or else a shared address."""
    one, two = topology.clusters.get(alias), other.clusters.get(twin)
    if one is None or two is None:
        return False
    if one.cluster_id is not None and two.cluster_id is not None:
        return one.cluster_id == two.cluster_id
    return bool(set(one.bootstrap) & set(two.bootstrap))


def number_clusters(topologies: Sequence[Topology]) -> dict[tuple[int, str], int]:
    """(index of the topology, alias) → a number; those that are one cluster have the same."""
    same: nx.Graph[tuple[int, str]] = nx.Graph()
    places = [(index, alias) for index, each in enumerate(topologies) for alias in each.clusters]
    same.add_nodes_from(places)
    for at, (index, alias) in enumerate(places):
        for later, twin in places[at + 1 :]:
            if index != later and is_same_cluster(topologies[index], alias, topologies[later], twin):
                same.add_edge((index, alias), (later, twin))
    return {place: number for number, found in enumerate(nx.connected_components(same)) for place in found}
