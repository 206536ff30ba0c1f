"""How far live clusters are from a plan: field by field, with what kind of difference it is.

The classes follow teslamotors/kafka-helmsman: `safe` to apply, `unsafe` (it may lose data or order), `unsupported`
(Kafka or Watershed cannot do it in place), `unknown`. Nothing here ever asks for a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from watershed.topology.inventory import Inventory, InventoryCluster, InventoryFlow, InventoryTopic
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.shell_command import render_shell_command
from watershed.topology.stretch_layout import find_misplaced_replicas
from watershed.topology.target_configs import count_created_replicas, find_withdrawn_topic_configs, plan_target_configs

DriftClass = Literal["safe", "unsafe", "unsupported", "unknown"]
# Larger keeps or takes more: lowering one of these deletes or refuses what was fine before.
_GROWING = frozenset(
    {
        "delete.retention.ms",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
    }
)
# How a log is cut into files, and when it is cleaned: no value of them deletes or refuses what should stay.
_HARMLESS = frozenset(
    {
        "file.delete.delay.ms",
        "index.interval.bytes",
        "min.cleanable.dirty.ratio",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)


@dataclass(frozen=True, slots=True)
class FieldDrift:
    """One field of one thing on one cluster. kind is `control topic`, `topic`, `flow`, `fleet`, or what is synced; live
    None: it is not there. applied: `topology apply` would change it; the others are only reported. why explains what is
    not safe."""

    cluster: str
    kind: str
    name: str
    field: str
    live: str | None
    wanted: str | None
    drift: DriftClass = "safe"
    applied: bool = True
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields by name, as `topology plan --format json` prints them."""
        return {name: getattr(self, name) for name in self.__slots__}


def find_drift(plan: Plan, inventory: Inventory, control: Iterable[str]) -> list[FieldDrift]:
    """In the order of clusters, kinds and names. control: the names of Watershed's own topics. Clusters that the
    inventory lacks are passed over."""
    found: list[FieldDrift] = []
    control = sorted(control)
    for alias in sorted({each for flow in plan.flows for each in (flow.source, flow.target)}):
        found += _find_placement_drift(plan, alias, inventory.cluster(alias))
    for alias in sorted({flow.target for flow in plan.flows}):
        target = inventory.cluster(alias)
        if target is None:
            continue
        found += [
            FieldDrift(alias, "control topic", name, "", None, "") for name in control if name not in target.topics
        ]
        flows = [flow for flow in plan.flows if flow.target == alias]
        for flow in flows:
            source = inventory.cluster(flow.source)
            if source is not None and flow.state == "running":
                found += _topics(flow, source, target)
        found += _flows(plan, flows, target)
    return found


def _find_placement_drift(plan: Plan, alias: str, live: InventoryCluster | None) -> Iterator[FieldDrift]:
    """Topics that flows read or write at a stretch cluster, whose replicas do not stand where its layout says."""
    layout = {cluster.alias: cluster.stretch for cluster in plan.clusters}.get(alias)
    if layout is None or live is None:
        return
    for name, topic in sorted(live.topics.items()):
        is_read = any(flow.source == alias and flow.selects(name) for flow in plan.flows)
        if not is_read and not any(flow.target == alias and flow.source_topic(name) for flow in plan.flows):
            continue
        for each in find_misplaced_replicas(layout, topic):
            why = (
                "replicas are moved by an operator: kafka-reassign-partitions --bootstrap-server … --execute "
                f"--reassignment-json-file FILE, for the partitions of {name} that differ"
            )
            wanted = str(each.wanted)
            field = f"replicas in {each.region}"
            yield FieldDrift(alias, "topic", name, field, str(each.live), wanted, "unsupported", False, why)


def _topics(flow: PlanFlow, source: InventoryCluster, target: InventoryCluster) -> Iterator[FieldDrift]:
    for name in sorted(source.topics):
        if not flow.selects(name):
            continue
        here, arriving = source.topics[name], flow.target_topic(name)
        there = target.topics.get(arriving)
        wanted = plan_target_configs(flow, here, target)
        if there is None:
            replicas = count_created_replicas(flow, here.replication_factor, len(target.brokers))
            fields = {"partitions": str(here.partitions), "replication.factor": str(replicas), **wanted}
            yield from (FieldDrift(target.alias, "topic", arriving, key, None, value) for key, value in fields.items())
        else:
            yield from _existing(flow, here, there, wanted, target)
        for key, why in find_withdrawn_topic_configs(flow, here, target).items():
            told = f"the brokers of {target.alias} know no such config: {why}"
            yield FieldDrift(target.alias, "topic", arriving, key, None, here.configs[key], "unsupported", False, told)


