"""TPC407 target-retention-shorter: the target keeps a topic for a shorter time, or less of it, than the source.

Why: consumers that fail over, or start again from the beginning, find holes that the source does not have.

Source: own; apache/kafka TopicConfig.java
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.quantities import render_duration, render_size
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_further_groups, render_some_names
from watershed.topology.rules.tpc.target_topics import TOPIC_CONFIG_KEYS, TargetTopics, build_target_topics
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        found: dict[tuple[str, str, str], list[FlowTopic]] = {}
        for topics in groups:
            shorter = _shorter(side, topics[0]) if topics[0].source.cleanup != "compact" else None
            if shorter is not None:
                found.setdefault(shorter, []).extend(topics)
        if found:
            yield _problem(flow, found)


def _shorter(side: TargetTopics, topic: FlowTopic) -> tuple[str, str, str] | None:
    """Which fact, and what source and target keep: by time, or by size."""
    before, after = topic.source.retention_ms, side.fact(topic, "retention_ms")
    if before is not None and after is not None and after < before:
        return "retention_ms", render_duration(before), render_duration(after)
    size, left = topic.source.retention_bytes, side.fact(topic, "retention_bytes")
    if size is not None and left is not None and left >= 0 and not 0 <= size <= left:
        kept = "everything" if size < 0 else f"{render_size(size)} a partition"
        return "retention_bytes", kept, f"{render_size(left)} a partition"
    return None


def _problem(flow: Flow, found: dict[tuple[str, str, str], list[FlowTopic]]) -> Problem:
    ((name, kept, left), topics), *others = found.items()
    first = topics[0]
    said = flow.settings.at("sync", "configs", "set", TOPIC_CONFIG_KEYS[name])
    return Problem(
        "TPC407",
        f"{flow.target} keeps {left} of {render_some_names([topic.label for topic in topics])}, {flow.source} {kept}",
        build_labels(
            (said.span if said is not None else first.target.span, f"{flow.target} keeps {left}"),
            (first.source.span, f"{flow.source} keeps {kept}"),
            (flow.declared, "this flow"),
        ),
        path=flow.path,
        ids=(flow.id, first.label),
        notes=render_further_groups(
            ([topic.label for topic in more], f"{after} at {flow.target}, {before} at {flow.source}")
            for (_, before, after), more in others
        ),
        help=f"set {TOPIC_CONFIG_KEYS[name]} at {flow.target} to what {flow.source} has, or keep it equal with "
        "`sync: {configs: {mode: continuous}}`",
    )


RULE = Rule("TPC407", "target-retention-shorter", "warning", __doc__, check)
