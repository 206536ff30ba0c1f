"""SYC514 subject-does-not-follow-rename: topics get new names, and their schemas keep the subjects of the old ones.

Why: by the usual strategy a subject is called `<topic>-value`. Producers and tools at the target look for the subject
of the new name and find none, or register a second history there.

Source: Comcast/MirrorTool-for-Kafka-Connect#4; Confluent TopicNameStrategy
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        schemas = flow.settings.at("sync", "schemas")
        if schemas is None or schemas.get("mode", default="never") == "never":
            continue
        if flow.plan.naming.policy != "identity" and schemas.get("subjects", default="keep") == "keep":
            name = _example(flow)
            yield Problem(
                "SYC514",
                f"flow {flow.id} renames topics but keeps subjects: `{flow.plan.target_topic(name)}` looks for "
                f"`{flow.plan.target_topic(name)}-value`, and the schema is under `{name}-value`",
                build_labels(
                    (schemas.where("subjects"), "subjects stay"),
                    (flow.settings.where("naming"), "topics get new names"),
                ),
                path=f"{flow.path}.sync.schemas.subjects",
                ids=(flow.id,),
                help="say `subjects: follow_topic`; `keep` is right only with subjects that do not name the topic",
            )


def _example(flow: Flow) -> str:
    """A topic that the flow renames: of a map its first entry, else the first literal, or `orders`."""
    if flow.plan.naming.map:
        return flow.plan.naming.map[0][0]
    return next((each.text for each in flow.plan.topics.include if each.kind == "literal"), "orders")


RULE = Rule("SYC514", "subject-does-not-follow-rename", "warning", __doc__, check)
