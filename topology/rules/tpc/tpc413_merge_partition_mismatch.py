"""TPC413 merge-partition-mismatch: the sources of a merged topic have different partition counts.

Why: a key then stands in one partition when it comes from one source and in another when it comes from the next;
joins at the target that rely on equal partitions give wrong answers. Where nobody relies on it, say
`merge: {partitions: any}`.

Source: own; apache/kafka docs, Streams: co-partitioning requirements
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    alone: dict[tuple[str, str], FlowTopic] = {}
    into: dict[tuple[str, str], dict[str, FlowTopic]] = {}
    for topic in context.facts.flow_topics:
        if topic.source.partitions is not None:
            key = (topic.flow.target, topic.target_label)
            first = alone.setdefault(key, topic)
            if first is not topic:
                into.setdefault(key, {first.flow.id: first})[topic.flow.id] = topic
    # one finding for the same flows with the same counts
    found: dict[tuple[tuple[str, int], ...], list[FlowTopic]] = {}
    for _, by_flow in sorted(into.items()):
        counts = tuple((flow_id, topic.source.partitions or 0) for flow_id, topic in by_flow.items())
        any_count = all(topic.flow.settings.get("merge", "partitions") == "any" for topic in by_flow.values())
        if len({count for _, count in counts}) > 1 and not any_count:
            found.setdefault(counts, []).append(next(iter(by_flow.values())))
    for counts, topics in sorted(found.items()):
        by_flow = into[topics[0].flow.target, topics[0].target_label]
        names = [topic.target_label for topic in topics]
        said = ", ".join(f"{count} by {flow_id}" for flow_id, count in counts)
        yield Problem(
            "TPC413",
            f"the sources of {render_some_names(names)} at {topics[0].flow.target} have different partition "
            f"counts: {said}",
            build_labels(
                *(
                    (topic.source.span, f"{topic.source.partitions} at {topic.flow.source}")
                    for topic in by_flow.values()
                ),
                *((topic.flow.declared, topic.flow.id) for topic in by_flow.values()),
            ),
            path=topics[0].flow.path,
            ids=(*(flow_id for flow_id, _ in counts), names[0]),
            help="give the sources equal counts, or say `merge: {partitions: any}` on the flows",
        )


RULE = Rule("TPC413", "merge-partition-mismatch", "error", __doc__, check)
