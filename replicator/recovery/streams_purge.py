"""Records of repartition topics that are gone before they were copied. A Streams application deletes there what it has
processed and committed; anything else that is gone is a loss, and only a person may accept it (decision 0122)."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from watershed.clusters.control_records import read_latest_values
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.group_offsets import CommittedOffsets, GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.operator_decisions import build_journaled_prefix
from watershed.topology.kafka_streams import find_streams_topics, is_repartition_topic
from watershed.topology.plan import PlanFlow

ON_GAP: Final = "on_gap: continue"  # who decided, where the flow's own policy did
PURGE: Final = "deletion by its Streams application"  # who decided, where the application had processed all of them

# An application deletes every 30 s by default. A copy that is too late once in five minutes, for an hour, is not late
# by chance: each time a generation of the partition begins, and positions that wait for their state are given up. Our
# own choice.
MOST_SKIPS_AN_HOUR: Final = 12
_HOUR_MS: Final = 3_600_000


@dataclass(slots=True)
class RecentSkips:
    """How often partitions of one flow went on behind such records, by what is journaled at the target: whoever served
    them. Read once, when first asked: a takeover may be about thousands of partitions, and decides once about each."""

    _times: dict[str, int] | None = None

    def count(self, target: ConnectionSettings, key: PartitionKey, now_ms: int) -> int:
        """Within the last hour, of this partition. now_ms: since 1970. Raises ClusterError."""
        flow = build_journaled_prefix(key.flow)
        if self._times is None:
            lines = read_latest_values(target, FLOWS_TOPIC, prefix=flow).items()
            skips = {name: line for name, line in lines if str(line.get("actor", "")).startswith(PURGE)}
            self._times = {name: int(line.get("at_ms", 0)) for name, line in skips.items()}
        mine = f"{flow}{key.topic}/{key.partition}/"
        return sum(now_ms - _HOUR_MS < at for name, at in self._times.items() if name.startswith(mine))


def choose_gap_decider(
    flow: PlanFlow,
    key: PartitionKey,
    outcome: object,
    source: ConnectionSettings,
    control: ControlWriter,
    skips: RecentSkips,
) -> str | Halt | Reinspect | None:
    """Who lets the copy go on behind records that expired: `ON_GAP`, or `PURGE` with how often it did within an hour.
    None where `outcome` is no such halt, or nobody does; a halt or a second look where the application's position at
    the source does not allow it, or where it was so too often. Asks the source only for repartition topics of
    applications that the flow names. control: writes where such decisions are journaled. skips: of the takeover. Never
    raises ClusterError."""
    if not isinstance(outcome, Halt) or outcome.state != "source_expired":
        return None
    if flow.on_gap == "continue":
        return ON_GAP
    application = find_named_application(flow, key.topic)
    if not application:
        return None
    try:
        with GroupOffsets(source) as asking:
            held = asking.held([application])[application]
    except ClusterError as error:
        return Reinspect(f"whether application {application} has processed what is gone cannot be told: {error}")
    decided = judge_deleted_records(application, TopicPartition(key.topic, key.partition), outcome, held)
    if decided != PURGE:
        return decided
    try:
        often = skips.count(control.settings, key, time.time_ns() // 1_000_000)
    except ClusterError as error:
        return Reinspect(f"how often {key.topic} lost records to its application cannot be told: {error}")
    return bound_skips(application, outcome, often)


def bound_skips(application: str, halt: Halt, skips: int) -> str | Halt:
    """`PURGE` with the count, for the status and the journal; the halt where it was so MOST_SKIPS_AN_HOUR times within
    the last hour already. skips: so often. Pure."""
    if skips < MOST_SKIPS_AN_HOUR:
        return f"{PURGE} ({skips + 1} of at most {MOST_SKIPS_AN_HOUR} in an hour)"
    text = (
        f"{halt.error}. Application {application} had processed them, but deleted records before they were copied "
        f"{skips} times within an hour, so the copy is later than the deletion again and again. Raise "
        "`repartition.purge.interval.ms` of the application, or give the flow more workers; then accept the gap"
    )
    return replace(halt, error=text)


def drop_answered_halt(
    flow: PlanFlow,
    key: PartitionKey,
    wait: Reinspect,
    source: ConnectionSettings,
    control: ControlWriter,
    skips: RecentSkips,
) -> Reinspect:
    """The same wait, without its pending halt where nobody will have to decide about that one (`choose_gap_decider`).
    Never raises ClusterError."""
    decider = choose_gap_decider(flow, key, wait.pending, source, control, skips)
    if decider is None:
        return wait
    return replace(wait, pending=decider if isinstance(decider, Halt) else None)


def find_named_application(flow: PlanFlow, topic: str) -> str:
    """The application of `sync.groups.streams` that may delete records of this topic; empty where there is none."""
    named = set(flow.sync.groups.streams)
    if not is_repartition_topic(topic):
        return ""
    return next((each for each in sorted(named) if find_streams_topics(each, [topic], named - {each})), "")


def judge_deleted_records(
    application: str, place: TopicPartition, halt: Halt, held: CommittedOffsets
) -> str | Halt | Reinspect:
    """`PURGE` where the application has committed a position behind all that is gone. held: its positions."""
    if held.error and not held.is_unauthorised:
        return Reinspect(f"whether application {application} has processed what is gone cannot be told: {held.error}")
    if place in held.unstable:
        return Reinspect(f"a transaction of application {application} over its position in {place} is open")
    assert halt.source is not None, "who finds that records expired says which"
    position = held.positions.get(place)
    if position is not None and position.offset >= halt.source.end:
        return PURGE
    seen = held.error or ("has no position there" if position is None else f"stands at {position.offset}")
    text = (
        f"{halt.error}. Application {application} has not committed a position behind them ({seen}), so it may not "
        "have processed them"
    )
    return replace(halt, error=text)
