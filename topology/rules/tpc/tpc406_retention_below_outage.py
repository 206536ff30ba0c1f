"""TPC406 retention-below-outage: the source deletes records sooner than the flow's lag, the outage that it is meant to
survive and the time to catch up allow.

Why: records that expire before they were copied are gone; other replicators skip them silently. A flow of Watershed
stops there (`on_gap: stop`), with nothing left to copy. In a chain every hop reads from its own source, so the clusters
in between must keep their records just as long.

Source: apache/kafka#22248, apache/kafka#22848, apache/kafka#23091, apache/kafka#21349
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.quantities import FOREVER_MS, render_duration, render_rate, render_size
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.tpc.outage_budget import OutageBudget, build_outage_budget
from watershed.topology.rules.tpc.relayed import RelayedTopic, find_relayed_topics
from watershed.topology.topic_facts import FlowTopic, TopicFacts


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    needs = {flow.id: build_outage_budget(context, flow, topics) for flow, topics in context.facts.by_flow}
    later = find_relayed_topics(context) if any(needs.values()) else {}
    for flow, groups in context.facts.by_equal_facts:
        needed = needs[flow.id]
        if needed is None:
            continue
        total = needed.total_ms
        perhaps = [topic for topics in groups if _may_be_short(topics[0].source, total) for topic in topics]
        kept = [(_kept(context, topic), topic) for topic in perhaps]
        short = [_ShortRetention(ms, topic, because) for (ms, because), topic in kept if ms < total]
        short += [
            each
            for each in map(_relayed, later.get(flow.id, ()))
            if each.ms < total and not _is_reported_for_feeder(each, needs)
        ]
        if short:
            yield _problem(flow, needed, sorted(short, key=lambda each: (each.ms, each.topic.label)))


@dataclass(frozen=True, slots=True)
class _ShortRetention:
    """A topic that is kept for `ms` only. because: how that is known, where the topic itself does not say it."""

    ms: int
    topic: FlowTopic
    because: str = ""
    by: Flow | None = None


def _relayed(hop: RelayedTopic) -> _ShortRetention:
    topic, by = hop.topic, hop.by
    if topic.source.cleanup == "compact" or topic.source.retention_ms is None:
        return _ShortRetention(FOREVER_MS, topic)
    because = f"`{topic.label}` at {by.target}: {by.id} takes retention.ms over from {by.source}"
    return _ShortRetention(topic.source.retention_ms, topic, because, by)


def _is_reported_for_feeder(short: _ShortRetention, needs: dict[str, OutageBudget | None]) -> bool:
    """Whether the flow that brought the topic is short of the same retention: one finding is enough."""
    needed = needs[short.by.id] if short.by is not None else None
    return needed is not None and short.ms < needed.total_ms


def _may_be_short(source: TopicFacts, total_ms: int) -> bool:
    """By time, or perhaps by size."""
    by_time, size = source.retention_ms, source.retention_bytes
    return source.cleanup != "compact" and (
        (by_time is not None and by_time < total_ms) or (size is not None and size >= 0)
    )


def _kept(context: RuleContext, topic: FlowTopic) -> tuple[int, str]:
    """How long the source keeps a record of the topic, and why; FOREVER when that is not known. retention.bytes counts
    where a scan saw the topic's rate: the log is full after bytes × partitions / rate."""
    by_time = topic.source.retention_ms if topic.source.retention_ms is not None else FOREVER_MS
    seen = context.facts.seen(topic.flow.source, topic.name) if topic.name is not None else None
    size = topic.source.retention_bytes
    if seen is not None and seen.rate_bytes and size is not None and size >= 0:
        by_size = size * seen.partitions * 1_000 // seen.rate_bytes // 1_000 * 1_000
        if by_size < by_time:
            what = f"{render_size(size)} × {seen.partitions} partitions at {render_rate(seen.rate_bytes)}"
            return by_size, f"`{topic.label}`: retention.bytes is reached first: {what} are {render_duration(by_size)}"
    return by_time, ""


def _problem(flow: Flow, needed: OutageBudget, short: list[_ShortRetention]) -> Problem:
    first = short[0]
    slo = flow.settings.at("slo")
    least, total = render_duration(first.ms), needed.text
    sampled = bool(first.because) and first.by is None
    return Problem(
        "TPC406",
        f"{flow.source} keeps {render_some_names([each.topic.label for each in short])} for {least}, but flow "
        f"{flow.id} needs "
        f"{total}: {needed}",
        build_labels(
            (first.topic.source.span, f"kept for {least}"),
            (slo.span if slo is not None else None, f"needs {total}"),
            (flow.declared, "this flow"),
        ),
        path=f"{flow.path}.slo",
        ids=(flow.id, first.topic.label),
        notes=(*needed.notes, *((first.because,) if first.because else ())),
        help=f"raise the retention at {flow.source} to {total} or more, or promise less in `slo`",
        confidence="likely" if first.because else "certain",
        severity="warning" if sampled else None,
    )


RULE = Rule("TPC406", "retention-below-outage", "error", __doc__, check)
