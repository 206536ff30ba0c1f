"""The topics of a flow: which of the source's topics it copies, and their places on the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from clusters.surface import Administration, Topic
from replicator.limits import DEFAULT_MAX_BATCH, Limits
from topology.plan import NEVER_SYNCED, PlanFlow


@dataclass(frozen=True, slots=True)
class Mapped:
    """One topic mapping: a source topic, its target name, and whether the target had to be created.

    max_batch: the largest record batch that the target topic takes, in bytes.
    """

    topic: str
    target_topic: str
    partitions: int
    created: bool
    max_batch: int = DEFAULT_MAX_BATCH


def mapped_topics(flow: PlanFlow, source: Administration, target: Administration) -> list[Mapped]:
    """The flow's topics as they are on the source now; what is missing on the target is created.

    Raises ClusterError when a topic cannot be created. An existing target topic is never changed.
    """
    chosen = {name: topic for name, topic in source.topics().items() if flow.selects(name)}
    there = target.topics()
    missing = [name for name in chosen if flow.target_topic(name) not in there]
    configs = source.topic_configs(missing) if missing else {}
    mapped: list[Mapped] = []
    for name, topic in sorted(chosen.items()):
        target_name = flow.target_topic(name)
        if name in missing:
            target.create_topic(
                target_name,
                topic.partitions,
                _replicas(flow, topic, target),
                _configs(flow, configs.get(name, {})),
            )
        mapped.append(Mapped(name, target_name, topic.partitions, name in missing))
    limits = target_limits(target, [found.target_topic for found in mapped])
    return [replace(found, max_batch=limits[found.target_topic].max_batch) for found in mapped]


def target_limits(target: Administration, topics: Collection[str]) -> dict[str, Limits]:
    """What the target's topics take: the topic's own `max.message.bytes` and `segment.bytes`, else the brokers'.

    A batch above the first is answered MESSAGE_TOO_LARGE, above the second RECORD_LIST_TOO_LARGE (LogValidator,
    UnifiedLog). Raises ClusterError.
    """
    if not topics:
        return {}
    own = target.topic_configs(topics)
    brokers = [target.broker_config(key) for key in ("message.max.bytes", "log.segment.bytes")]
    found: dict[str, Limits] = {}
    for topic in topics:
        configs = own.get(topic, {})
        said = (configs.get("max.message.bytes") or brokers[0], configs.get("segment.bytes") or brokers[1])
        found[topic] = Limits(min([int(size) for size in said if size] or [DEFAULT_MAX_BATCH]))
    return found


def _replicas(flow: PlanFlow, topic: Topic, target: Administration) -> int:
    return flow.replication_factor or min(topic.replication_factor, target.brokers())


def _configs(flow: PlanFlow, configs: Mapping[str, str]) -> dict[str, str]:
    """What a created topic gets: the source's own settings as far as the flow takes them, and what the file sets."""
    left_out = NEVER_SYNCED | set(flow.sync_configs_exclude)
    only = set(flow.sync_configs_include) or set(configs)
    taken = {} if flow.sync_configs == "never" else {key: configs[key] for key in configs if key in only - left_out}
    return taken | dict(flow.configs_set)
