"""Level 0: what both clusters say about the topics of a flow, before a record is read.

Gives the facts a window is made of (`ObservedPartition`), findings that forbid the word proven, and notes for the
report.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import explain_breach, read_budget_breaches
from watershed.clusters.claim_rules import ClaimedPartition, PartitionClaims, find_partition_claims
from watershed.clusters.cluster_protocol import LogRange, ReadIsolation, TopicDescription
from watershed.clusters.flow_records import FlowRecord, read_flows
from watershed.clusters.partition_end_records import read_partition_ends
from watershed.clusters.partition_orders import build_resume_command, describe_pause
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.explicit_runs import RepeatedRunMap
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, OffsetMap
from watershed.replicator.recovery.recovery_point import is_same_topic
from watershed.spark.errors import WrongUse
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair
from watershed.spark.judging.record_ownership import (
    is_target_shared,
    read_feeding_producers,
    read_producers_to_skip,
    read_source_claims,
    read_target_writers,
)
from watershed.spark.judging.verdict import Counts
from watershed.spark.reading.external_marks import NO_MARKS, ExternalMarks
from watershed.topology.copy_bounds import CopyBound
from watershed.topology.plan import PlanFlow

_CONFIGS = ("cleanup.policy", "message.timestamp.type", "max.message.bytes")
_KEPT = ("retention.ms", "retention.bytes")  # -1: for ever
_MOST_LEFT = 10_000  # offsets below the barrier that are read to see whether they are markers only
_BEHIND_ANSWERS_S = 5.0  # workers write such a ledger every second
_ISOLATIONS: tuple[ReadIsolation, ReadIsolation] = ("read_uncommitted", "read_committed")


class PartitionAlignment(NamedTuple):
    """The offset map of a partition, and the topic ids (source, target) that it was made for, if known."""

    map: OffsetMap
    ids: tuple[uuid.UUID, uuid.UUID] | None = None


# (settings of the target cluster, flow id) -> (source topic, partition) -> alignment
AlignmentReader = Callable[[ConnectionSettings, str], Mapping[tuple[str, int], PartitionAlignment]]


def read_ledger_alignment(target: ConnectionSettings, flow: str) -> dict[tuple[str, int], PartitionAlignment]:
    """The alignment from the flow's own ledger. Raises ClusterError, ReplicatorError."""
    ledger = read_ledger(target, flow)
    return {
        (key.topic, key.partition): PartitionAlignment(offsets, ids)
        for key, (offsets, ids) in ledger.copies().items()
        if key.flow == flow
    }


@dataclass(frozen=True, slots=True)
class TopicPair:
    """A topic and its copy."""

    source: TopicDescription
    target: TopicDescription
    compacted: bool
    timestamps: bool  # False: the target stamps append times, so times are not compared
    only_copy_compacts: bool = False  # the target's cleaner takes what the source keeps


@dataclass(slots=True)
class FlowFacts:
    """What both clusters say about one flow. Proof steps add to it."""

    flow: PlanFlow
    source: Admin
    target: Admin
    target_settings: ConnectionSettings
    selected: list[TopicDescription] = field(default_factory=list)  # source topics of the flow
    pairs: list[TopicPair] = field(default_factory=list)  # those that the target has, too
    skip: tuple[int, ...] = ()  # producer ids whose batches at the source the loop guard drops
    only: tuple[int, ...] = ()  # producer ids that alone count at the target; none: all do
    writers: tuple[int, ...] = ()  # producer ids of all flows at the target
    claims: Mapping[ClaimedPartition, PartitionClaims] = field(default_factory=dict)  # of the producers to skip
    feeding: tuple[int, ...] = ()  # producer ids of the flows into the source, where other tools mark their records
    unusable: dict[PartitionPair, Counts] = field(default_factory=dict)  # partitions without a usable alignment
    lost: dict[PartitionPair, int] = field(default_factory=dict)  # copied records that the source has lost since
    source_settings: ConnectionSettings | None = None  # None: the source's control topics are not read
    blocks: list[str] = field(default_factory=list)  # findings that forbid the word proven
    notes: list[str] = field(default_factory=list)  # what is not compared
    copied: frozenset[str] = frozenset()  # source topics that the ledger knows
    foreign: bool = False  # another tool made the copy
    alignments: dict[str, list[str]] = field(default_factory=dict)  # how a foreign copy was aligned, by source topic
    # where the flow begins, by source topic and partition
    begins: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    complete: frozenset[tuple[str, int]] = frozenset()  # source partitions that are copied up to their end
    guarantee: str | None = None  # what the flow was promised when it was applied; None where nobody wrote it down

    def marks_of(self, topic: str) -> ExternalMarks:
        """What tells, in a source topic, the batches that another tool brought and the flow leaves out."""
        return NO_MARKS if self.foreign else ExternalMarks(self.flow.list_left_out_marks(topic), self.feeding)

    def claims_of(self, topic: str, topic_id: uuid.UUID, partition: int) -> PartitionClaims | None:
        """What flows claim as their writes in a source partition; None where no producer is skipped."""
        return find_partition_claims(self.claims, topic, topic_id, partition) if self.skip else None


