"""NAM307 regex-catches-everything: a flow takes every topic (`*`, `.*`, `.+`) and excludes none.

Why: other teams' topics, tests and what some tool keeps for itself come along, and whatever is created tomorrow joins
by itself. Internal topics that Watershed knows stay out, others do not.

Source: apache/kafka DefaultTopicFilter.java: `.*` is MirrorMaker 2's default
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.nam.flows_by_value import group_flows_by_value, list_flow_ids
from watershed.topology.text_escaping import shorten_and_escape

# names that have nothing in common; what matches them all was not meant to choose
_PROBES = ("zq", "Q7", "0x", "_a-B", "-.9", "j5.W_k-3", "v" * 100)


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    open_ended = (flow for flow in flows if not flow.plan.topics.exclude)
    for value, using in group_flows_by_value(open_ended, lambda flow: flow.settings.list("topics", "include")):
        if _takes_everything(value):
            yield Problem(
                "NAM307",
                f"`{shorten_and_escape(value.data.text)}` takes every topic of {using[0].source}"
                + (f" and {len(using) - 1} more" if len(using) > 1 else ""),
                (Label(value.span),),
                path=f"{using[0].path}.topics.include",
                ids=list_flow_ids(using),
                help="select what should travel, or say in `exclude` what should not",
            )


def _takes_everything(value: CheckedValue) -> bool:
    return value.data.kind != "literal" and all(value.data.matches(name) for name in _PROBES)


RULE = Rule("NAM307", "regex-catches-everything", "warning", __doc__, check)
