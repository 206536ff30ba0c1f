"""Findings and notes of what a proof cannot compare: partitions, topics and flows without a counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.judging.flow_observation import FlowFacts
from watershed.spark.judging.record_ownership import is_target_shared
from watershed.topology.plan import PlanFlow


def find_partitions_without_source(known: FlowFacts) -> list[str]:
    """Findings: records in partitions of the target that the source does not have. No flow wrote them; where others
    may write, they are theirs."""
    if is_target_shared(known.flow):
        return []
    if all(pair.target.partitions <= pair.source.partitions for pair in known.pairs):
        return []
    now = known.source.topics()  # it may have grown since its copy was looked at
    extra = [
        TopicPartition(pair.target.name, number)
        for pair in known.pairs
        if pair.source.name in now
        for number in range(now[pair.source.name].partitions, pair.target.partitions)
    ]
    logs = known.target.offsets(extra) if extra else {}
    return [
        f"{key.topic}-{key.partition} on {known.flow.target}: offsets {log.start} to {log.end - 1} stand in a "
        f"partition that the source does not have on {known.flow.source}; they are from no flow and were not compared"
        for key, log in logs.items()
        if log.end > log.start
    ]


def find_deleted_topics(known: FlowFacts, named: bool) -> list[str]:
    """Findings: topics that the flow has copied, that are on the target, and that the source does not show any more.
    named: only some topics were asked for."""
    if named:
        return []
    seen, there = {topic.name for topic in known.selected}, known.target.topics()
    gone = sorted(topic for topic in known.copied - seen if known.flow.selects(topic))
    return [
        f"topic {topic} was copied to {known.flow.target}, and {known.flow.source} does not show it: it was deleted, "
        "or this user may not describe it. Nothing of it was compared"
        for topic in gone
        if known.flow.target_topic(topic) in there
    ]


def describe_flows_left_out(every: Iterable[PlanFlow], proven: Sequence[PlanFlow], named: bool) -> list[str]:
    """Notes: flows that a proof of a whole topology leaves out."""
    if named:
        return []
    return [
        f"flow {flow.id}: declared {flow.state}, nothing of it was compared" for flow in every if flow not in proven
    ]
