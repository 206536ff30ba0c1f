"""Which rights the workers of a flow need on either side."""

from __future__ import annotations

from topology.inventory import InventoryCluster
from topology.model import Flow
from topology.rule import Context
from topology.rules.sec.rights import Right

CONTROL = "watershed."  # flows, ledger, status and journal, at the target
Needed = tuple[Right | tuple[Right, ...], ...]


def at_source(context: Context, flow: Flow) -> Needed:
    """READ (which includes DESCRIBE) on every topic that is known by name, DESCRIBE_CONFIGS where configs are taken
    over."""
    names = context.facts.names(flow.source, flow.plan.topics)
    needed = [Right("READ", "TOPIC", name) for name in names]
    if flow.plan.sync_configs != "never":
        needed += [Right("DESCRIBE_CONFIGS", "TOPIC", name) for name in names]
    return tuple(needed)


def at_target(context: Context, flow: Flow, cluster: InventoryCluster) -> Needed:
    """WRITE on the topics under their new names, CREATE of those that are not there yet, and the control topics."""
    names = [flow.plan.target_topic(name) for name in context.facts.names(flow.source, flow.plan.topics)]
    needed: list[Right | tuple[Right, ...]] = [Right("WRITE", "TOPIC", name) for name in names]
    create = Right("CREATE", "CLUSTER")
    needed += [(Right("CREATE", "TOPIC", name), create) for name in names if name not in cluster.topics]
    if flow.plan.sync_configs == "continuous":
        needed += [Right("ALTER_CONFIGS", "TOPIC", name) for name in names]
    control = [name for name in cluster.topics if name.startswith(CONTROL)]
    needed += [Right(operation, "TOPIC", CONTROL, prefixed=True) for operation in ("READ", "WRITE")]
    if not control:
        needed.append((Right("CREATE", "TOPIC", CONTROL, prefixed=True), create))
    return tuple(needed)
