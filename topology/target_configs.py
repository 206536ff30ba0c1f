"""The configs and the replicas that a flow gives a target topic. Pure: used by the replicator, drift and the planning
report, so that a report never says something else than what is created."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from watershed.topology.inventory import InventoryCluster, InventoryTopic
from watershed.topology.plan import NEVER_SYNCED_CONFIGS, PlanFlow

MAX_MESSAGE_CONFIG: Final = "max.message.bytes"
TIMESTAMP_TYPE_CONFIG: Final = "message.timestamp.type"
# Topic configs that Kafka 4.0 took away → the broker config of that meaning, by which a cluster shows that it has it,
# and what becomes of the setting where the target does not.
_WITHDRAWN: Final[Mapping[str, tuple[str, str]]] = {
    "message.format.version": (
        "log.message.format.version",
        "every record is stored in the newest format there (KIP-724)",
    ),
    "message.downconversion.enable": (
        "log.message.downconversion.enable",
        "nothing is converted for consumers older than 2.1 there (KIP-896)",
    ),
    "message.timestamp.difference.max.ms": (
        "log.message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms stand in for it (KIP-937); set them at the "
        "target when the copy has caught up, since they would refuse older records",
    ),
}
_BROKER_MAX_MESSAGE: Final = "message.max.bytes"
_BROKER_TIMESTAMP_TYPE: Final = "log.message.timestamp.type"


def is_synced_config(flow: PlanFlow, key: str) -> bool:
    """True if the flow takes a source topic's own value of this config over, once or continuously."""
    included = not flow.sync_configs_include or key in flow.sync_configs_include
    excluded = key in NEVER_SYNCED_CONFIGS or key in flow.sync_configs_exclude
    return flow.sync_configs != "never" and included and not excluded


def build_target_configs(
    flow: PlanFlow,
    own: Mapping[str, str],
    *,
    source_max_message: str | None,
    target_max_message: str | None,
    target_timestamp_type: str | None,
    withdrawn: Collection[str] = (),
) -> dict[str, str]:
    """Config key → value that a target topic gets as its own.

    own: the values that the source topic has itself; inherited ones are not synced. source_max_message: the value of
    max.message.bytes in force at the source topic. target_max_message, target_timestamp_type: the broker defaults at
    the target. None: unknown.

    Two configs are set although the source topic only inherits them. max.message.bytes: if the source allows larger
    batches than the target's default, the target would refuse them. message.timestamp.type: a default of LogAppendTime
    would replace the time of every record. `sync.configs.set` wins over both.
    """
    set_by_flow = dict(flow.configs_set)
    if target_timestamp_type == "LogAppendTime":
        set_by_flow = {TIMESTAMP_TYPE_CONFIG: "CreateTime"} | set_by_flow
    configs = {key: value for key, value in own.items() if key not in withdrawn}
    if source_max_message and target_max_message and int(source_max_message) > int(target_max_message):
        configs[MAX_MESSAGE_CONFIG] = source_max_message
    return {key: value for key, value in configs.items() if is_synced_config(flow, key)} | set_by_flow


def find_withdrawn_configs(own: Iterable[str], read_broker_config: Callable[[str], str | None]) -> dict[str, str]:
    """Those of the keys that the target's brokers do not know any more → what becomes of the setting. A created topic
    cannot have them: INVALID_CONFIG.

    read_broker_config: the value in force at the target; None for a key that is not known, or not shown to us. A target
    that shows no configs at all is taken to know the keys.
    """
    asked = [key for key in own if key in _WITHDRAWN]
    if not asked or read_broker_config(_BROKER_TIMESTAMP_TYPE) is None:
        return {}
    return {key: why for key in asked for config, why in (_WITHDRAWN[key],) if read_broker_config(config) is None}


def find_withdrawn_topic_configs(flow: PlanFlow, topic: InventoryTopic, target: InventoryCluster) -> dict[str, str]:
    """`find_withdrawn_configs` of what the flow would take over from a scanned topic to a scanned target."""
    own = [key for key in sorted(topic.overridden) if key in topic.configs and is_synced_config(flow, key)]
    return find_withdrawn_configs(own, target.configs.get)


def plan_target_configs(flow: PlanFlow, topic: InventoryTopic, target: InventoryCluster) -> dict[str, str]:
    """`build_target_configs` for a scanned source topic and a scanned target cluster."""
    own = {key: topic.configs[key] for key in sorted(topic.overridden) if key in topic.configs}
    return build_target_configs(
        flow,
        own,
        source_max_message=_get_number_text(topic.configs, MAX_MESSAGE_CONFIG),
        target_max_message=_get_number_text(target.configs, _BROKER_MAX_MESSAGE),
        target_timestamp_type=target.configs.get(_BROKER_TIMESTAMP_TYPE),
        withdrawn=find_withdrawn_topic_configs(flow, topic, target),
    )


def count_created_replicas(flow: PlanFlow, source_replicas: int, brokers: int) -> int:
    """Replicas of a target topic that the flow creates: as the flow says, else as at the source, at most one a broker.

    brokers: number of brokers at the target; 0 means unknown and sets no bound.
    """
    return flow.replication_factor or min(source_replicas, brokers or source_replicas)


def _get_number_text(configs: Mapping[str, str], key: str) -> str | None:
    """A scan is a file that anyone can write: a value that is no number counts as unknown."""
    value = configs.get(key)
    return value if value is not None and value.isdecimal() else None
