"""SYC528 streams-topics-missing: a flow carries positions of a Kafka Streams application, and not all of its topics.

Why: an application restores its stores from its changelogs and takes up what waits in its repartition topics. With some
of them, or of its inputs, missing at the target, it goes on with wrong results. So its positions are held back until
the flow copies every one. Patterns never take `*-changelog` and `*-repartition`: `include` names each of them, with
`allow_internal: true`. Which topics an application has, a scan tells.

Source: own; apache/kafka StreamsResetter.java for the names
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.kafka_streams import find_streams_topics
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        cluster = context.inventory.cluster(flow.source) if context.inventory is not None else None
        named = flow.settings.list("sync", "groups", "streams")
        for entry in named if cluster is not None else ():
            assert cluster is not None
            application = str(entry.data)
            internal = find_streams_topics(application, cluster.topics, [str(other.data) for other in named])
            group = cluster.groups.get(application)
            reads = group.offsets if group is not None else ()
            missing = sorted(topic for topic in {*internal, *reads} if not flow.plan.selects(topic))
            if missing:
                yield Problem(
                    "SYC528",
                    f"flow {flow.id} is to carry the state of {application}, and does not copy "
                    f"{render_some_names(missing)}",
                    build_labels(
                        (entry.span, "an application with state"), (flow.settings.where("topics", "include"), "topics")
                    ),
                    path=f"{flow.path}.topics.include",
                    ids=(flow.id, application, *missing[:3]),
                    help=f"add {', '.join(missing)} to `topics.include`, with `allow_internal: true`",
                )


RULE = Rule("SYC528", "streams-topics-missing", "error", __doc__, check, needs="inventory")
