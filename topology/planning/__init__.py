"""The planning report of a migration: what a topology's clusters hold, what its flows copy, what stands in the way.

Pure: `planning(topology, inventory)` gives the numbers, `report(planning)` the page, `markdown` and `html` its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watershed.topology.client_inventory import ClientInventory
from watershed.topology.inventory import Inventory, InventoryCluster, InventoryTopic
from watershed.topology.model import Topology
from watershed.topology.plan import PlanFlow
from watershed.topology.planning.client_overview import ClientEstimate, summarise_clients
from watershed.topology.planning.cluster_overview import ClusterOverview, summarise_cluster
from watershed.topology.planning.copy_estimate import CopyEstimate, estimate_copy
from watershed.topology.planning.obstacles import Obstacle, find_flow_obstacles, find_partition_obstacle
from watershed.topology.planning.wave_estimate import WaveEstimate, estimate_waves
from watershed.topology.target_configs import count_created_replicas

__all__ = ["Assumptions", "FlowEstimate", "MigrationEstimate", "estimate_migration"]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """rate: bytes a second that a copy reaches, None: the flow's quota, else 100 MiB/s. price_per_gib in any currency;
    None: no cost is shown. idle_days: older than that is idle. top: how many busiest and largest topics."""

    rate: int | None = None
    price_per_gib: float | None = None
    idle_days: int = 30
    top: int = 10


@dataclass(frozen=True, slots=True)
class FlowEstimate:
    """A flow against the scan. estimate is None when its source was not scanned; paused flows are estimated too."""

    flow: PlanFlow
    estimate: CopyEstimate | None


@dataclass(frozen=True, slots=True)
class MigrationEstimate:
    """unscanned: clusters of the topology that the inventory does not have, and why ("": not said). clients: None
    without a list of clients."""

    topology: str
    taken_ms: int | None
    assumptions: Assumptions
    clusters: tuple[ClusterOverview, ...]
    unscanned: Mapping[str, str]
    flows: tuple[FlowEstimate, ...]
    migration: str | None
    waves: tuple[WaveEstimate, ...]
    obstacles: tuple[Obstacle, ...]
    clients: ClientEstimate | None = None


def estimate_migration(
    topology: Topology,
    inventory: Inventory,
    assumptions: Assumptions | None = None,
    clients: ClientInventory | None = None,
) -> MigrationEstimate:
    """Clusters by alias, flows by id, waves in their order. Clusters that the topology does not have are left out."""
    assumptions = assumptions or Assumptions()
    scanned = {alias: inventory.clusters[alias] for alias in sorted(topology.clusters) if alias in inventory.clusters}
    selected = {flow.id: _selected(flow.plan, scanned.get(flow.source)) for flow in topology.flows}
    flows = tuple(
        FlowEstimate(flow.plan, None if chosen is None else estimate_copy(chosen, flow.plan, assumptions.rate))
        for flow in topology.flows
        for chosen in (selected[flow.id],)
    )
    migration = topology.migration
    moved = topology.flow(migration.flow) if migration is not None else None
    source = scanned.get(moved.source) if moved is not None else None
    waves: tuple[WaveEstimate, ...] = ()
    if migration is not None and moved is not None and source is not None:
        waves = estimate_waves(migration, moved.plan, source, assumptions.rate)
    return MigrationEstimate(
        topology=topology.name,
        taken_ms=min((cluster.taken_ms for cluster in scanned.values()), default=None),
        assumptions=assumptions,
        clusters=tuple(
            summarise_cluster(cluster, top=assumptions.top, idle_days=assumptions.idle_days)
            for cluster in scanned.values()
        ),
        unscanned={
            alias: inventory.missing.get(alias, "") for alias in sorted(topology.clusters) if alias not in scanned
        },
        flows=flows,
        migration=migration.flow if migration is not None else None,
        waves=waves,
        obstacles=_obstacles(topology, scanned, selected),
        clients=None
        if clients is None
        else summarise_clients(clients, topology.clusters, migration, None if moved is None else moved.source),
    )


def _selected(flow: PlanFlow, source: InventoryCluster | None) -> list[InventoryTopic] | None:
    """The source's topics that travel; None without a scan."""
    if source is None:
        return None
    literals = flow.topics.literals
    if literals is not None:
        return [source.topics[name] for name in literals if name in source.topics]
    return [topic for name, topic in source.topics.items() if flow.selects(name)]


def _obstacles(
    topology: Topology,
    scanned: Mapping[str, InventoryCluster],
    selected: Mapping[str, list[InventoryTopic] | None],
) -> tuple[Obstacle, ...]:
    found: list[Obstacle] = []
    created: dict[str, dict[str, tuple[int, int]]] = {}
    for flow in topology.flows:
        topics, source, target = selected[flow.id], scanned.get(flow.source), scanned.get(flow.target)
        if topics is None or source is None or target is None:
            continue
        found += find_flow_obstacles(flow.plan, topics, source, target)
        for topic in topics:
            name = flow.plan.target_topic(topic.name)
            if name not in target.topics:
                replicas = topic.partitions * count_created_replicas(
                    flow.plan, topic.replication_factor, len(target.brokers)
                )
                created.setdefault(flow.target, {})[name] = topic.partitions, replicas
    for alias, new in sorted(created.items()):
        partitions = sum(each for each, _ in new.values())
        replicas = sum(each for _, each in new.values())
        limit = topology.root.get("clusters", alias, "limits", "partitions")
        obstacle = find_partition_obstacle(scanned[alias], partitions, replicas, limit)
        if obstacle is not None:
            found.append(obstacle)
    return tuple(found)