def read_flow_facts(
    flow: PlanFlow,
    source: Admin,
    target: Admin,
    settings: tuple[ConnectionSettings, ConnectionSettings],
    only: Iterable[str] | None = None,
    foreign: bool = False,
) -> FlowFacts:
    """Topics of a flow and their parity. `only`: source names of topics; WrongUse for one that is not the flow's.
    foreign: another tool made the copy, no control topic is read."""
    facts = FlowFacts(flow, source, target, settings[1], foreign=foreign)
    have, there = source.topics(), target.topics()
    selected = sorted(name for name in have if flow.selects(name))
    if only is not None:
        wanted = list(only)
        for name in wanted:
            if not flow.selects(name):
                raise WrongUse(f"flow {flow.id} does not select topic {name}; see `topology explain {flow.id}`")
            if name not in have:
                raise WrongUse(
                    f"cluster {flow.source} has no topic {name}, or does not show it to this user (right Describe). "
                    "`topology acls` names the rights of a proof"
                )
        selected = sorted(wanted)
    facts.selected = [have[name] for name in selected]
    found = [(have[name], there.get(flow.target_topic(name))) for name in selected]
    present = [(one, two) for one, two in found if two is not None]
    ours = source.effective_configs([one.name for one, _ in present]) if present else {}
    theirs = target.effective_configs([two.name for _, two in present]) if present else {}
    for one, two in found:
        if two is None:
            facts.blocks.append(
                f"topic {flow.target_topic(one.name)} is missing on {flow.target}, or not shown to this user (right "
                f"Describe): nothing of {one.name} was compared"
            )
            continue
        if one.partitions > two.partitions:
            facts.blocks.append(
                f"topic {two.name} has {two.partitions} partitions on {flow.target}, {one.partitions} on {flow.source}"
            )
        a, b = ours.get(one.name, {}), theirs.get(two.name, {})
        facts.notes += _compare_topic_configs(one.name, (flow.source, a), (flow.target, b))
        appended = b.get("message.timestamp.type") == "LogAppendTime"
        if appended:
            facts.notes.append(f"{one.name}: timestamps not compared, {flow.target} stamps append times")
        compacted = any("compact" in c.get("cleanup.policy", "") for c in (a, b))
        declared = "cleanup.policy" in dict(flow.configs_set)
        only_copy = compacted and "compact" not in a.get("cleanup.policy", "") and not declared
        facts.pairs.append(TopicPair(one, two, compacted, not appended, only_copy))
    if foreign:
        facts.notes.append(
            f"flow {flow.id}: another tool made the copy; which records belong together is inferred from their content"
        )
    else:
        facts.source_settings = settings[0]
    _open_transactions(facts)
    return facts


