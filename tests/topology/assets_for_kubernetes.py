"""Assets that Strimzi can say, with names that YAML or Kubernetes would read otherwise."""

from __future__ import annotations

from tests.topology.hostile_names import HOSTILE_NAME
from watershed.topology.assets.target_assets import AssetQuota, AssetTopic, AssetUser, TargetAssets
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanCluster

ASSETS = TargetAssets(
    PlanCluster("cloud", ("k1:9092",)),
    topics=tuple(
        AssetTopic(name, 3, 2, {"cleanup.policy": "compact,delete", "x": HOSTILE_NAME})
        for name in ("orders.created", "Orders_Paid", "orders_paid", "-orders", "_", "on", "1e3", "x" * 249)
    ),
    users=(AssetUser("ann", {"SCRAM-SHA-512": 4096}), AssetUser("1e3", {"SCRAM-SHA-512": 4096})),
    acls=(
        InventoryAcl("User:ann", "DESCRIBE_CONFIGS", "DENY", "GROUP", HOSTILE_NAME, "PREFIXED", "10.0.0.1"),
        InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "*", "LITERAL"),
        InventoryAcl("User:null", "ALTER", "ALLOW", "CLUSTER", "kafka-cluster", "LITERAL"),
    ),
    quotas=(AssetQuota((("user", "ann"),), {"controller_mutation_rate": 2.5, "producer_byte_rate": 7.0}),),
)
