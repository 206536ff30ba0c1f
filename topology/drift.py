"""How far live clusters are from a plan: field by field, with what kind of difference it is.

The classes follow teslamotors/kafka-helmsman: `safe` to apply, `unsafe` (it may lose data or order), `unsupported`
(Kafka or Watershed cannot do it in place), `unknown`. Nothing here ever asks for a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from topology.inventory import Inventory, InventoryCluster, InventoryTopic
from topology.plan import NEVER_SYNCED, Plan, PlanFlow

Class = Literal["safe", "unsafe", "unsupported", "unknown"]
# Larger keeps more: lowering one of these deletes or refuses what was fine before.
GROWING = ("retention.ms", "retention.bytes", "delete.retention.ms", "max.message.bytes", "segment.bytes")


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of one thing on one cluster. kind is `control topic`, `topic` or `flow`; live None: it is not there.
    applied: `topology apply` would change it; the others are only reported. why explains what is not safe."""

    cluster: str
    kind: str
    name: str
    field: str
    live: str | None
    wanted: str | None
    drift: Class = "safe"
    applied: bool = True
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def differences(plan: Plan, inventory: Inventory, control: Iterable[str]) -> list[Difference]:
    """In the order of clusters, kinds and names. control: the names of Watershed's own topics. Clusters that the
    inventory lacks are passed over."""
    found: list[Difference] = []
    control = sorted(control)
    for alias in sorted({flow.target for flow in plan.flows}):
        target = inventory.cluster(alias)
        if target is None:
            continue
        found += [
            Difference(alias, "control topic", name, "", None, "") for name in control if name not in target.topics
        ]
        flows = [flow for flow in plan.flows if flow.target == alias]
        for flow in flows:
            source = inventory.cluster(flow.source)
            if source is not None and flow.state == "running":
                found += _topics(flow, source, target)
        found += _flows(plan, flows, target)
    return found


def _topics(flow: PlanFlow, source: InventoryCluster, target: InventoryCluster) -> Iterator[Difference]:
    for name in sorted(source.topics):
        if not flow.selects(name):
            continue
        here, arriving = source.topics[name], flow.target_topic(name)
        there = target.topics.get(arriving)
        wanted = _configs(flow, here)
        if there is None:
            replicas = flow.replication_factor or min(here.replication_factor, max(len(target.brokers), 1))
            fields = {"partitions": str(here.partitions), "replication.factor": str(replicas), **wanted}
            yield from (Difference(target.alias, "topic", arriving, key, None, value) for key, value in fields.items())
        else:
            yield from _existing(flow, here, there, wanted, target.alias)


def _existing(
    flow: PlanFlow, here: InventoryTopic, there: InventoryTopic, wanted: dict[str, str], alias: str
) -> Iterator[Difference]:
    """An existing topic is never changed by `apply`; what differs is said."""
    if there.partitions != here.partitions:
        fewer = there.partitions < here.partitions
        yield Difference(
            alias,
            "topic",
            there.name,
            "partitions",
            str(there.partitions),
            str(here.partitions),
            "unsafe" if fewer else "unsupported",
            False,
            f"records of the missing partitions are not copied; raise it to {here.partitions} at {alias}"
            if fewer
            else "partitions cannot be taken away; keys go elsewhere",
        )
    if flow.replication_factor is not None and there.replication_factor != flow.replication_factor:
        live, asked = str(there.replication_factor), str(flow.replication_factor)
        why = "replicas are moved with kafka-reassign-partitions"
        yield Difference(alias, "topic", there.name, "replication.factor", live, asked, "unsupported", False, why)
    for key, value in wanted.items():
        live_value = there.config(key)
        if live_value is not None and live_value != value:
            drift, why = _class(key, live_value, value)
            yield Difference(alias, "topic", there.name, key, live_value, value, drift, False, why)


def _class(key: str, live: str, wanted: str) -> tuple[Class, str]:
    if key in GROWING and _is_number(live) and _is_number(wanted):
        before, after = (float("inf") if int(text) < 0 else int(text) for text in (live, wanted))
        return ("safe", "") if after > before else ("unsafe", "less is kept or taken than today")
    if key == "cleanup.policy":
        return "unsafe", "another policy deletes other records"
    return "unknown", ""


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _configs(flow: PlanFlow, here: InventoryTopic) -> dict[str, str]:
    """What the flow gives a topic: the source topic's own settings, and what the file sets (replicator/targets.py)."""
    only = set(flow.sync_configs_include) or set(here.overridden)
    left_out = NEVER_SYNCED | set(flow.sync_configs_exclude)
    keys = set() if flow.sync_configs == "never" else set(here.overridden) & only - left_out
    taken = {key: here.configs[key] for key in sorted(keys) if key in here.configs}
    return taken | dict(flow.configs_set)


def _flows(plan: Plan, flows: list[PlanFlow], target: InventoryCluster) -> Iterator[Difference]:
    alias = target.alias
    for flow in flows:
        order = target.flows.get(flow.id)
        if order is None:
            yield Difference(alias, "flow", flow.id, "state", None, flow.state)
        elif order.topology != plan.topology:
            why = f"it belongs to the topology {order.topology}; give one of the two a suffix"
            yield Difference(
                alias, "flow", flow.id, "topology", order.topology, plan.topology, "unsupported", False, why
            )
        elif order.plan_hash != plan.hash:
            yield Difference(alias, "flow", flow.id, "plan", order.plan_hash, plan.hash)
    planned = {flow.id for flow in flows}
    for flow_id, order in sorted(target.flows.items()):
        if order.topology == plan.topology and flow_id not in planned and order.state != "stopped":
            why = f"the file no longer has it; `topology flow stop {flow_id}` ends it, nothing does so by itself"
            yield Difference(alias, "flow", flow_id, "state", order.state, None, "unknown", False, why)
