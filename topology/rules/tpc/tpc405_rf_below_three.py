"""TPC405 rf-below-three: topics get one or two replicas at a target that has three brokers or more.

Why: with one replica every broker restart stops its partitions, with two a restart leaves a single copy. A copy that
is there for safety should not be the weaker one.

Source: apache/kafka MirrorSourceConfig.java: MirrorMaker 2 creates with two by default, its sample file with one
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural, render_some_names
from watershed.topology.rules.tpc.target_topics import build_target_topics
from watershed.topology.topic_facts import FlowTopic

_ENOUGH = 3


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        brokers = side.cluster.brokers
        if brokers is None or brokers < _ENOUGH:
            continue
        found: dict[int, list[FlowTopic | None]] = {}
        for topics in groups or ((None,),):
            replicas = side.replicas(topics[0])
            if replicas is not None and replicas < _ENOUGH:
                found.setdefault(replicas, []).extend(topics)
        for replicas, fewer in sorted(found.items()):
            names = [topic.target_label for topic in fewer if topic is not None]
            whose = (
                f"{render_some_names(names)} at {flow.target}"
                if names
                else f"what flow {flow.id} creates at {flow.target}"
            )
            said = flow.settings.at("replication_factor")
            declared = next((each.target.span or each.source.span for each in fewer if each is not None), None)
            yield Problem(
                "TPC405",
                f"{whose}: {render_plural(replicas, 'replica')}, on {brokers} brokers",
                build_labels(
                    (None if said is None else said.span, render_plural(replicas, "replica")),
                    (declared, render_plural(replicas, "replica")),
                    (side.cluster.span, f"{brokers} brokers"),
                    (flow.declared, "this flow"),
                ),
                path=f"{flow.path}.replication_factor",
                ids=(flow.id, *names[:1]),
                help=f"say `replication_factor: {_ENOUGH}` on the flow; topics that exist are reassigned by hand",
            )


RULE = Rule("TPC405", "rf-below-three", "warning", __doc__, check)