def _existing(
    flow: PlanFlow, here: InventoryTopic, there: InventoryTopic, wanted: dict[str, str], target: InventoryCluster
) -> Iterator[FieldDrift]:
    """An existing topic is changed by `apply` only where its configs are kept equal (`continuous`), which is compared
    elsewhere (replicator/sync/configs.py); what else differs is said."""
    alias = target.alias
    yield from _partitions(flow, here, there, alias, known=flow.id in target.flows)
    created = count_created_replicas(flow, here.replication_factor, len(target.brokers))
    replicas = flow.replication_factor or max(there.replication_factor, created)
    if there.replication_factor != replicas:
        live, asked = str(there.replication_factor), str(replicas)
        why = (
            "replicas are moved by an operator: kafka-reassign-partitions --bootstrap-server … --execute "
            f"--reassignment-json-file FILE, with {asked} replicas for each partition of {there.name}"
        )
        yield FieldDrift(alias, "topic", there.name, "replication.factor", live, asked, "unsupported", False, why)
    for key, value in wanted.items() if flow.sync_configs != "continuous" else ():
        live_value = there.config(key)
        if live_value is not None and live_value != value:
            drift, why = classify_config_change(key, live_value, value)
            yield FieldDrift(alias, "topic", there.name, key, live_value, value, drift, False, why)


def _partitions(
    flow: PlanFlow, here: InventoryTopic, there: InventoryTopic, alias: str, *, known: bool
) -> Iterator[FieldDrift]:
    """A topic grows with the source's (replicator/topic_mapping.py) where the flow lets it, and where its records are
    the
    flow's: known says that the flow was applied before."""
    if there.partitions == here.partitions:
        return
    if there.partitions > here.partitions:
        drift: DriftClass = "unsupported"
        applied, why = False, "partitions cannot be taken away; keys go elsewhere"
    elif flow.grow and (known or there.records_end == 0):
        drift, applied, why = "safe", True, "as at the source: keys of new records go elsewhere from then on"
    else:
        drift, applied = "unsafe", False
        why = f"records of the missing partitions are not copied; raise it to {here.partitions} at {alias}"
    live, wanted = str(there.partitions), str(here.partitions)
    yield FieldDrift(alias, "topic", there.name, "partitions", live, wanted, drift, applied, why)


def classify_config_change(key: str, live: str, wanted: str) -> tuple[DriftClass, str]:
    """What it would mean to change a topic config on a topic that holds records, and why it is not safe."""
    if key in _HARMLESS:
        return "safe", ""
    if key in _GROWING and _is_number(live) and _is_number(wanted):
        before, after = (float("inf") if int(text) < 0 else int(text) for text in (live, wanted))
        return ("safe", "") if after > before else ("unsafe", "less is kept or taken than today")
    if key == "cleanup.policy":
        return "unsafe", "another policy deletes other records"
    return "unknown", "what it does to records and brokers is for you to judge"


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _partition_orders(flow_id: str, order: InventoryFlow, alias: str) -> Iterator[FieldDrift]:
    """What a person ordered beside the file stays: `apply` takes nothing of it back."""
    take_back = render_shell_command("topology", "flow", "resume", flow_id, "FILE", "--topic", "TOPIC")
    why = f"a person ordered it, and `apply` keeps it; `{take_back}` ends a pause, `topology flow move … --back` a move"
    for told in order.orders:
        yield FieldDrift(alias, "flow", flow_id, "partitions", told, None, "unknown", False, why)


def _flows(plan: Plan, flows: list[PlanFlow], target: InventoryCluster) -> Iterator[FieldDrift]:
    alias = target.alias
    for flow in flows:
        order = target.flows.get(flow.id)
        if order is None:
            yield FieldDrift(alias, "flow", flow.id, "state", None, flow.state)
        elif order.topology != plan.topology:
            why = f"it belongs to the topology {order.topology}; give one of the two a suffix"
            yield FieldDrift(
                alias, "flow", flow.id, "topology", order.topology, plan.topology, "unsupported", False, why
            )
        elif order.plan_hash != plan.hash:
            yield FieldDrift(alias, "flow", flow.id, "plan", order.plan_hash, plan.hash)
        if order is not None and order.topology == plan.topology:
            yield from _partition_orders(flow.id, order, alias)
    planned = {flow.id for flow in flows}
    for flow_id, order in sorted(target.flows.items()):
        if order.topology == plan.topology and flow_id not in planned and order.state != "stopped":
            stop = render_shell_command("topology", "flow", "stop", flow_id)
            why = f"the file no longer has it; `{stop}` ends it, nothing does so by itself"
            yield FieldDrift(alias, "flow", flow_id, "state", order.state, None, "unknown", False, why)
