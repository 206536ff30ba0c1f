"""TPC414 message-size: the target takes smaller messages than the source.

Why: the first large batch is refused and its partition stops; nothing behind it is copied. Where no topic says its
limit, the brokers' `message.max.bytes` of both sides are compared (a warning, since topics may override it).

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, max_message: 10MiB}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: orders, max_message: 1MiB}]
    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, max_message: 10MiB}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: orders, max_message: 10MiB}]
    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Source: strimzi/strimzi-kafka-operator#11037, strimzi/strimzi-kafka-operator#5933, salesforce/mirus#44
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.facts import FlowTopic
from topology.finding import Problem
from topology.model import Flow
from topology.quantities import size_text
from topology.rule import Context, Rule
from topology.rules.mention import besides, labels, some
from topology.rules.tpc.arrival import Arrival, arrival

_KEY = "max.message.bytes"


def check(context: Context) -> Iterator[Problem]:
    for flow, groups in context.facts.alike if context.topology is not None else ():
        side = arrival(context, flow)
        found: dict[tuple[int, int], list[FlowTopic]] = {}
        for topics in groups:
            sizes = _sizes(side, topics[0])
            if sizes is not None and sizes[1] < sizes[0]:
                found.setdefault(sizes, []).extend(topics)
        if found:
            yield _problem(flow, side, found)
        elif not any(topics[0].source.max_message for topics in groups):
            yield from _brokers(context, side)


def _sizes(side: Arrival, topic: FlowTopic) -> tuple[int, int] | None:
    """What the source's topic takes, and what the target's does: its own limit, or its brokers'."""
    large, own = topic.source.max_message, side.fact(topic, "max_message")
    small = side.cluster.max_message if own is None else own
    return None if large is None or small is None else (large, small)


def _problem(flow: Flow, side: Arrival, found: dict[tuple[int, int], list[FlowTopic]]) -> Problem:
    ((large, small), topics), *others = sorted(found.items(), key=lambda each: (-each[0][0], each[0][1]))
    first = topics[0]
    said = flow.settings.at("sync", "configs", "set", _KEY)
    limit = said.span if said is not None else first.target.span or side.cluster.span
    return Problem(
        "TPC414",
        f"{flow.source} takes messages of {size_text(large)} in {some([topic.label for topic in topics])}, "
        f"{flow.target} only {size_text(small)}",
        labels(
            (limit, f"at most {size_text(small)}"),
            (first.source.span, f"up to {size_text(large)}"),
            (flow.declared, "this flow"),
        ),
        path=flow.path,
        ids=(flow.id, first.label),
        notes=besides(
            (
                [topic.label for topic in more],
                f"{size_text(before)} at {flow.source}, {size_text(after)} at {flow.target}",
            )
            for (before, after), more in others
        ),
        help=f'raise {_KEY} at {flow.target}, or say `sync: {{configs: {{set: {{{_KEY}: "{large}"}}}}}}`',
    )


def _brokers(context: Context, side: Arrival) -> Iterator[Problem]:
    flow, before, after = side.flow, context.facts.cluster(side.flow.source), side.cluster
    large, small = before.max_message, after.max_message
    if side.set.max_message is None and large is not None and small is not None and small < large:
        yield Problem(
            "TPC414",
            f"brokers of {flow.source} take messages of {size_text(large)}, those of {flow.target} only "
            f"{size_text(small)}",
            labels(
                (after.span, f"at most {size_text(small)}"),
                (before.span, f"up to {size_text(large)}"),
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
