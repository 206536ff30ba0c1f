"""Which rights the workers of a flow need on either side."""

from __future__ import annotations

from topology.inventory import InventoryCluster
from topology.model import Flow
from topology.rule import RuleContext
from topology.rules.sec.acl_rights import AclRight, NeededRights

_CONTROL = "watershed."  # flows, ledger, status and journal, at the target


def list_source_rights(context: RuleContext, flow: Flow) -> NeededRights:
    """READ (which includes DESCRIBE) on every topic that is known by name, DESCRIBE_CONFIGS where configs are taken
    over."""
    operations = ("READ",) if flow.plan.sync_configs == "never" else ("READ", "DESCRIBE_CONFIGS")
    names = context.facts.names(flow.source, flow.plan.topics)
    return tuple((AclRight(operation, "TOPIC", name),) for operation in operations for name in names)


def list_target_rights(context: RuleContext, flow: Flow, cluster: InventoryCluster) -> NeededRights:
    """WRITE on the topics under their new names, CREATE of those that are not there yet, and the control topics."""
    names = [flow.plan.target_topic(name) for name in context.facts.names(flow.source, flow.plan.topics)]
    create = AclRight("CREATE", "CLUSTER")
    operations = ("WRITE", "ALTER_CONFIGS") if flow.plan.sync_configs == "continuous" else ("WRITE",)
    needed = [(AclRight(operation, "TOPIC", name),) for operation in operations for name in names]
    created = [(AclRight("CREATE", "TOPIC", name), create) for name in names if name not in cluster.topics]
    control = [(AclRight(operation, "TOPIC", _CONTROL, prefixed=True),) for operation in ("READ", "WRITE")]
    if not any(name.startswith(_CONTROL) for name in cluster.topics):
        created.append((AclRight("CREATE", "TOPIC", _CONTROL, prefixed=True), create))
    return (*needed, *created, *control)
