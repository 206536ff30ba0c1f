"""The topics of a flow: which of the source's topics it copies, and their places on the target."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from watershed.clusters.cluster_protocol import ClusterProtocol, TopicShape
from watershed.clusters.errors import ClusterError, Unauthorised, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.copy import log_append_time
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.ledger.ledger import Ledger, read_ledger
from watershed.replicator.limits import DEFAULT_MAX_BATCH_BYTES, TargetLimits
from watershed.replicator.partition_states import Halt
from watershed.topology.plan import PlanFlow
from watershed.topology.reserved_topics import explain_reserved_topic
from watershed.topology.shell_command import render_shell_command
from watershed.topology.target_configs import (
    MAX_MESSAGE_CONFIG,
    TIMESTAMP_TYPE_CONFIG,
    build_target_configs,
    count_created_replicas,
    find_withdrawn_configs,
)

_SIDE_BY_SIDE: Final = 8  # topics that are created or grown at once
RECREATED_STATE: Final = "source_recreated"


@dataclass(frozen=True, slots=True)
class HoldReason:
    """Why partitions have no place on the target: `state` and texts as they are reported; `cause` when asking for
    the place failed, which is tried again at the next discovery."""

    state: str
    error: str
    remedy: str
    cause: ClusterError | None = None


@dataclass(frozen=True, slots=True)
class MappedTopic:
    """One topic mapping: a source topic and its target name, both as last seen.

    partitions: of the source topic, and never fewer than were seen once: whether a topic is really gone is found out
    by a look at its partitions, not by one broker's listing. Those from `copied` on wait, and `held` says what for.
    source_ids: of the topics that were copied under this name, where the ledger was asked. created, grown: what was
    done to the target just now. refused: why nothing at all may be copied, as the target topic is configured.
    max_batch: the largest record batch that the target topic takes, in bytes. way: how offsets without records are
    filled, where offsets are equal at both ends; None where they are translated. note: something that a person should
    know although everything is copied.
    """

    topic: str
    target_topic: str
    partitions: int
    created: bool
    max_batch: int = DEFAULT_MAX_BATCH_BYTES
    copied: int = 0
    source_ids: frozenset[uuid.UUID] = frozenset()
    grown: bool = False
    held: HoldReason | None = None
    refused: HoldReason | None = None
    note: str = ""
    gap_method: GapMethod | None = None


def map_topics(
    flow: PlanFlow, source: ClusterProtocol, target: ClusterProtocol, known: Mapping[str, MappedTopic] | None = None
) -> list[MappedTopic]:
    """The flow's topics as they are on the source now; what is missing on the target is created or grown.

    `known`: topics (by source name) that the flow copied already; see `place`. Raises ClusterError when a cluster does
    not answer; what is refused for one topic stands in its `held`.
    """
    there = target.shapes()
    found = place_topics(flow, source.shapes(), there, known or {}, source, target)
    asked = [each.target_topic for each in found if each.created or each.target_topic in there]
    return apply_limits(found, read_target_limits(target, asked))


def place_topics(
    flow: PlanFlow,
    here: Mapping[str, TopicShape],
    there: Mapping[str, TopicShape],
    known: Mapping[str, MappedTopic],
    source: ClusterProtocol,
    target: ClusterProtocol,
) -> list[MappedTopic]:
    """As `map_topics`, from listings of both clusters.

    The target is always ready before the source's partition is copied: created with the source's partition count, or
    grown to it (KIP-195) where the flow lets it grow. What the flow copied before (`known`) is never created again: a
    topic that somebody deleted stays deleted. A topic that others filled is never grown.
    """
    chosen = {name for name in here if flow.selects(name)} | {name for name in known if flow.selects(name)}
    found: dict[str, MappedTopic] = {}
    to_do: dict[str, Callable[[], MappedTopic]] = {}
    for name in sorted(chosen):
        before, shape = known.get(name), here.get(name)
        if shape is None:
            assert before is not None  # chosen for one of the two reasons
            found[name] = replace(before, created=False, grown=False)
            continue
        partitions = max(shape.partitions, before.partitions if before else 0)
        mapped = MappedTopic(name, flow.target_topic(name), partitions, created=False, copied=partitions)
        if before is not None:
            mapped = replace(mapped, max_batch=before.max_batch, source_ids=before.source_ids, refused=before.refused)
        if reserved_by := explain_reserved_topic(mapped.target_topic):
            found[name] = replace(mapped, copied=0, held=_never_written(mapped, reserved_by))
            continue
        size = there.get(mapped.target_topic)
        found[name] = mapped
        if size is None and (before is None or before.copied == 0):
            to_do[name] = partial(_created, flow, mapped, shape, source, target)
        elif size is None:
            pass  # deleted at the target: an inspection of the partitions says so
        elif size.partitions < partitions:
            to_do[name] = partial(_grown, flow, mapped, size.partitions, before is not None, source, target)
        elif size.partitions > partitions:
            found[name] = replace(mapped, note=_more(mapped, size.partitions))
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:  # most of the time goes into waiting for leaders
        for mapped in pool.map(lambda work: work(), to_do.values()):
            found[mapped.topic] = mapped
    return list(found.values())


def _never_written(mapped: MappedTopic, by: str) -> HoldReason:
    error = f"{mapped.topic} would be called {mapped.target_topic} at the target, a name that no flow may write: {by}"
    return HoldReason("unsupported", error, "give the flow a `naming` that leads elsewhere, or exclude the topic")


def apply_limits(found: Iterable[MappedTopic], limits: Mapping[str, TargetLimits]) -> list[MappedTopic]:
    """The same mappings with limits, as far as they are known, by target topic."""
    return [_within(each, limits[each.target_topic]) if each.target_topic in limits else each for each in found]


def _within(mapped: MappedTopic, limits: TargetLimits) -> MappedTopic:
    if not limits.append_time:
        return replace(mapped, max_batch=limits.max_batch, refused=None)
    topic = mapped.target_topic
    error = (
        f"the target topic {topic} has message.timestamp.type=LogAppendTime (its own, or by the brokers' "
        "log.message.timestamp.type): every record would get the time of its copying"
    )
    alter = render_shell_command(
        *("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic),
        *("--add-config", "message.timestamp.type=CreateTime"),
    )
    remedy = f"give {topic} message.timestamp.type=CreateTime ({alter}); copying begins by itself then"
    return replace(
        mapped, max_batch=limits.max_batch, refused=HoldReason(log_append_time.APPEND_TIME_STATE, error, remedy)
    )


def read_copied_topics(target: ConnectionSettings) -> dict[str, dict[str, MappedTopic]]:
    """What was ever copied to a cluster, as its ledger has it: by flow and source topic. Raises ClusterError."""
    return list_copied_topics(read_ledger(target, tolerant=True))


def list_copied_topics(ledger: Ledger) -> dict[str, dict[str, MappedTopic]]:
    """What was ever copied, as the ledger has it: by flow and source topic."""
    copied: dict[str, dict[str, MappedTopic]] = defaultdict(dict)
    for key, (remembered, _) in ledger.partitions.items():
        before = copied[key.flow].get(key.topic)
        partitions = max(key.partition + 1, before.partitions if before else 0)
        ids = {remembered.source_id} | (before.source_ids if before else frozenset())
        copied[key.flow][key.topic] = MappedTopic(
            key.topic, key.target_topic, partitions, created=False, copied=partitions, source_ids=frozenset(ids)
        )
    return copied


def read_target_limits(target: ClusterProtocol, topics: Collection[str]) -> dict[str, TargetLimits]:
    """What the target's topics take, by the settings in force for each: `max.message.bytes`, `segment.bytes` and
    `message.timestamp.type`.

    A batch above the first is answered MESSAGE_TOO_LARGE, above the second RECORD_LIST_TOO_LARGE (LogValidator,
    UnifiedLog). Raises ClusterError.
    """
    found: dict[str, TargetLimits] = {}
    for topic, configs in target.effective_configs(topics).items() if topics else ():
        sizes = [configs[key] for key in ("max.message.bytes", "segment.bytes") if key in configs]
        append_time = configs.get(TIMESTAMP_TYPE_CONFIG) == "LogAppendTime"
        found[topic] = TargetLimits(min([int(size) for size in sizes] or [DEFAULT_MAX_BATCH_BYTES]), append_time)
    return found


def _created(
    flow: PlanFlow, mapped: MappedTopic, shape: TopicShape, source: ClusterProtocol, target: ClusterProtocol
) -> MappedTopic:
    try:
        target.create_topic(
            mapped.target_topic,
            mapped.partitions,
            count_created_replicas(flow, shape.replication_factor, target.brokers()),
            read_configs_to_create(flow, mapped.topic, source, target),
        )
    except Unreachable:
        raise
    except ClusterError as error:
        return replace(mapped, copied=0, held=_refused(error, f"CREATE on topic {mapped.target_topic}"))
    return replace(mapped, created=True)


def _grown(
    flow: PlanFlow, mapped: MappedTopic, there: int, ours: bool, source: ClusterProtocol, target: ClusterProtocol
) -> MappedTopic:
    other = _recreated(mapped, source)
    if other is not None:
        return replace(mapped, copied=there, held=other)
    differ = (
        f"the source topic {mapped.topic} has {mapped.partitions} partitions, "
        f"the target topic {mapped.target_topic} has {there}"
    )
    by_hand = f"give {mapped.target_topic} {mapped.partitions} partitions (kafka-topics --alter --partitions)"
    if not flow.grow:
        error = f"{differ}, and the flow's partitions are `fixed`"
        remedy = f"{by_hand}, or set the flow's `partitions.mode` to `grow` and apply the topology"
        return replace(mapped, copied=there, held=HoldReason("unsupported", error, remedy))
    if not ours and not _empty(target, mapped.target_topic, there):
        error = f"{differ}, and holds records that are not this flow's, so it is not changed"
        return replace(
            mapped, copied=there, held=HoldReason("unsupported", error, f"{by_hand}, or choose another target")
        )
    try:
        target.create_partitions(mapped.target_topic, mapped.partitions)
    except Unreachable:
        raise
    except ClusterError as refused:
        return replace(mapped, copied=there, held=_refused(refused, f"ALTER on topic {mapped.target_topic}"))
    return replace(mapped, grown=True)


def _recreated(mapped: MappedTopic, source: ClusterProtocol) -> HoldReason | None:
    """A topic that was created again with more partitions is another topic: its records do not belong behind the old
    ones'."""
    now = source.topic(mapped.topic)
    if now is None or not mapped.source_ids or now.topic_id in mapped.source_ids:
        return None
    known = ", ".join(sorted(map(str, mapped.source_ids)))
    error = f"the source topic has id {now.topic_id}, what was copied so far came from {known}"
    return HoldReason(RECREATED_STATE, error, Halt(RECREATED_STATE, error).remedy)


