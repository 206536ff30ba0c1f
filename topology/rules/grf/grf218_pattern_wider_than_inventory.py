"""GRF218 pattern-wider-than-inventory: a pattern takes more topics than anybody has looked through.

Why: topics that match tomorrow join the flow by themselves, with their load and whatever they hold. A pattern that
takes more than `wide_pattern` topics already is rarely one that somebody read the list of.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext, RuleOption

_WIDE = RuleOption("wide_pattern", "count", 50, "How many topics a flow's patterns may take without a remark.")


def check(context: RuleContext) -> Iterator[Problem]:
    bound = context.option(_WIDE)
    for flow in context.topology.flows if context.topology is not None else ():
        if flow.plan.topics.literals is not None:
            continue
        names = context.facts.names(flow.source, flow.plan.topics)
        if len(names) > bound:
            shown = ", ".join(names[:3])
            yield Problem(
                "GRF218",
                f"{flow.id} takes {len(names)} topics by pattern ({shown}, …); new ones join by themselves",
                (Label(flow.settings.where("topics", "include")),),
                path=f"{flow.path}.topics",
                ids=(flow.id,),
                help="narrow the pattern, or raise `wide_pattern` in topology.lint.yaml",
            )


RULE = Rule("GRF218", "pattern-wider-than-inventory", "info", __doc__, check, needs="inventory", options=(_WIDE,))
