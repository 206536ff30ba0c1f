"""What the clusters of a topology hold, as `topology scan` saw it: one JSON document, read by the linter offline.

Nothing here is secret: no record, key, credential or ACL principal's password is part of it; group members are counted,
not named. Times are milliseconds since 1970, sizes bytes, rates bytes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.errors import UnreadableInventory


@dataclass(frozen=True, slots=True)
class InventoryBroker:
    """One broker with its advertised host; rack None if the broker names none."""

    id: int
    host: str
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class InventoryTopic:
    """configs are effective values by Kafka's key (`retention.ms`: "604800000"); `overridden` are the keys set on the
    topic itself. size_bytes is of the leaders' logs, rate_bytes what producers wrote over the scan's sample; both None
    when the brokers did not say. records_end sums the end offsets: an upper bound, never a count (offsets have gaps).
    last_append_ms is the newest record's timestamp, None when unknown or empty. replica_racks: the racks of a
    partition's replicas, sorted, each combination once; "" for a broker without one. None: not seen, or no broker has a
    rack."""

    name: str
    id: str | None
    partitions: int
    replication_factor: int
    internal: bool = False
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    overridden: tuple[str, ...] = ()
    size_bytes: int | None = None
    rate_bytes: int | None = None
    records_end: int = 0
    last_append_ms: int | None = None
    replica_racks: tuple[tuple[str, ...], ...] | None = None

    def config(self, key: str) -> str | None:
        """The value in force; None if the scan could not read it."""
        return self.configs.get(key)

    def number(self, key: str) -> int | None:
        """A config as a whole number; None when it is not there or is none."""
        value = self.configs.get(key)
        return int(value) if value is not None and value.lstrip("-").isdecimal() else None


@dataclass(frozen=True, slots=True)
class InventoryGroup:
    """state is Kafka's (`Stable`, `Empty`…), type `classic`, `consumer`, `share` or `streams`. offsets: topic →
    partition → committed offset; lag: topic → records behind (end minus committed, an upper bound). beyond: partitions
    whose committed offset lies behind their end, as `topic:partition`."""

    id: str
    state: str
    type: str = "classic"
    members: int = 0
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    lag: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InventoryAcl:
    """One ACL binding in the words of `kafka-acls`: operation `READ`, permission `ALLOW`, resource `TOPIC`, pattern
    `LITERAL`; the principal as it is (`User:app`)."""

    principal: str
    operation: str
    permission: str
    resource: str
    name: str
    pattern: str
    host: str = "*"


@dataclass(frozen=True, slots=True)
class InventoryFlow:
    """What is ordered for one flow into a cluster: by which topology, from the plan with which hash, and whether it
    shall run (`running`, `paused` or `stopped`). orders: what persons ordered about single partitions (they are paused,
    or moved to a worker), as texts."""

    topology: str
    plan_hash: str
    state: str = "running"
    orders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InventoryCluster:
    """One cluster at `taken_ms`. kafka is the release that the brokers' features or API versions show ("4.3"), None
    when unknown. acls is None when the cluster has no authorizer or does not show them; quotas maps an entity such as
    `user=app` to its limits. users maps each SCRAM user to its mechanisms and their iterations
    (brokers never tell more, KIP-554); None: not read, and in inventories of earlier versions. configs are
    broker-wide values (`auto.create.topics.enable`…), from the lowest broker id.
    flows are the orders in its topic `watershed.flows`, by flow id; empty where Watershed writes nothing. started_waves
    maps `topology/wave` to `topology.migration_waves.compute_wave_hash` of the wave as it was started, from
    `watershed.journal`; None:
    not read. capabilities: what its brokers can be asked; None where they were not asked, and in inventories of earlier
    versions. not_seen says in words what could not be read and why."""

    alias: str
    cluster_id: str
    taken_ms: int
    kafka: str | None = None
    brokers: tuple[InventoryBroker, ...] = ()
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, InventoryTopic] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, InventoryGroup] = field(default_factory=lambda: MappingProxyType({}))
    acls: tuple[InventoryAcl, ...] | None = None
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    flows: Mapping[str, InventoryFlow] = field(default_factory=lambda: MappingProxyType({}))
    started_waves: Mapping[str, str] | None = None
    capabilities: ClusterCapabilities | None = None
    users: Mapping[str, Mapping[str, int]] | None = None
    not_seen: tuple[str, ...] = ()

    @property
    def racks(self) -> int:
        """Distinct racks that the brokers name."""
        return len({broker.rack for broker in self.brokers if broker.rack is not None})


@dataclass(frozen=True, slots=True)
class Inventory:
    """Clusters by alias. live: it was taken for this very run (`topology plan`), so rules about the present may
    speak. missing: clusters that the last scan could not read, and why; what an earlier scan saw of them is kept."""

    clusters: Mapping[str, InventoryCluster]
    live: bool = False
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def with_scan(self, found: Mapping[str, InventoryCluster], missing: Mapping[str, str]) -> Inventory:
        """The same inventory with what a new scan found, and why it found no more (see `missing`)."""
        left = {alias: why for alias, why in self.missing.items() if alias not in found}
        return replace(self, clusters={**self.clusters, **found}, missing={**left, **missing})

    def with_probe(self, probed: ClusterCapabilities) -> Inventory:
        """The same inventory, which also knows what a probe of one of its clusters tried.

        Raises UnreadableInventory where the inventory does not have that cluster, or has another one by its alias.
        """
        seen = self.clusters.get(probed.alias)
        if seen is None:
            known = ", ".join(sorted(self.clusters)) or "none"
            raise UnreadableInventory(f"cluster {probed.alias} was probed, but is not a cluster here ({known})")
        if seen.cluster_id != probed.cluster_id:
            raise UnreadableInventory(
                f"cluster {probed.cluster_id} was probed as {probed.alias}, and {probed.alias} here is cluster "
                f"{seen.cluster_id}; probe it again"
            )
        listed = seen.capabilities or probed
        known_now = replace(seen, capabilities=replace(listed, tried=probed.tried))
        return replace(self, clusters={**self.clusters, probed.alias: known_now})

    def cluster(self, alias: str) -> InventoryCluster | None:
        """The scan of this cluster; None if it was not scanned."""
        return self.clusters.get(alias)