def _empty(target: ClusterProtocol, topic: str, partitions: int) -> bool:
    spans = target.offsets(TopicPartition(topic, number) for number in range(partitions))
    return all(span.start == span.end for span in spans.values())


def _refused(error: ClusterError, right: str) -> HoldReason:
    if isinstance(error, Unauthorised):
        return HoldReason(
            "unauthorised", str(error), f"give the worker's principal {right}; it tries again by itself", error
        )
    return HoldReason("retrying", str(error), "mend what the target names; it tries again by itself", error)


def _more(mapped: MappedTopic, there: int) -> str:
    return (
        f"the target topic {mapped.target_topic} has {there} partitions, the source topic {mapped.partitions}: "
        f"partitions {mapped.partitions} to {there - 1} stay empty, and producers that move to the target will find "
        "other partitions for the same keys"
    )


def read_configs_to_create(
    flow: PlanFlow, topic: str, source: ClusterProtocol, target: ClusterProtocol
) -> dict[str, str]:
    """What a created topic gets: the source's own settings as far as the flow takes them, and what the file sets."""
    synced = flow.sync_configs != "never"
    own = source.topic_configs([topic])[topic] if synced else {}
    return build_target_configs(
        flow,
        own,
        source_max_message=source.effective_configs([topic])[topic].get(MAX_MESSAGE_CONFIG) if synced else None,
        target_max_message=target.broker_config("message.max.bytes") if synced else None,
        target_timestamp_type=target.broker_config("log.message.timestamp.type"),
        withdrawn=find_withdrawn_configs(own, target.broker_config),
    )
