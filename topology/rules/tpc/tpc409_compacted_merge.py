"""TPC409 compacted-merge: several flows write one compacted topic.

Why: a compacted topic keeps the last record of each key. Keys of different sources that happen to be equal overwrite
each other, and nothing shows which one was lost. Where keys are known to be disjoint, say `merge: {compacted: allow}`
on each of the flows.

Source: own; apache/kafka docs, Log Compaction
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.tpc.topic_writers import find_merged_topics
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    found: dict[tuple[str, ...], tuple[tuple[Flow, ...], dict[str, FlowTopic]]] = {}
    for topic, flows in find_merged_topics(context, lambda topic: topic.source.compacted or topic.target.compacted):
        if not all(flow.settings.get("merge", "compacted") == "allow" for flow in flows):
            found.setdefault(tuple(flow.id for flow in flows), (flows, {}))[1].setdefault(topic.target_label, topic)
    for ids, (flows, topics) in sorted(found.items()):
        names = sorted(topics)
        first = topics[names[0]]
        yield Problem(
            "TPC409",
            f"{render_some_names(list(ids))} write the compacted {render_some_names(names)} at {flows[0].target}: "
            f"equal keys overwrite "
            "each other",
            build_labels(
                *((flow.declared, flow.id) for flow in flows),
                (first.source.span if first.source.compacted else first.target.span, "compacted"),
            ),
            path=flows[0].path,
            ids=(*ids, *names[:1]),
            help="rename (`naming: {policy: prefix}`), or say `merge: {compacted: allow}` where keys are disjoint",
        )


RULE = Rule("TPC409", "compacted-merge", "error", __doc__, check)
