"""SYC529 streams-renamed: a flow gives a Kafka Streams application, or its topics, other names at the target.

Why: an application looks for its changelogs, its repartition topics and its positions under its application id. Under
other names it finds nothing, makes empty topics of its own, and begins without state.

Source: own; apache/kafka docs, Streams: `application.id` is the prefix of internal topics and the group id
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        for entry in flow.settings.list("sync", "groups", "streams"):
            application = str(entry.data)
            called = flow.plan.sync.groups.target_group(application)
            topics = [each.text for each in flow.plan.topics.include if each.kind == "literal"]
            mine = [f"{application}-store-changelog", *(each for each in topics if each.startswith(f"{application}-"))]
            moved = next((each for each in mine if flow.plan.target_topic(each) != each), None)
            if called == application and moved is None:
                continue
            what, where = f"group {application} becomes {called}", ["sync", "groups", "rename"]
            if moved is not None:
                what, where = f"a topic {moved} becomes {flow.plan.target_topic(moved)}", ["naming"]
            yield Problem(
                "SYC529",
                f"flow {flow.id} is to carry the state of {application}, and {what}, where the application does not "
                "look for it",
                build_labels((entry.span, "an application with state"), (flow.settings.where(*where), "renamed here")),
                path=f"{flow.path}.{'.'.join(where)}",
                ids=(flow.id, application),
                help="copy the application's topics by a flow with `naming: {policy: identity}`, and leave it out of "
                "`sync.groups.rename`",
            )


RULE = Rule("SYC529", "streams-renamed", "error", __doc__, check)
