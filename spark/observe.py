"""Level 0: what both clusters say about the topics of a flow, before a record is read.

Gives the facts a window is made of (`Observed`), findings that forbid the word proven, and notes for the report.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from clusters.admin import Admin
from clusters.flows import read_flows
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from clusters.surface import Topic
from replicator.ledger import read_ledger
from replicator.offsetmap import OffsetMap
from spark.errors import WrongUse
from spark.window import Observed, Place
from topology.plan import PlanFlow

CONFIGS = ("cleanup.policy", "message.timestamp.type", "max.message.bytes")


class Aligned(NamedTuple):
    """The offset map of a partition, and the topic ids (source, target) that it was made for, if known."""

    map: OffsetMap
    ids: tuple[uuid.UUID, uuid.UUID] | None = None


# (settings of the target cluster, flow id) -> (source topic, partition) -> alignment
Alignment = Callable[[ConnectionSettings, str], Mapping[tuple[str, int], Aligned]]


def ledger_alignment(target: ConnectionSettings, flow: str) -> dict[tuple[str, int], Aligned]:
    """The alignment that the flow's own ledger gives."""
    ledger = read_ledger(target, flow)
    return {
        (key.topic, key.partition): Aligned(offsets, ids)
        for key, (offsets, ids) in ledger.copies().items()
        if key.flow == flow
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """A topic and its copy."""

    source: Topic
    target: Topic
    compacted: bool
    timestamps: bool  # False: the target stamps append times, so times are not compared


@dataclass(slots=True)
class FlowFacts:
    """A flow on both clusters. `blocks`: findings that forbid the word proven; `notes`: what is not compared."""

    flow: PlanFlow
    source: Admin
    target: Admin
    target_settings: ConnectionSettings
    selected: list[Topic] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    skip: tuple[int, ...] = ()
    blocks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def flow_facts(
    flow: PlanFlow,
    source: Admin,
    target: Admin,
    settings: tuple[ConnectionSettings, ConnectionSettings],
    only: Iterable[str] | None = None,
) -> FlowFacts:
    """Topics of a flow and their parity. `only`: source names of topics; WrongUse for one that is not the flow's."""
    facts = FlowFacts(flow, source, target, settings[1])
    have, there = source.topics(), target.topics()
    selected = sorted(name for name in have if flow.selects(name))
    if only is not None:
        wanted = list(only)
        for name in wanted:
            if not flow.selects(name):
                raise WrongUse(f"flow {flow.id} does not select topic {name}; see `topology explain {flow.id}`")
            if name not in have:
                raise WrongUse(f"cluster {flow.source} has no topic {name}")
        selected = sorted(wanted)
    facts.selected = [have[name] for name in selected]
    found = [(have[name], there.get(flow.target_topic(name))) for name in selected]
    present = [(one, two) for one, two in found if two is not None]
    ours = source.topic_configs([one.name for one, _ in present]) if present else {}
    theirs = target.topic_configs([two.name for _, two in present]) if present else {}
    default_stamp = target.broker_config("log.message.timestamp.type") or "CreateTime"
    for one, two in found:
        if two is None:
            facts.blocks.append(f"topic {flow.target_topic(one.name)} is missing on {flow.target}")
            continue
        if one.partitions > two.partitions:
            facts.blocks.append(
                f"topic {two.name} has {two.partitions} partitions on {flow.target}, {one.partitions} on {flow.source}"
            )
        a, b = ours.get(one.name, {}), theirs.get(two.name, {})
        for key in CONFIGS:
            if a.get(key) != b.get(key):
                facts.notes.append(
                    f"{one.name}: {key} is {a.get(key, 'default')} on {flow.source}, "
                    f"{b.get(key, 'default')} on {flow.target}"
                )
        appended = b.get("message.timestamp.type", default_stamp) == "LogAppendTime"
        if appended:
            facts.notes.append(f"{one.name}: timestamps not compared, {flow.target} stamps append times")
        compacted = any("compact" in c.get("cleanup.policy", "") for c in (a, b))
        facts.pairs.append(Pair(one, two, compacted, not appended))
    if flow.guard != "none":
        others, target_id = read_flows(settings[0]).values(), target.cluster_id()
        facts.skip = tuple(
            sorted(
                record.producer_id
                for record in others
                if record.producer_id is not None and (flow.forward == "local" or record.source_cluster_id == target_id)
            )
        )
        if facts.skip:
            facts.notes.append(f"flow {flow.id}: records that other flows brought to {flow.source} stay there")
    return facts


def observe(
    facts: FlowFacts, alignment: Alignment, *, wait: float = 0.0, settled: Callable[[Observed], bool] | None = None
) -> list[Observed]:
    """Fix the barrier, then wait up to `wait` seconds until the flow has copied up to it.

    `settled` may say of a partition that nothing is left to copy although offsets are (a marker at the end).
    """
    places = _places(facts)
    if not places:
        return []
    at_source = [TopicPartition(place.topic, place.partition) for place, _ in places]
    at_target = [TopicPartition(place.target_topic, place.partition) for place, _ in places]
    barrier = {key: log.end for key, log in facts.source.offsets(at_source).items()}
    deadline = time.monotonic() + wait
    calm: set[tuple[Place, int]] = set()
    while True:
        targets = facts.target.offsets(at_target)
        aligned = alignment(facts.target_settings, facts.flow.id)
        sources = facts.source.offsets(at_source)
        seen = []
        for (place, pair), key, there in zip(places, at_source, at_target, strict=True):
            found = aligned.get((place.topic, place.partition), Aligned(OffsetMap(())))
            ids = (pair.source.topic_id, pair.target.topic_id)
            map_ = found.map
            if found.ids is not None and found.ids != ids:
                map_ = OffsetMap(())
            seen.append(Observed(place, sources[key], targets[there], map_, barrier[key], ids))
        if time.monotonic() >= deadline:
            break
        behind = [o for o in seen if o.map.source_position(o.target.end) < o.barrier and o.source.start < o.barrier]
        if all(_is_calm(o, calm, settled) for o in behind):
            break
        time.sleep(0.5)
    if not aligned and any(o.source.start < o.barrier for o in seen):
        raise WrongUse(
            f"there is no ledger of flow {facts.flow.id} on {facts.flow.target}, so nothing says which records "
            "belong together. Has a worker served this flow yet? `topology status` shows what runs."
        )
    for o in seen:
        found = aligned.get((o.place.topic, o.place.partition))
        if found is not None and found.ids is not None and found.ids != o.ids:
            side = facts.flow.source if found.ids[0] != o.ids[0] else facts.flow.target
            facts.blocks.append(f"topic {o.place.topic} was deleted and made anew on {side} since the flow began")
    facts.blocks[:] = list(dict.fromkeys(facts.blocks))
    return seen


def _is_calm(o: Observed, calm: set[tuple[Place, int]], settled: Callable[[Observed], bool] | None) -> bool:
    position = o.map.source_position(o.target.end)
    if (o.place, position) in calm:
        return True
    if settled is not None and o.map.runs and o.barrier - position <= 10_000 and settled(o):
        calm.add((o.place, position))
        return True
    return False


def _places(facts: FlowFacts) -> list[tuple[Place, Pair]]:
    return [
        (Place(facts.flow.id, pair.source.name, pair.target.name, number), pair)
        for pair in facts.pairs
        for number in range(min(pair.source.partitions, pair.target.partitions))
    ]