def _compare_topic_configs(
    topic: str, source: tuple[str, Mapping[str, str]], target: tuple[str, Mapping[str, str]]
) -> Iterator[str]:
    """Settings that let both sides drift apart. source, target: (alias, what is in force there)."""
    (here, a), (there, b) = source, target
    for key in _CONFIGS:
        if a.get(key) != b.get(key):
            yield f"{topic}: {key} is {a.get(key, 'unknown')} on {here}, {b.get(key, 'unknown')} on {there}"
    for key in _KEPT:
        ours, theirs = int(a.get(key, -1)), int(b.get(key, -1))
        if theirs >= 0 and (ours < 0 or theirs < ours):
            kept = "for ever" if ours < 0 else str(ours)
            yield (
                f"{topic}: {key} is {kept} on {here} and {theirs} on {there}: what the target deletes before it was "
                "compared is unverifiable"
            )


def _open_transactions(facts: FlowFacts) -> None:
    """Notes logs whose last stable offset is below their end. At the source the records behind it belong to a later
    proof; at the target consumers that read committed records do not see them yet, so they are pending.
    """
    places = [place for place, _ in list_partition_pairs(facts)]
    sides = (
        (facts.source, facts.flow.source, [TopicPartition(place.topic, place.partition) for place in places]),
        (facts.target, facts.flow.target, [TopicPartition(place.target_topic, place.partition) for place in places]),
    )
    for admin, alias, keys in sides:
        # The end first: what is written between the two readings is no open transaction.
        whole, stable = (admin.offsets(keys, isolation) if keys else {} for isolation in _ISOLATIONS)
        held: dict[str, list[str]] = {}
        for key in keys:
            if stable[key].end < whole[key].end:
                held.setdefault(key.topic, []).append(f"{key.partition}@{stable[key].end}")
        facts.notes += [
            f"{topic} on {alias}: transactions were open when the proof began; what stands behind their beginning is "
            f"beyond this proof (partition@offset: {', '.join(found[:8])}{' ...' if len(found) > 8 else ''}). One that "
            "stays open over several proofs may have lost its producer: `kafka-transactions.sh find-hanging` tells"
            for topic, found in held.items()
        ]


def observe_partitions(
    facts: FlowFacts,
    alignment: AlignmentReader,
    *,
    wait: float = 0.0,
    settled: Callable[[ObservedPartition], bool] | None = None,
) -> list[ObservedPartition]:
    """Fix the barrier, then wait up to `wait` seconds until the flow has copied up to it.

    `settled` may say of a partition that nothing is left to copy although offsets are (a marker at the end).
    """
    pairs = list_partition_pairs(facts)
    if not pairs:
        facts.copied = frozenset(topic for topic, _ in alignment(facts.target_settings, facts.flow.id))
        return []
    barriers = _read_barriers(facts, pairs)
    _read_skipped_producers(facts)
    deadline = time.monotonic() + wait
    settled_at: set[tuple[PartitionPair, int]] = set()  # partitions with the position at which nothing was left
    while True:
        aligned, observed = _observe_once(facts, pairs, barriers, alignment)
        if time.monotonic() >= deadline:
            break
        if all(_is_copied(facts, aligned, o) or _is_settled(o, settled_at, settled) for o in observed):
            break
        time.sleep(0.5)
    if not aligned and any(o.source.start < o.barrier for o in observed):
        raise WrongUse(
            f"there is no ledger of flow {facts.flow.id} on {facts.flow.target}, so nothing says which records "
            "belong together. Has a worker served this flow yet? `topology status` shows what runs."
        )
    facts.copied = frozenset(topic for topic, _ in aligned)
    _set_aside_unusable(facts, aligned, observed)
    if is_target_shared(facts.flow):  # asked behind the target's ends: an id is in the registry before its batches
        writers = read_target_writers(facts.flow, facts.target_settings)
        facts.only, facts.writers = writers.ours, writers.known
    return [o for o in observed if o.place not in facts.unusable]


_Pairs = Sequence[tuple[PartitionPair, TopicPair]]
_Aligned = Mapping[tuple[str, int], PartitionAlignment]


