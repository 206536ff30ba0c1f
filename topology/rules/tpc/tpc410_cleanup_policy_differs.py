"""TPC410 cleanup-policy-differs: one side deletes old records, the other compacts.

Why: compacted at the target, history is lost and records without a key are refused; deleted there, keys that nobody
wrote for a while vanish, or the topic grows without end.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: customers, cleanup: compact}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: customers, cleanup: delete}]
    flows:
      - source: a
        target: b
        topics: {include: [customers]}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: customers, cleanup: compact}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: customers, cleanup: compact}]
    flows:
      - source: a
        target: b
        topics: {include: [customers]}

Source: own; apache/kafka TopicConfig.java
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.rule import Context, Rule
from topology.rules.mention import labels, some
from topology.rules.tpc.arrival import Arrival


def check(context: Context) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        side = Arrival(context, flow)
        both = [(topic, topic.source.cleanup, side.fact(topic, "cleanup")) for topic in topics]
        found = [(topic, *pair) for topic, *pair in both if None not in pair and pair[0] != pair[1]]
        if found:
            topic, before, after = found[0]
            said = flow.settings.at("sync", "configs", "set", "cleanup.policy")
            yield Problem(
                "TPC410",
                f"{some([each.label for each, *_ in found])}: {before} at {flow.source}, {after} at {flow.target}",
                labels(
                    (said.span if said is not None else topic.target.span, f"{after} at {flow.target}"),
                    (topic.source.span, f"{before} at {flow.source}"),
                    (flow.declared, "this flow"),
                ),
                path=flow.path,
                ids=(flow.id, topic.label),
                help=f"give both the same cleanup.policy, at {flow.target} before the flow starts",
            )


RULE = Rule("TPC410", "cleanup-policy-differs", "warning", __doc__, check)
