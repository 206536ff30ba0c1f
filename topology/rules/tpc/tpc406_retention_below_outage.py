"""TPC406 retention-below-outage: the source deletes records sooner than the flow's lag, the outage that it is meant to
survive and the time to catch up allow.

Why: records that expire before they were copied are gone; other replicators skip them silently. A flow of Watershed
stops there (`on_gap: stop`), with nothing left to copy. In a chain every hop reads from its own source, so the clusters
in between must keep their records just as long.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, retention: 24h}]
      b: {bootstrap: [k1.b.example.internal:9093]}
    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        slo: {lag: {max: 5m}, outage_allowance: 48h}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, retention: 7d}]
      b: {bootstrap: [k1.b.example.internal:9093]}
    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        slo: {lag: {max: 5m}, outage_allowance: 48h}

Source: apache/kafka#22248, apache/kafka#22848, apache/kafka#23091, apache/kafka#21349
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.facts import FlowTopic
from topology.finding import Problem
from topology.model import Flow
from topology.quantities import FOREVER, duration_text, rate_text, size_text
from topology.rule import Context, Rule
from topology.rules.mention import labels, some
from topology.rules.tpc.outage import Outage, outage


def check(context: Context) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        needed = outage(context, flow, topics)
        if needed is None:
            continue
        kept = [(_kept(context, topic), topic) for topic in topics if topic.source.cleanup != "compact"]
        short = [(ms, because, topic) for (ms, because), topic in kept if ms < needed.total_ms]
        if short:
            short.sort(key=lambda each: (each[0], each[2].label))
            yield _problem(flow, needed, short)


def _kept(context: Context, topic: FlowTopic) -> tuple[int, str]:
    """How long the source keeps a record of the topic, and why; FOREVER when that is not known. retention.bytes counts
    where a scan saw the topic's rate: the log is full after bytes × partitions / rate."""
    by_time = topic.source.retention_ms if topic.source.retention_ms is not None else FOREVER
    seen = context.facts.seen(topic.flow.source, topic.name) if topic.name is not None else None
    size = topic.source.retention_bytes
    if seen is not None and seen.rate_bytes and size is not None and size >= 0:
        by_size = size * seen.partitions * 1_000 // seen.rate_bytes // 1_000 * 1_000
        if by_size < by_time:
            what = f"{size_text(size)} × {seen.partitions} partitions at {rate_text(seen.rate_bytes)}"
            return by_size, f"`{topic.label}`: retention.bytes is reached first: {what} are {duration_text(by_size)}"
    return by_time, ""


def _problem(flow: Flow, needed: Outage, short: list[tuple[int, str, FlowTopic]]) -> Problem:
    least, because, first = short[0]
    slo = flow.settings.at("slo")
    total = duration_text(needed.total_ms)
    return Problem(
        "TPC406",
        f"{flow.source} keeps {some([topic.label for _, _, topic in short])} for {duration_text(least)}, but flow "
        f"{flow.id} needs {total}: {needed}",
        labels(
            (first.source.span, f"kept for {duration_text(least)}"),
            (slo.span if slo is not None else None, f"needs {total}"),
            (flow.declared, "this flow"),
        ),
        path=f"{flow.path}.slo",
        ids=(flow.id, first.label),
        notes=(*needed.notes, *((because,) if because else ())),
        help=f"raise the retention at {flow.source} to {total} or more, or promise less in `slo`",
        confidence="likely" if because else "certain",
    )


RULE = Rule("TPC406", "retention-below-outage", "error", __doc__, check)
