"""NAM302 illegal-characters: a naming gives, or a selector names, a topic that Kafka does not allow.

Why: names are made of letters, digits, `.`, `_` and `-`, and are neither `.` nor `..`. The flow would stop at the first
topic that it wants to create.

Source: apache/kafka Topic.java, LEGAL_CHARS
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.regex import TOPIC_LETTERS
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.nam.flows_by_value import find_naming_value, group_flows_by_value, list_flow_ids
from watershed.topology.text_escaping import shorten_and_escape

_NOT_NAMES = (".", "..")
_HELP = "letters, digits, `.`, `_` and `-` are allowed; a name is neither `.` nor `..`"


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is not None:
        yield from _templates(context.topology)
        yield from _maps(context.topology)
        yield from _selectors(context.topology)


def _templates(topology: Topology) -> Iterator[Problem]:
    for value, flows in group_flows_by_value(topology.flows, lambda flow: find_naming_value(flow, "template")):
        around = value.data
        for word in ("{topic}", "{source}", "{target}"):
            around = around.replace(word, "")
        illegal = sorted(set(around) - set(TOPIC_LETTERS))
        if illegal:
            which = ", ".join("a space" if char == " " else f"`{shorten_and_escape(char)}`" for char in illegal)
            what = f"the template `{shorten_and_escape(value.data)}` puts {which} into topic names"
            yield _problem(what, value.span, flows, "naming.template")


def _maps(topology: Topology) -> Iterator[Problem]:
    for value, flows in group_flows_by_value(topology.flows, lambda flow: find_naming_value(flow, "map")):
        for name, to in sorted(value.fields.items()):
            if to.data in _NOT_NAMES:
                what = f"`{shorten_and_escape(name)}` is mapped to `{to.data}`, which is no topic's name"
                yield _problem(what, to.span, flows, "naming.map")


def _selectors(topology: Topology) -> Iterator[Problem]:
    for value, flows in group_flows_by_value(topology.flows, lambda flow: flow.settings.list("topics", "include")):
        if value.data.kind == "literal" and value.data.text in _NOT_NAMES:
            what = f"no topic can be called `{value.data.text}`"
            yield _problem(what, value.span, flows, "topics.include")


def _problem(what: str, span: FileSpan, flows: list[Flow], below: str) -> Problem:
    return Problem(
        "NAM302", what, (Label(span),), path=f"{flows[0].path}.{below}", ids=list_flow_ids(flows), help=_HELP
    )


RULE = Rule("NAM302", "illegal-characters", "error", __doc__, check)
