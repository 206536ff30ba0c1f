"""Topic configs that are kept equal: the source topic's own values and what the file sets; elsewhere the target's
brokers decide.

A new topic gets its configs when it is created, also with `once` (`replicator/topic_mapping.py`); this is about topics
that are there, so it is only for `continuous`. What is safe to change is changed; what could delete or refuse records
is shown, with its class (`topology/drift.py`), and left to a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watershed.clusters.partition_status_records import PartitionStatus, read_partition_statuses
from watershed.clusters.wire.admin_reads import TopicConfig, read_topic_config_entries
from watershed.clusters.wire.admin_writes import alter_topic_configs
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.filling_configs import (
    ANY_RECORD_AGE,
    CLEANUP_POLICY,
    TIERED_STORAGE,
    TIMESTAMP_BEFORE_MAX,
    UNLIMITED_RETENTION,
)
from watershed.replicator.partition_states import ALIGNING
from watershed.replicator.sync import sync_kind
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.drift import FieldDrift, classify_config_change
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode
from watershed.topology.target_configs import (
    MAX_MESSAGE_CONFIG,
    TIMESTAMP_TYPE_CONFIG,
    build_target_configs,
    is_synced_config,
)

_KIND: Final = "topic"
# What a topic has while its partitions are brought to the source's offsets; whoever does that takes it back.
_MEANWHILE: Final = {
    CLEANUP_POLICY: "delete",
    TIMESTAMP_BEFORE_MAX: ANY_RECORD_AGE,
    TIERED_STORAGE: "false",
    **UNLIMITED_RETENTION,
}


@dataclass(frozen=True, slots=True)
class TopicConfigKind:
    """See `replicator.sync.sync_kind.SyncKind`."""

    name: str = "configs"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync_configs` of the flow; configs that are copied only at creation are no sync."""
        return "continuous" if flow.sync_configs == "continuous" else "never"

    def every_ms(self, flow: PlanFlow) -> int:
        """METADATA_INTERVAL_MS, for every flow."""
        return sync_kind.METADATA_INTERVAL_MS

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """Topic configs that differ, and topics whose configs one side does not show."""
        with open_connection(sides.source) as source:
            names = [name for name in source.topics() if flow.selects(name)]
            here, hidden = read_topic_config_entries(source, names)
        found = [_not_told(flow.source, name, why) for name, why in sorted(hidden.items())]
        with open_connection(sides.target) as target:
            there, hidden = read_topic_config_entries(target, [flow.target_topic(name) for name in names])
        found += [_not_told(flow.target, name, why) for name, why in sorted(hidden.items())]
        left_out = (
            find_aligning_topics(flow, read_partition_statuses(sides.target))
            if flow.offsets == "aligned"
            else frozenset()
        )
        for name in sorted(here):
            topic = flow.target_topic(name)
            if topic in there and topic not in left_out:
                found += find_config_differences(flow, sides.flows, name, here[name], there[topic])
        return found

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Set the configs that differ, one request for each topic."""
        wanted: dict[str, dict[str, str | None]] = {}
        for each in differences:
            wanted.setdefault(each.name, {})[each.field] = each.wanted
        if not wanted:
            return []
        with open_connection(sides.target) as target:
            refused = alter_topic_configs(target, wanted)
        return [DifferenceOutcome(each, refused.get(each.name)) for each in differences]


def find_config_differences(
    flow: PlanFlow,
    flows: Iterable[PlanFlow],
    name: str,
    here: Mapping[str, TopicConfig],
    there: Mapping[str, TopicConfig],
) -> list[FieldDrift]:
    """Of one source topic and its place at the target, by key. flows: all into the target. Pure."""
    topic = flow.target_topic(name)
    beside = [each for each in flows if each.id != flow.id and each.source_topic(topic) is not None]
    setting_flows = [each for each in (flow, *beside) if each.configs_set]
    set_by_file = {key for each in setting_flows for key, _ in each.configs_set}
    wanted: dict[str, str | None] = dict(_wanted(flow, here, there))
    for key in _own_keys(flow, there) - wanted.keys() - set_by_file:
        wanted[key] = None
    for each in reversed(setting_flows):
        wanted |= each.configs_set
    others = [each.id for each in beside if each.sync_configs != "never"]
    found = []
    for key in sorted(wanted):
        difference = _difference(flow.target, topic, key, wanted[key], there.get(key))
        if difference is None:
            continue
        if flow.offsets == "aligned" and difference.live == _MEANWHILE.get(key, ""):
            difference = _left(difference, "it has this while a partition is aligned, after which it is taken back")
            found.append(difference)
            continue
        values = {each.id: dict(each.configs_set)[key] for each in setting_flows if key in dict(each.configs_set)}
        if len(set(values.values())) > 1:
            sets = ", ".join(f"{each} {value}" for each, value in sorted(values.items()))
            difference = _left(difference, f"the flows set different values: {sets}")
        elif not values and others:
            why = f"{', '.join(sorted(others))} also writes this topic; say the value in `sync.configs.set`"
            difference = _left(difference, why)
        found.append(difference)
    return found


def _wanted(flow: PlanFlow, here: Mapping[str, TopicConfig], there: Mapping[str, TopicConfig]) -> dict[str, str]:
    own = {key: each.value for key, each in here.items() if each.own and each.value is not None and not each.fixed}
    size, stamps = there.get(MAX_MESSAGE_CONFIG), there.get(TIMESTAMP_TYPE_CONFIG)
    in_force = here.get(MAX_MESSAGE_CONFIG)
    return build_target_configs(
        flow,
        own,
        source_max_message=in_force.value if in_force else None,
        target_max_message=size.otherwise if size else None,
        target_timestamp_type=stamps.otherwise if stamps else None,
    )


def _own_keys(flow: PlanFlow, there: Mapping[str, TopicConfig]) -> set[str]:
    """Keys that the target topic has a value of its own for, and that would be the source's to say."""
    own = {key for key, each in there.items() if each.own and not each.fixed and each.value is not None}
    return {key for key in own if is_synced_config(flow, key)}


