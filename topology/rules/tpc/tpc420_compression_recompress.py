"""TPC420 compression-recompress: the target's topic has a compression of its own.

Why: Watershed passes batches on as they are stored. Brokers that are told another codec unpack and pack every batch
again, at every hop, and the bytes at the target differ from those at the source; `compression.type: producer` keeps
them.

Source: own; apache/kafka TopicConfig.java, COMPRESSION_TYPE_DOC
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.tpc.target_topics import build_target_topics
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        found: dict[str, list[FlowTopic]] = {}
        for topics in groups:
            codec = side.fact(topics[0], "compression") or side.cluster.compression
            # the same codec on both sides is not packed anew
            if codec not in (None, "producer", _get_sent_codec(flow, topics[0])):
                found.setdefault(codec, []).extend(topics)
        for codec, others in sorted(found.items()):
            compression = flow.plan.compression
            said = flow.settings.at("sync", "configs", "set", "compression.type")
            yield Problem(
                "TPC420",
                f"{flow.target} packs {render_some_names([topic.target_label for topic in others])} anew, with {codec}",
                build_labels(
                    (said.span if said is not None else others[0].target.span, codec),
                    (flow.declared, "this flow"),
                ),
                path=flow.path,
                ids=(flow.id, others[0].label),
                help=f"set compression.type to producer at {flow.target}"
                + ("" if compression is None else f": it keeps what the flow packs ({compression})"),
            )


def _get_sent_codec(flow: Flow, topic: FlowTopic) -> str | None:
    """What batches have when they arrive, as far as it is known."""
    stored = topic.source.compression
    if stored in ("uncompressed", "none") and flow.plan.compression is not None:
        return flow.plan.compression.codec
    return stored


RULE = Rule("TPC420", "compression-recompress", "info", __doc__, check)
