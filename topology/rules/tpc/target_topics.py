"""What a flow's topics look like at the target: as they are there, or as they will be when the flow creates them."""

from __future__ import annotations

from typing import Any

from watershed.topology.inventory import InventoryTopic
from watershed.topology.model import Flow
from watershed.topology.rule import RuleContext
from watershed.topology.target_configs import is_synced_config
from watershed.topology.topic_facts import FlowTopic, TopicFacts, build_config_facts

# The facts that are topic configs, by Kafka's key.
TOPIC_CONFIG_KEYS = {
    "min_insync_replicas": "min.insync.replicas",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "cleanup": "cleanup.policy",
    "delete_retention_ms": "delete.retention.ms",
    "max_message": "max.message.bytes",
    "timestamps": "message.timestamp.type",
    "compression": "compression.type",
    "tiered_storage": "remote.storage.enable",
}

_NOTHING_SET = TopicFacts()


def build_target_topics(context: RuleContext, flow: Flow) -> TargetTopics:
    """The flow's side at the target, made once for all rules."""
    known = context.kept.get(("arrival", flow.id))
    if known is None:
        known = context.kept["arrival", flow.id] = TargetTopics(context, flow)
    side: TargetTopics = known
    return side


class TargetTopics:
    """The target's side of one flow. In this order: what the file sets, what a continuous sync writes, what is there,
    what is taken over when the topic is created. None: unknown."""

    def __init__(self, context: RuleContext, flow: Flow) -> None:
        self.flow = flow
        self.facts = context.facts
        self.cluster = context.facts.cluster(flow.target)
        said = dict(flow.plan.configs_set)
        self.set = (
            TopicFacts(**build_config_facts(InventoryTopic("", None, 0, 0, configs=said))) if said else _NOTHING_SET
        )

    def fact(self, topic: FlowTopic, name: str) -> Any:
        """A fact of `TopicFacts` that is a topic config. max_message: at least this; the flow also takes over a larger
        limit that the source's topic inherits from its brokers."""
        said = getattr(self.set, name)
        if said is not None:
            return said
        there = getattr(topic.target, name)
        if there is not None and self.flow.plan.sync_configs != "continuous":
            return there
        if name == "timestamps" and self.cluster.timestamps == "log_append_time":
            return "create_time"  # set by the flow itself (topology/target_configs.py)
        if is_synced_config(self.flow.plan, TOPIC_CONFIG_KEYS[name]):
            taken = getattr(topic.source, name)
            if taken is not None and (name == "max_message" or self._has_own_value(topic, TOPIC_CONFIG_KEYS[name])):
                return taken
        return there

    def replicas(self, topic: FlowTopic | None) -> int | None:
        """The replication factor: what is there, what the file says, or the source's as far as there are brokers
        (replicator/topic_mapping.py). Where the brokers are unknown, an upper bound."""
        if topic is not None and topic.target.replication_factor is not None:
            return topic.target.replication_factor
        if self.flow.plan.replication_factor is not None:
            return self.flow.plan.replication_factor
        if topic is None or topic.source.replication_factor is None:
            return None
        return min(topic.source.replication_factor, self.cluster.brokers or topic.source.replication_factor)

    def _has_own_value(self, topic: FlowTopic, key: str) -> bool:
        """Whether the source's topic has the key itself, as only those are taken over. A declared fact counts."""
        seen = self.facts.seen(self.flow.source, topic.name) if topic.name is not None else None
        return seen is None or key in seen.overridden or key not in seen.configs
