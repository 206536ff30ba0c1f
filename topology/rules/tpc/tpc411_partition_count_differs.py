"""TPC411 partition-count-differs: the target's topic has fewer partitions than the source's.

Why: every record keeps its partition, which is what keeps keys in order and offsets translatable; a partition that the
target does not have cannot be copied. Watershed does not change a topic that exists.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, partitions: 12}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: orders, partitions: 6}]
    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        topics: [{match: orders, partitions: 12}]
      b:
        bootstrap: [k1.b.example.internal:9093]
        topics: [{match: orders, partitions: 12}]
    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Source: apache/kafka#3151; linkedin/brooklin#649
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.rule import Context, Rule
from topology.rules.mention import labels, plural, some


def check(context: Context) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        if flow.settings.get("partitions", "mapping", default="preserve") != "preserve":
            continue
        both = [(topic, topic.source.partitions, topic.target.partitions) for topic in topics]
        found = [(topic, more, fewer) for topic, more, fewer in both if more and fewer and fewer < more]
        if found:
            topic, more, fewer = found[0]
            yield Problem(
                "TPC411",
                f"{some([each.target_label for each, *_ in found])}: {plural(fewer, 'partition')} at "
                f"{flow.target}, {more} at {flow.source}",
                labels(
                    (topic.target.span, f"{fewer} at {flow.target}"),
                    (topic.source.span, f"{more} at {flow.source}"),
                    (flow.declared, "this flow"),
                ),
                path=flow.path,
                ids=(flow.id, topic.label),
                help=f"raise it to {more} at {flow.target} before anything is copied into it",
            )


RULE = Rule("TPC411", "partition-count-differs", "error", __doc__, check)