def _read_barriers(facts: FlowFacts, pairs: _Pairs) -> dict[PartitionPair, int]:
    """The source's log ends, or where the flow's copy ends: a proof compares what stands below them."""
    logs = facts.source.offsets([TopicPartition(place.topic, place.partition) for place, _ in pairs])
    ends = _read_copy_ends(facts)
    found = {}
    for place, _ in pairs:
        end = logs[TopicPartition(place.topic, place.partition)].end
        found[place] = min(end, ends.get((place.topic, place.partition), end))
    return found


def _read_copy_ends(facts: FlowFacts) -> dict[tuple[str, int], int]:
    """Where the copies of partitions end (`delivery.end`), as far as that is known, by source topic and partition."""
    flow, found = facts.flow, dict[tuple[str, int], int]()
    if facts.foreign or flow.end is None:
        return found
    if isinstance(flow.end, CopyBound):
        found |= {(topic, number): offset for topic, each in flow.end.offsets for number, offset in each}
    record = read_flows(facts.target_settings).get(flow.id)
    if record is not None:
        written = read_partition_ends(facts.target_settings).values()
        ours = [end for end in written if end.flow == flow.id and end.is_of(record)]
        found |= {(end.topic, end.partition): end.offset for end in ours}
        facts.complete = frozenset((end.topic, end.partition) for end in ours if end.is_reached)
    return found


def _observe_once(
    facts: FlowFacts, pairs: _Pairs, barriers: Mapping[PartitionPair, int], alignment: AlignmentReader
) -> tuple[_Aligned, list[ObservedPartition]]:
    """Log ends of the target, then the alignment, then log ends of the source: the alignment covers what the target
    held before. A partition with an unusable alignment has an empty map."""
    targets = facts.target.offsets([TopicPartition(place.target_topic, place.partition) for place, _ in pairs])
    aligned = _read_alignment(facts, pairs, targets, alignment)
    sources = facts.source.offsets([TopicPartition(place.topic, place.partition) for place, _ in pairs])
    observed = []
    for place, pair in pairs:
        ids = (pair.source.topic_id, pair.target.topic_id)
        found = aligned.get((place.topic, place.partition))
        is_usable = found is not None and not _explain_unusable(facts, found, ids)
        observed.append(
            ObservedPartition(
                place,
                sources[TopicPartition(place.topic, place.partition)],
                targets[TopicPartition(place.target_topic, place.partition)],
                found.map if found is not None and is_usable else OffsetMap(()),
                barriers[place],
                ids,
            )
        )
    return aligned, observed


def _read_alignment(
    facts: FlowFacts, pairs: _Pairs, targets: Mapping[TopicPartition, LogRange], alignment: AlignmentReader
) -> _Aligned:
    """The alignment. With repeats its ledger is written behind the answers, so it is read again for a moment while it
    does not reach the target's ends; what stands behind it then is unknown to every worker."""
    deadline = time.monotonic() + _BEHIND_ANSWERS_S
    while True:
        aligned = alignment(facts.target_settings, facts.flow.id)
        lags = any(
            found is not None
            and isinstance(found.map, RepeatedRunMap)
            and found.map.known_end < targets[TopicPartition(place.target_topic, place.partition)].end
            for place, _ in pairs
            for found in (aligned.get((place.topic, place.partition)),)
        )
        if not lags or time.monotonic() >= deadline:
            return aligned
        time.sleep(0.5)


def _is_copied(facts: FlowFacts, aligned: _Aligned, o: ObservedPartition) -> bool:
    """Whether waiting brings no more: it is copied up to its barrier, or its alignment cannot be used."""
    found = aligned.get((o.place.topic, o.place.partition))
    if found is not None and _explain_unusable(facts, found, o.ids):
        return True
    return o.source.start >= o.barrier or o.map.source_position(o.target.end) >= o.barrier