def _difference(alias: str, topic: str, key: str, wanted: str | None, live: TopicConfig | None) -> FieldDrift | None:
    """None where nothing differs. wanted None: the brokers' default."""
    if live is None:
        why = f"the brokers of {alias} know no such config"
        return FieldDrift(alias, _KIND, topic, key, None, wanted, "unsupported", False, why)
    if live.value is None:  # a secret: it cannot be compared
        return None
    if wanted is None:
        if live.otherwise is None:
            why = "the source topic has no value of its own, and the brokers do not tell their default"
            return FieldDrift(alias, _KIND, topic, key, live.value, None, "unknown", False, why)
        if live.otherwise == live.value:
            return None
        drift, why = classify_config_change(key, live.value, live.otherwise)
        text = f"the source topic has no value of its own; the default here is {live.otherwise}"
        return FieldDrift(alias, _KIND, topic, key, live.value, None, drift, drift == "safe", _both(text, why))
    if live.value == wanted:
        return None
    if live.fixed:
        why = f"{alias} does not let it be changed"
        return FieldDrift(alias, _KIND, topic, key, live.value, wanted, "unsupported", False, why)
    drift, why = classify_config_change(key, live.value, wanted)
    return FieldDrift(alias, _KIND, topic, key, live.value, wanted, drift, drift == "safe", why)


def _left(difference: FieldDrift, why: str) -> FieldDrift:
    each = difference
    return FieldDrift(each.cluster, each.kind, each.name, each.field, each.live, each.wanted, "unknown", False, why)


def _both(text: str, why: str) -> str:
    return f"{text}; {why}" if why else text


def _not_told(alias: str, topic: str, why: str) -> FieldDrift:
    reason = f"{alias} does not show its configs ({why}); DESCRIBE_CONFIGS on the topic is needed"
    return FieldDrift(alias, _KIND, topic, "configs", None, None, "unknown", False, reason)


def find_aligning_topics(flow: PlanFlow, reports: Iterable[PartitionStatus]) -> frozenset[str]:
    """Target topics that are just being brought to the source's offsets: until then some of their configs are not
    meant to stay. Pure."""
    return frozenset(each.target_topic for each in reports if each.flow == flow.id and each.state == ALIGNING)
