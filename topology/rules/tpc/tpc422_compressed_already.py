"""TPC422 compressed-already: a flow is to compress topics that the source stores compressed.

Why: batches that have a codec keep it, so `compression` changes nothing for these topics; packing them anew would cost
time and save little. Told only where all known topics of the flow have a codec in their own `compression.type`. With
`producer`, producers choose, and `topology plan` reads a few batches to say what would be saved.

Source: own; apache/kafka TopicConfig.java, COMPRESSION_TYPE_DOC
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.egress_compression import CODEC_LEVELS
from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        said = flow.settings.at("compression")
        if said is None or flow.plan.compression is None or not groups:
            continue
        if not all(topics[0].source.compression in CODEC_LEVELS for topics in groups):
            continue
        topics = [topic for group in groups for topic in group]
        codecs = ", ".join(sorted({str(topic.source.compression) for topic in topics}))
        yield Problem(
            "TPC422",
            f"{flow.source} stores {render_some_names([topic.label for topic in topics])} compressed ({codecs}), so "
            f"flow {flow.id} finds nothing to compress",
            build_labels((said.span, "saves nothing"), (topics[0].source.span, codecs)),
            path=f"{flow.path}.compression",
            ids=(flow.id, topics[0].label),
            help="drop `compression`: batches that have a codec pass as they are",
        )


RULE = Rule("TPC422", "compressed-already", "info", __doc__, check)
