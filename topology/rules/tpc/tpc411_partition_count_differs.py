"""TPC411 partition-count-differs: the target's topic has fewer partitions than the source's.

Why: every record keeps its partition, which is what keeps keys in order and offsets translatable; a partition that the
target does not have cannot be copied. Watershed does not change a topic that exists.

Source: apache/kafka#3151; linkedin/brooklin#649
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_further_groups, render_plural, render_some_names
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        found: dict[tuple[int, int], list[FlowTopic]] = {}
        for topics in groups:
            more, fewer = topics[0].source.partitions, topics[0].target.partitions
            if more and fewer and fewer < more:
                found.setdefault((more, fewer), []).extend(topics)
        if found:
            yield _problem(flow, found)


def _problem(flow: Flow, found: dict[tuple[int, int], list[FlowTopic]]) -> Problem:
    texts = [
        (
            [topic.target_label for topic in topics],
            f"{render_plural(fewer, 'partition')} at {flow.target}, {more} at {flow.source}",
        )
        for (more, fewer), topics in found.items()
    ]
    (more, fewer), topics = next(iter(found.items()))
    return Problem(
        "TPC411",
        f"{render_some_names(texts[0][0])}: {texts[0][1]}",
        build_labels(
            (topics[0].target.span, f"{fewer} at {flow.target}"),
            (topics[0].source.span, f"{more} at {flow.source}"),
            (flow.declared, "this flow"),
        ),
        path=flow.path,
        ids=(flow.id, topics[0].label),
        notes=render_further_groups(texts[1:]),
        help=f"raise it to {more} at {flow.target} before anything is copied into it",
    )


RULE = Rule("TPC411", "partition-count-differs", "error", __doc__, check)
