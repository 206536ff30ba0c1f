"""TPC410 cleanup-policy-differs: one side deletes old records, the other compacts.

Why: compacted at the target, history is lost and records without a key are refused; deleted there, keys that nobody
wrote for a while vanish, or the topic grows without end.

Source: own; apache/kafka TopicConfig.java
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_further_groups, render_some_names
from watershed.topology.rules.tpc.target_topics import build_target_topics
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        found: dict[tuple[str, str], list[FlowTopic]] = {}
        for topics in groups:
            before, after = topics[0].source.cleanup, side.fact(topics[0], "cleanup")
            if before is not None and after is not None and before != after:
                found.setdefault((before, after), []).extend(topics)
        if found:
            yield _problem(flow, found)


def _problem(flow: Flow, found: dict[tuple[str, str], list[FlowTopic]]) -> Problem:
    texts = [
        ([topic.label for topic in topics], f"{before} at {flow.source}, {after} at {flow.target}")
        for (before, after), topics in found.items()
    ]
    (before, after), topics = next(iter(found.items()))
    said = flow.settings.at("sync", "configs", "set", "cleanup.policy")
    return Problem(
        "TPC410",
        f"{render_some_names(texts[0][0])}: {texts[0][1]}",
        build_labels(
            (said.span if said is not None else topics[0].target.span, f"{after} at {flow.target}"),
            (topics[0].source.span, f"{before} at {flow.source}"),
            (flow.declared, "this flow"),
        ),
        path=flow.path,
        ids=(flow.id, topics[0].label),
        notes=render_further_groups(texts[1:]),
        help=f"give both the same cleanup.policy, at {flow.target} before the flow starts",
    )


RULE = Rule("TPC410", "cleanup-policy-differs", "warning", __doc__, check)