def _is_settled(
    o: ObservedPartition,
    settled_at: set[tuple[PartitionPair, int]],
    settled: Callable[[ObservedPartition], bool] | None,
) -> bool:
    """Whether only markers are left to copy; remembered, because `settled` reads them."""
    position = o.map.source_position(o.target.end)
    if (o.place, position) in settled_at:
        return True
    if settled is not None and o.map.runs and o.barrier - position <= _MOST_LEFT and settled(o):
        settled_at.add((o.place, position))
        return True
    return False


def _set_aside_unusable(facts: FlowFacts, aligned: _Aligned, observed: Sequence[ObservedPartition]) -> None:
    """Partitions whose alignment cannot be used: a finding, and counts by offsets, for each."""
    for o in observed:
        found = aligned.get((o.place.topic, o.place.partition))
        why = _explain_unusable(facts, found, o.ids) if found is not None else ""
        if why:
            facts.blocks.append(f"{o.place.name}: {why}")
            waiting = max(0, o.barrier - o.source.start)
            lost = 0 if waiting else o.target.end - o.target.start
            facts.unusable[o.place] = Counts(pending=waiting, unverifiable=lost)
    facts.blocks[:] = list(dict.fromkeys(facts.blocks))


def _read_skipped_producers(facts: FlowFacts) -> None:
    """Producer ids that the loop guard drops at the source. Read behind the barrier: an id is in the registry before
    its batches."""
    flow = facts.flow
    if facts.source_settings is None:
        return
    facts.skip = read_producers_to_skip(flow, facts.source_settings, facts.target.cluster_id())
    known = read_flows(facts.target_settings).get(flow.id)
    facts.begins = known.begins if known is not None else {}
    facts.guarantee = known.guarantee if known is not None else None
    marked = sorted({mark for topic in facts.selected for mark in flow.list_left_out_marks(topic.name)})
    if marked:
        facts.feeding = read_feeding_producers(facts.source_settings)
        facts.notes.append(
            f"flow {flow.id}: batches all of whose records have the header {', '.join(marked)} were brought to "
            f"{flow.source} by another tool, as `external_flows` says; they stay there and were not compared"
        )
    facts.notes += describe_paused_partitions(known, {pair.source.name for pair in facts.pairs})
    if why := explain_breach(known, read_budget_breaches(facts.target_settings)):
        facts.notes.append(f"{why}; what was not copied before is pending")
    if facts.skip:
        facts.claims = read_source_claims(facts.source_settings)
        facts.notes.append(
            f"flow {flow.id}: records that other flows brought to {flow.source} stay there; what stands there under a "
            "flow's producer id and is not claimed by that flow's ledger is somebody else's, and was compared"
        )


def describe_paused_partitions(record: FlowRecord | None, topics: Collection[str]) -> list[str]:
    """Notes: partitions of these source topics that a person paused. What is not copied of them is pending, and never
    missing. record: the flow's; None where it was never applied."""
    if record is None:
        return []
    return [
        f"flow {record.key}: {describe_pause(each)}; what was not copied before is pending, and "
        f"`{build_resume_command(record.key, each)}` lets it go on"
        for each in record.pauses
        if each.topic in topics
    ]


def _explain_unusable(facts: FlowFacts, found: PartitionAlignment, ids: tuple[uuid.UUID, uuid.UUID]) -> str:
    """Why the alignment of a partition cannot be used; empty when it can."""
    for side, known, now in zip((facts.flow.source, facts.flow.target), found.ids or (), ids, strict=False):
        if not is_same_topic(known, now):
            return (
                f"its topic was deleted and made anew on {side} since the flow copied it (id {known}, now "
                f"{now}). `topology status` shows the partition's state and how the flow goes on"
            )
    if isinstance(found.map, BrokenOffsetMap):
        return f"its ledger cannot be used: {found.map.error}. `topology status` shows its state and the remedy"
    return ""


def list_partition_pairs(facts: FlowFacts) -> list[tuple[PartitionPair, TopicPair]]:
    """Partitions that both sides have, with their topics."""
    return [
        (PartitionPair(facts.flow.id, pair.source.name, pair.target.name, number), pair)
        for pair in facts.pairs
        for number in range(min(pair.source.partitions, pair.target.partitions))
    ]
