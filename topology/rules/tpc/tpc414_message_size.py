"""TPC414 message-size: the target takes smaller messages than the source.

Why: the first large batch is refused and its partition stops; nothing behind it is copied. Where no topic says its
limit, the brokers' `message.max.bytes` of both sides are compared (a warning, since topics may override it). A flow
gives the topics that it creates the source's limit, unless `sync.configs` leaves `max.message.bytes` out.

Source: strimzi/strimzi-kafka-operator#11037, strimzi/strimzi-kafka-operator#5933, salesforce/mirus#44
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.quantities import render_size
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_further_groups, render_some_names
from watershed.topology.rules.tpc.target_topics import TargetTopics, build_target_topics
from watershed.topology.target_configs import is_synced_config
from watershed.topology.topic_facts import FlowTopic

_KEY = "max.message.bytes"


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        found: dict[tuple[int, int], list[FlowTopic]] = {}
        for topics in groups:
            sizes = _sizes(side, topics[0])
            if sizes is not None and sizes[1] < sizes[0]:
                found.setdefault(sizes, []).extend(topics)
        if found:
            yield _problem(flow, side, found)
        elif not is_synced_config(flow.plan, _KEY) and not any(topics[0].source.max_message for topics in groups):
            yield from _brokers(context, side)


def _sizes(side: TargetTopics, topic: FlowTopic) -> tuple[int, int] | None:
    """What the source's topic takes, and what the target's does: its own limit, or its brokers'."""
    large, own = topic.source.max_message, side.fact(topic, "max_message")
    small = side.cluster.max_message if own is None else own
    return None if large is None or small is None else (large, small)


def _problem(flow: Flow, side: TargetTopics, found: dict[tuple[int, int], list[FlowTopic]]) -> Problem:
    ((large, small), topics), *others = sorted(found.items(), key=lambda each: (-each[0][0], each[0][1]))
    first = topics[0]
    said = flow.settings.at("sync", "configs", "set", _KEY)
    limit = said.span if said is not None else first.target.span or side.cluster.span
    return Problem(
        "TPC414",
        f"{flow.source} takes messages of {render_size(large)} in "
        f"{render_some_names([topic.label for topic in topics])}, "
        f"{flow.target} only {render_size(small)}",
        build_labels(
            (limit, f"at most {render_size(small)}"),
            (first.source.span, f"up to {render_size(large)}"),
            (flow.declared, "this flow"),
        ),
        path=flow.path,
        ids=(flow.id, first.label),
        notes=render_further_groups(
            (
                [topic.label for topic in more],
                f"{render_size(before)} at {flow.source}, {render_size(after)} at {flow.target}",
            )
            for (before, after), more in others
        ),
        help=f'raise {_KEY} at {flow.target}, or say `sync: {{configs: {{set: {{{_KEY}: "{large}"}}}}}}`',
    )


def _brokers(context: RuleContext, side: TargetTopics) -> Iterator[Problem]:
    flow, before, after = side.flow, context.facts.cluster(side.flow.source), side.cluster
    large, small = before.max_message, after.max_message
    if side.set.max_message is None and large is not None and small is not None and small < large:
        yield Problem(
            "TPC414",
            f"brokers of {flow.source} take messages of {render_size(large)}, those of {flow.target} only "
            f"{render_size(small)}",
            build_labels(
                (after.span, f"at most {render_size(small)}"),
                (before.span, f"up to {render_size(large)}"),
                (flow.declared, "this flow"),
            ),
            path=flow.path,
            ids=(flow.id,),
            help=f"raise message.max.bytes of {flow.target}, "
            f'or say `sync: {{configs: {{set: {{{_KEY}: "{large}"}}}}}}`',
            severity="warning",
            confidence="likely",
        )


RULE = Rule("TPC414", "message-size", "error", __doc__, check)
