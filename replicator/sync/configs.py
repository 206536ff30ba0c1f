"""Topic configs that are kept equal: the source topic's own values and what the file sets; elsewhere the target's
brokers decide.

A new topic gets its configs when it is created, also with `once` (`replicator/targets.py`); this is about topics that
are there, so it is only for `continuous`. What is safe to change is changed; what could delete or refuse records is
shown, with its class (`topology/drift.py`), and left to a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.status import PartitionStatus, read_status
from clusters.wire.alterations import alter_topic_configs
from clusters.wire.inquiry import inquire
from clusters.wire.readings import TopicConfig, topic_configs
from replicator.aligned.topic import ANY_AGE, KEPT, OLDEST, POLICY, TIERED
from replicator.states import ALIGNING
from replicator.sync import kind
from replicator.sync.kind import Done, Sides
from replicator.targets import TIMESTAMPS, wanted_configs
from topology.drift import Difference, config_drift
from topology.plan import NEVER_SYNCED, PlanFlow
from topology.sync import Mode

_KIND: Final = "topic"
# What a topic has while its partitions are brought to the source's offsets; whoever does that takes it back.
_MEANWHILE: Final = {POLICY: "delete", OLDEST: ANY_AGE, TIERED: "false", **KEPT}


@dataclass(frozen=True, slots=True)
class Configs:
    """See `replicator.sync.kind.Kind`."""

    name: str = "configs"

    def mode(self, flow: PlanFlow) -> Mode:
        return "continuous" if flow.sync_configs == "continuous" else "never"

    def every_ms(self, flow: PlanFlow) -> int:
        return kind.METADATA_EVERY_MS

    def compare(self, flow: PlanFlow, sides: Sides) -> list[Difference]:
        with inquire(sides.source) as source:
            names = [name for name in source.topics() if flow.selects(name)]
            here, hidden = topic_configs(source, names)
        found = [_not_told(flow.source, name, why) for name, why in sorted(hidden.items())]
        with inquire(sides.target) as target:
            there, hidden = topic_configs(target, [flow.target_topic(name) for name in names])
        found += [_not_told(flow.target, name, why) for name, why in sorted(hidden.items())]
        left_out = aligning(flow, read_status(sides.target)) if flow.offsets == "aligned" else frozenset()
        for name in sorted(here):
            topic = flow.target_topic(name)
            if topic in there and topic not in left_out:
                found += topic_differences(flow, sides.flows, name, here[name], there[topic])
        return found

    def carry(self, flow: PlanFlow, sides: Sides, differences: Sequence[Difference]) -> list[Done]:
        wanted: dict[str, dict[str, str | None]] = {}
        for each in differences:
            wanted.setdefault(each.name, {})[each.field] = each.wanted
        if not wanted:
            return []
        with inquire(sides.target) as target:
            refused = alter_topic_configs(target, wanted)
        return [Done(each, refused.get(each.name)) for each in differences]


def topic_differences(
    flow: PlanFlow,
    flows: Iterable[PlanFlow],
    name: str,
    here: Mapping[str, TopicConfig],
    there: Mapping[str, TopicConfig],
) -> list[Difference]:
    """Of one source topic and its place at the target, by key. flows: all into the target. Pure."""
    topic = flow.target_topic(name)
    beside = [each for each in flows if each.id != flow.id and each.source_topic(topic) is not None]
    said = [each for each in (flow, *beside) if each.configs_set]
    set_by_file = {key for each in said for key, _ in each.configs_set}
    wanted: dict[str, str | None] = dict(_wanted(flow, here, there))
    for key in _own_keys(flow, there) - wanted.keys() - set_by_file:
        wanted[key] = None
    for each in reversed(said):
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
        told = {each.id: dict(each.configs_set)[key] for each in said if key in dict(each.configs_set)}
        if len(set(told.values())) > 1:
            sets = ", ".join(f"{each} {value}" for each, value in sorted(told.items()))
            difference = _left(difference, f"the flows set different values: {sets}")
        elif not told and others:
            why = f"{', '.join(sorted(others))} also writes this topic; say the value in `sync.configs.set`"
            difference = _left(difference, why)
        found.append(difference)
    return found


def _wanted(flow: PlanFlow, here: Mapping[str, TopicConfig], there: Mapping[str, TopicConfig]) -> dict[str, str]:
    own = {key: each.value for key, each in here.items() if each.own and each.value is not None and not each.fixed}
    size, stamps = there.get("max.message.bytes"), there.get(TIMESTAMPS)
    in_force = here.get("max.message.bytes")
    return wanted_configs(
        flow,
        own,
        in_force=in_force.value if in_force else None,
        default_size=size.otherwise if size else None,
        default_stamps=stamps.otherwise if stamps else None,
    )


def _own_keys(flow: PlanFlow, there: Mapping[str, TopicConfig]) -> set[str]:
    """Keys that the target topic has a value of its own for, and that would be the source's to say."""
    own = {key for key, each in there.items() if each.own and not each.fixed and each.value is not None}
    only = set(flow.sync_configs_include) or own
    return (own & only) - NEVER_SYNCED - set(flow.sync_configs_exclude)


def _difference(alias: str, topic: str, key: str, wanted: str | None, live: TopicConfig | None) -> Difference | None:
    """None where nothing differs. wanted None: the brokers' default."""
    if live is None:
        why = f"the brokers of {alias} know no such config"
        return Difference(alias, _KIND, topic, key, None, wanted, "unsupported", False, why)
    if live.value is None:  # a secret: it cannot be compared
        return None
    if wanted is None:
        if live.otherwise is None:
            why = "the source topic has no value of its own, and the brokers do not tell their default"
            return Difference(alias, _KIND, topic, key, live.value, None, "unknown", False, why)
        if live.otherwise == live.value:
            return None
        drift, why = config_drift(key, live.value, live.otherwise)
        said = f"the source topic has no value of its own; the default here is {live.otherwise}"
        return Difference(alias, _KIND, topic, key, live.value, None, drift, drift == "safe", _both(said, why))
    if live.value == wanted:
        return None
    if live.fixed:
        why = f"{alias} does not let it be changed"
        return Difference(alias, _KIND, topic, key, live.value, wanted, "unsupported", False, why)
    drift, why = config_drift(key, live.value, wanted)
    return Difference(alias, _KIND, topic, key, live.value, wanted, drift, drift == "safe", why)


def _left(difference: Difference, why: str) -> Difference:
    each = difference
    return Difference(each.cluster, each.kind, each.name, each.field, each.live, each.wanted, "unknown", False, why)


def _both(said: str, why: str) -> str:
    return f"{said}; {why}" if why else said


def _not_told(alias: str, topic: str, why: str) -> Difference:
    told = f"{alias} does not show its configs ({why}); DESCRIBE_CONFIGS on the topic is needed"
    return Difference(alias, _KIND, topic, "configs", None, None, "unknown", False, told)


def aligning(flow: PlanFlow, reports: Iterable[PartitionStatus]) -> frozenset[str]:
    """Target topics that are just being brought to the source's offsets: until then some of their configs are not
    meant to stay. Pure."""
    return frozenset(each.target_topic for each in reports if each.flow == flow.id and each.state == ALIGNING)
