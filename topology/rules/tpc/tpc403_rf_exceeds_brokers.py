"""TPC403 rf-exceeds-brokers: a replication factor is higher than the target has brokers, or racks (a warning).

Why: the broker refuses to create such a topic, so the flow stops at apply or at the first new topic. With more
replicas than racks two replicas share one, and losing that rack may lose both. Where no factor is said the source's is
taken, as far as the target has brokers, so that never fails.

Source: segmentio/topicctl, which refuses more replicas than racks; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem, Severity
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural, render_some_names


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        said = flow.plan.replication_factor
        if said is not None:
            where = flow.settings.where("replication_factor")
            yield from _compared(context, flow, said, f"flow {flow.id} asks for", where)
        higher: dict[int, list[str]] = {}
        for topic in topics:
            factor = topic.target.replication_factor
            if factor is not None and not topic.exists and factor != said:
                higher.setdefault(factor, []).append(topic.target_label)
        for factor, names in sorted(higher.items()):
            span = next(topic.target.span for topic in topics if topic.target.replication_factor == factor)
            yield from _compared(context, flow, factor, f"{render_some_names(names)} at {flow.target} must have", span)


def _compared(context: RuleContext, flow: Flow, factor: int, who: str, span: FileSpan | None) -> Iterator[Problem]:
    cluster = context.facts.cluster(flow.target)
    severity: Severity
    if cluster.brokers is not None and factor > cluster.brokers:
        there, severity = render_plural(cluster.brokers, "broker"), "error"
    elif cluster.racks is not None and factor > cluster.racks > 1:
        there, severity = render_plural(cluster.racks, "rack"), "warning"
    else:
        return
    yield Problem(
        "TPC403",
        f"{who} {render_plural(factor, 'replica')}, but {flow.target} has {there}",
        build_labels((span or flow.declared, render_plural(factor, "replica")), (cluster.span, there)),
        path=f"{flow.path}.replication_factor",
        ids=(flow.id, flow.target),
        help=f"say `replication_factor: {there.split()[0]}` or less, or correct `clusters.{flow.target}.facts`",
        severity=severity,
    )


RULE = Rule("TPC403", "rf-exceeds-brokers", "error", __doc__, check)
