"""SLO710 task-count: a flow has more workers than partitions, or one worker for very many.

Why: a partition is copied by one worker, so those beyond the count only wait; and a single worker for hundreds of
partitions is both the bottleneck and, while it restarts, a standstill of all of them.

Source: apache/kafka docs/ops.html, which asks for two tasks or more
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext, RuleOption
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.topic_facts import FlowTopic

_MANY = RuleOption(
    "partitions_per_worker", "count", 200, "From how many partitions on a flow should have a second worker."
)


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        known = [topic.source.partitions for topic in topics if topic.name is not None]
        counted = sum(count for count in known if count is not None)
        workers = flow.plan.workers
        if workers > 1 and _all_known(context, flow, topics) and workers > counted > 0:
            said = f"flow {flow.id} has {workers} workers for {render_plural(counted, 'partition')}: the others wait"
            help_ = f"say `workers: {{count: {counted}}}` or less"
        elif workers == 1 and counted > context.option(_MANY):
            said = f"flow {flow.id} has one worker for {counted:,} partitions"
            help_ = "say `workers: {count: 2}` or more"
        else:
            continue
        yield Problem(
            "SLO710",
            said,
            build_labels((flow.settings.where("workers", "count"), "workers"), (flow.declared, "this flow")),
            path=f"{flow.path}.workers.count",
            ids=(flow.id,),
            help=help_,
        )


def _all_known(context: RuleContext, flow: Flow, topics: tuple[FlowTopic, ...]) -> bool:
    """Whether these are all topics of the flow, with all their counts."""
    scanned = context.inventory is not None and context.inventory.cluster(flow.source) is not None
    complete = scanned or flow.plan.topics.literals is not None
    return complete and all(topic.source.partitions is not None for topic in topics)


RULE = Rule("SLO710", "task-count", "info", __doc__, check, options=(_MANY,))
