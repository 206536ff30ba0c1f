"""Records of repartition topics that are gone before they were copied. A Streams application deletes there what it has
processed and committed; anything else that is gone is a loss, and only a person may accept it (decision 0122)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from watershed.clusters.errors import ClusterError
from watershed.clusters.group_offsets import CommittedOffsets, GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.topology.kafka_streams import find_streams_topics, is_repartition_topic
from watershed.topology.plan import PlanFlow

ON_GAP: Final = "on_gap: continue"  # who decided, where the flow's own policy did
PURGE: Final = "deletion by its Streams application"  # who decided, where the application had processed all of them


def choose_gap_decider(
    flow: PlanFlow, key: PartitionKey, outcome: object, source: ConnectionSettings
) -> str | Halt | Reinspect | None:
    """Who lets the copy go on behind records that expired: `ON_GAP`, or `PURGE`. None where `outcome` is no such halt,
    or nobody does; a halt or a second look where the application's position at the source does not allow it. Asks the
    source only for repartition topics of applications that the flow names. Never raises ClusterError."""
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
    return judge_deleted_records(application, TopicPartition(key.topic, key.partition), outcome, held)


def drop_answered_halt(flow: PlanFlow, key: PartitionKey, wait: Reinspect, source: ConnectionSettings) -> Reinspect:
    """The same wait, without its pending halt where nobody will have to decide about that one (`choose_gap_decider`).
    Never raises ClusterError."""
    decider = choose_gap_decider(flow, key, wait.pending, source)
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
