"""What stands between a flow's source and its target, and what to do about it, from the two clusters as they are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watershed.topology import rounded_amounts
from watershed.topology.inventory import InventoryCluster, InventoryTopic
from watershed.topology.plan import PlanFlow
from watershed.topology.target_configs import count_created_replicas, plan_target_configs

# topic config → the broker config that it inherits where nothing is set on the topic
_INHERITED = {
    "cleanup.policy": "log.cleanup.policy",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
}
_OLDEST_SOURCE = (0, 11)  # record batches (KIP-98)
_OLDEST_TARGET = (2, 4)  # producer state that outlives records (KAFKA-7190)
_REPLICAS_A_BROKER = (
    4_000  # what Kafka's developers advise at most (Apache Kafka blog, 200K partitions per cluster, 2018)
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """flow is None for what concerns all flows into a cluster; topics are source names, none for whole clusters."""

    flow: str | None
    what: str
    topics: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class _PlannedTopic:
    """One source topic and its place on the target. there: the target's topic if it exists."""

    flow: PlanFlow
    source: InventoryTopic
    there: InventoryTopic | None
    target: InventoryCluster

    def target_config(self, key: str) -> str | None:
        """The value in force at the target topic: as it is there, or as the flow will create it."""
        if self.there is not None:
            return self.there.config(key)
        created = plan_target_configs(self.flow, self.source, self.target)
        return created[key] if key in created else self.target.configs.get(_INHERITED[key])

    def target_config_number(self, key: str) -> int | None:
        value = self.target_config(key)
        return int(value) if value is not None and value.isdecimal() else None

    @property
    def replicas(self) -> int:
        """Replicas at the target: those that are there, or as many as the flow would create."""
        if self.there is not None:
            return self.there.replication_factor
        return count_created_replicas(self.flow, self.source.replication_factor, len(self.target.brokers))


_Found = tuple[str, str]  # what, remedy
_Check = Callable[[_PlannedTopic], Iterator[_Found]]


def find_flow_obstacles(
    flow: PlanFlow, topics: list[InventoryTopic], source: InventoryCluster, target: InventoryCluster
) -> list[Obstacle]:
    """Those of one flow; topics that share an obstacle share one line."""
    found: dict[_Found, list[str]] = defaultdict(list)
    for topic in topics:
        pair = _PlannedTopic(flow, topic, target.topics.get(flow.target_topic(topic.name)), target)
        for check in _CHECKS:
            for each in check(pair):
                found[each].append(topic.name)
    per_topic = [Obstacle(flow.id, what, tuple(sorted(names)), remedy) for (what, remedy), names in found.items()]
    return [*_versions(flow, source, target), *per_topic]


def find_partition_obstacle(
    target: InventoryCluster, created: int, replicas: int, limit: int | None
) -> Obstacle | None:
    """created: partitions that all flows add to the target, replicas: those with their replicas; limit: declared."""
    there = sum(topic.partitions for topic in target.topics.values())
    if limit is not None and there + created > limit:
        return Obstacle(
            None,
            f"{target.alias} would hold {there + created:,} partitions; clusters.{target.alias}.limits.partitions "
            f"says {limit:,}",
            (),
            "copy fewer topics into it, add brokers and raise the limit, or remove topics that nobody uses",
        )
    all_replicas = sum(topic.partitions * topic.replication_factor for topic in target.topics.values()) + replicas
    if limit is None and target.brokers and all_replicas > _REPLICAS_A_BROKER * len(target.brokers):
        return Obstacle(
            None,
            f"{target.alias} would hold {all_replicas:,} replicas on "
            f"{rounded_amounts.render_counted_noun(len(target.brokers), 'broker')}; "
            f"{_REPLICAS_A_BROKER:,} a broker is advised at most",
            (),
            f"add brokers, or state clusters.{target.alias}.limits.partitions if the cluster is known to carry more",
        )
    return None


def _versions(flow: PlanFlow, source: InventoryCluster, target: InventoryCluster) -> Iterator[Obstacle]:
    for cluster, oldest, does in ((source, _OLDEST_SOURCE, "reads from"), (target, _OLDEST_TARGET, "writes to")):
        release = re.fullmatch(r"(\d{1,4})\.(\d{1,4})(\D.*)?", cluster.kafka or "")
        if release is not None and (int(release[1]), int(release[2])) < oldest:
            needed = ".".join(map(str, oldest))
            yield Obstacle(
                flow.id,
                f"{cluster.alias} runs Kafka {cluster.kafka}; Watershed {does} {needed} and newer",
                (),
                f"upgrade {cluster.alias} to {needed} or newer before the flow is applied",
            )


