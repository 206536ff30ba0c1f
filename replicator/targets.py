"""The topics of a flow: which of the source's topics it copies, and their places on the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.surface import Administration, Topic
from topology.plan import NEVER_SYNCED, PlanFlow


@dataclass(frozen=True, slots=True)
class Mapped:
    """One topic mapping: a source topic, its target name, and whether the target had to be created."""

    topic: str
    target_topic: str
    partitions: int
    created: bool


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
    return mapped


def _replicas(flow: PlanFlow, topic: Topic, target: Administration) -> int:
    return flow.replication_factor or min(topic.replication_factor, target.brokers())


def _configs(flow: PlanFlow, configs: Mapping[str, str]) -> dict[str, str]:
    """What a created topic gets: the source's own settings as far as the flow takes them, and what the file sets."""
    left_out = NEVER_SYNCED | set(flow.sync_configs_exclude)
    only = set(flow.sync_configs_include) or set(configs)
    taken = {} if flow.sync_configs == "never" else {key: configs[key] for key in configs if key in only - left_out}
    return taken | dict(flow.configs_set)
