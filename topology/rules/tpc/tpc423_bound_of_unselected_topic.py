"""TPC423 bound-of-unselected-topic: `delivery.start` or `.end` names offsets of a topic that the flow does not copy.

Why: the offsets have no effect. A misspelled name means that the topic which was meant is copied from its first record,
or without an end.

Source: own; offsets by topic and partition are typed by hand
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.spelling import suggest_word


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        for key in ("start", "end"):
            yield from _check_bound(flow, key)


def _check_bound(flow: Flow, key: str) -> Iterator[Problem]:
    offsets = flow.settings.at("delivery", key, "offsets")
    for topic, value in (offsets.fields if offsets is not None else {}).items():
        if flow.plan.selects(topic):
            continue
        named = [each.data.text for each in flow.settings.list("topics", "include") if each.data.kind == "literal"]
        near = suggest_word(topic, named)
        yield Problem(
            "TPC423",
            f"flow {flow.id} says where `{topic}` {key}s, and does not copy it",
            build_labels(
                (value.key or value.span, "not copied"), (flow.settings.where("topics", "include"), "what is copied")
            ),
            path=f"{flow.path}.delivery.{key}.offsets.{topic}",
            ids=(flow.id, topic),
            help=f"did you mean `{near}`?" if near else "name the topic under `topics`, or leave its offsets out",
        )


RULE = Rule("TPC423", "bound-of-unselected-topic", "error", __doc__, check)
