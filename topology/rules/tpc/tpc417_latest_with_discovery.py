"""TPC417 latest-with-discovery: `start: latest` with a glob or regex, which finds topics after they were made.

Why: a new topic is found some seconds after its first records. Copying begins at its end then, and those records are
never copied, without a word.

Source: Amazon MSK developer guide, How Amazon MSK Replicator works
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        patterns = [each for each in flow.settings.list("topics", "include") if each.data.kind != "literal"]
        if flow.plan.start == "latest" and patterns:
            pattern = patterns[0]
            yield Problem(
                "TPC417",
                f"flow {flow.id} starts new topics of `{pattern.data}` at their end: what was written before they were "
                f"found, within {render_duration(flow.plan.discovery_ms)}, is lost",
                build_labels(
                    (flow.settings.where("delivery", "start"), "begins at the end"),
                    (pattern.span, "finds topics later"),
                ),
                path=f"{flow.path}.delivery.start",
                ids=(flow.id,),
                help="say `start: earliest`, or name the topics one by one",
            )


RULE = Rule("TPC417", "latest-with-discovery", "error", __doc__, check)