def _message_size(pair: _PlannedTopic) -> Iterator[_Found]:
    largest, taken = pair.source.number("max.message.bytes"), pair.target_config_number("max.message.bytes")
    if largest is not None and taken is not None and taken < largest:
        yield (
            f"batches of up to {rounded_amounts.render_rounded_size(largest)} are allowed at {pair.flow.source}, "
            f"{rounded_amounts.render_rounded_size(taken)} "
            f"at {pair.flow.target}: larger ones are refused and stop the partition",
            f"set max.message.bytes={largest} on the topics at {pair.flow.target}",
        )


def _timestamps(pair: _PlannedTopic) -> Iterator[_Found]:
    kept, will_be = pair.source.config("message.timestamp.type"), pair.target_config("message.timestamp.type")
    if kept == "CreateTime" and will_be == "LogAppendTime":
        yield (
            f"{pair.flow.target} would replace every record's time by the time of its copy (LogAppendTime)",
            "set message.timestamp.type=CreateTime on the target topics before the copy",
        )


def _cleanup(pair: _PlannedTopic) -> Iterator[_Found]:
    ours, theirs = pair.source.config("cleanup.policy"), pair.target_config("cleanup.policy")
    if ours is None or theirs is None or ("compact" in ours) == ("compact" in theirs):
        return
    if "compact" in theirs:
        yield (
            f"{pair.flow.target} would compact what {pair.flow.source} keeps whole: older records of a key are lost",
            f"set cleanup.policy={ours} on the target topics",
        )
    else:
        yield (
            f"compacted at {pair.flow.source}, deleted by age at {pair.flow.target}: keys that are not written again "
            "disappear",
            f"set cleanup.policy={ours} on the target topics",
        )


def _retention(pair: _PlannedTopic) -> Iterator[_Found]:
    ours, theirs = pair.source.number("retention.ms"), pair.there.number("retention.ms") if pair.there else None
    if ours is not None and theirs is not None and theirs >= 0 and (ours < 0 or theirs < ours):
        kept = "for ever" if ours < 0 else rounded_amounts.render_rounded_duration(ours / 1000)
        yield (
            f"kept {kept} at {pair.flow.source}, {rounded_amounts.render_rounded_duration(theirs / 1000)} at "
            f"{pair.flow.target}: what is older is "
            "deleted as soon as it is copied",
            f"set retention.ms={ours} on the target topics",
        )


def _partitions(pair: _PlannedTopic) -> Iterator[_Found]:
    if pair.there is not None and pair.there.partitions != pair.source.partitions:
        yield (
            f"{rounded_amounts.render_counted_noun(pair.source.partitions, 'partition')} at {pair.flow.source}, "
            f"{pair.there.partitions} at "
            f"{pair.flow.target}: keys would land in other partitions after the move",
            "create the target topics anew with the source's partition count, while they are empty",
        )


def _replication(pair: _PlannedTopic) -> Iterator[_Found]:
    brokers = len(pair.target.brokers)
    if pair.there is None and 0 < brokers < pair.replicas:
        yield (
            f"the flow asks for {pair.replicas} replicas; {pair.flow.target} has "
            f"{rounded_amounts.render_counted_noun(brokers, 'broker')}: the topics cannot be created",
            f"set replication_factor to {brokers} at most, or add brokers to {pair.flow.target}",
        )
    elif pair.replicas < pair.source.replication_factor:
        yield (
            f"{rounded_amounts.render_counted_noun(pair.source.replication_factor, 'replica')} at "
            f"{pair.flow.source}, {pair.replicas} at "
            f"{pair.flow.target}",
            "accept less durability, or add brokers and replicas at the target before applications move",
        )
    insync = pair.target_config_number("min.insync.replicas")
    if insync is not None and insync > pair.replicas:
        yield (
            f"min.insync.replicas={insync} with {pair.replicas} replicas at {pair.flow.target}: every write with "
            "acks=all is refused",
            f"set min.insync.replicas={max(1, pair.replicas - 1)} on the target topics, or give them more replicas",
        )


def _tiered(pair: _PlannedTopic) -> Iterator[_Found]:
    if pair.source.config("remote.storage.enable") != "true":
        return
    if pair.target.configs.get("remote.log.storage.system.enable") == "true":
        yield (
            f"tiered at {pair.flow.source}: the size shown is of the brokers' disks, more is in remote storage",
            "set remote.storage.enable=true on the target topics, and plan for the remote part of the copy",
        )
    else:
        yield (
            f"tiered at {pair.flow.source}; {pair.flow.target} has no tiered storage: the whole retention lands on its "
            "brokers' disks",
            "shorten the retention, enlarge the target's disks, or enable tiered storage there",
        )


_CHECKS: tuple[_Check, ...] = (
    _message_size,
    _timestamps,
    _cleanup,
    _retention,
    _partitions,
    _replication,
    _tiered,
)
