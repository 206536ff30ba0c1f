"""TPC415 timestamp-type: the target stamps records with the time at which they arrive there.

Why: with `LogAppendTime` the copy would lose the time of each record, so a flow copies nothing into such a topic and
waits (`docs/states.md`, `append_time`). Topics that a flow creates get `CreateTime`, whatever the brokers' default is.

Source: apache/kafka DefaultConfigPropertyFilter.java, which never copies the key
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.tpc.target_topics import build_target_topics
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        found: list[FlowTopic | None] = [
            topic for topics in groups if side.fact(topics[0], "timestamps") == "log_append_time" for topic in topics
        ]
        if not groups and side.set.timestamps == "log_append_time":
            found = [None]
        if found:
            names = [topic.target_label for topic in found if topic is not None]
            said = flow.settings.at("sync", "configs", "set", "message.timestamp.type")
            declared = found[0].target.span if found[0] is not None else None
            yield Problem(
                "TPC415",
                f"{flow.target} stamps {render_some_names(names) if names else 'new topics'} with the time of arrival",
                build_labels(
                    (said.span if said is not None else declared, "log append time"),
                    (flow.declared, "this flow"),
                ),
                path=flow.path,
                ids=(flow.id, *names[:1]),
                help=f"set message.timestamp.type to CreateTime at {flow.target}, in the topic or with "
                "`sync: {configs: {set: {message.timestamp.type: CreateTime}}}`",
            )


RULE = Rule("TPC415", "timestamp-type", "warning", __doc__, check)
