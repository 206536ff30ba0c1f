"""TPC407 target-retention-shorter: the target keeps a topic for a shorter time, or less of it, than the source.

Why: consumers that fail over, or start again from the beginning, find holes that the source does not have.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, retention: 7d}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: orders, retention: 1d}]
    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, retention: 7d}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: orders, retention: 7d}]
    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Source: own; apache/kafka TopicConfig.java
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.facts import FlowTopic
from topology.finding import Problem
from topology.quantities import duration_text, size_text
from topology.rule import Context, Rule
from topology.rules.mention import labels, some
from topology.rules.tpc.arrival import KEYS, Arrival

Shorter = tuple[FlowTopic, str, str, str]


def check(context: Context) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        side = Arrival(context, flow)
        found = [each for topic in topics if topic.source.cleanup != "compact" for each in _shorter(side, topic)]
        if found:
            first, name, kept, left = found[0]
            said = flow.settings.at("sync", "configs", "set", KEYS[name])
            yield Problem(
                "TPC407",
                f"{flow.target} keeps {left} of {some([topic.label for topic, *_ in found])}, {flow.source} {kept}",
                labels(
                    (said.span if said is not None else first.target.span, f"{flow.target} keeps {left}"),
                    (first.source.span, f"{flow.source} keeps {kept}"),
                    (flow.declared, "this flow"),
                ),
                path=flow.path,
                ids=(flow.id, first.label),
                help=f"set {KEYS[name]} at {flow.target} to what {flow.source} has, or keep it equal with "
                "`sync: {configs: {mode: continuous}}`",
            )


def _shorter(side: Arrival, topic: FlowTopic) -> Iterator[Shorter]:
    """At most one a topic: by time, or by size."""
    before, after = topic.source.retention_ms, side.fact(topic, "retention_ms")
    if before is not None and after is not None and after < before:
        yield topic, "retention_ms", duration_text(before), duration_text(after)
        return
    size, left = topic.source.retention_bytes, side.fact(topic, "retention_bytes")
    if size is not None and left is not None and left >= 0 and not 0 <= size <= left:
        kept = "everything" if size < 0 else f"{size_text(size)} a partition"
        yield topic, "retention_bytes", kept, f"{size_text(left)} a partition"


RULE = Rule("TPC407", "target-retention-shorter", "warning", __doc__, check)
