"""TPC401 internal-topic-selected: a flow selects a topic that Kafka, Connect, a schema registry or another tool keeps
for itself, or names one without `allow_internal` and so does not get it (a warning).

Why: under its own name such a copy overwrites the positions, schemas or connector state of the target. Patterns never
take the topics that Watershed knows as internal (`__*`, `_schemas`, `watershed.*`, `connect-*`, `mm2-*`,
`*.checkpoints.internal`, `*-changelog`, `*-repartition`), so only `allow_internal: true` with the exact name does; what
other tools call `_confluent*`, `*.internal` or `*.replica` a pattern may well take. Under another name the copy is
harmless, a backup for instance, and only told.

Source: apache/kafka DefaultTopicFilter.java, whose default exclude lets `_schemas` and `connect-offsets` through;
strimzi/strimzi-kafka-operator examples/mirror-maker
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem, Severity
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_some_names
from watershed.topology.rules.tpc.reserved_names import describe_reserved_name, find_selector_span, list_selected_names
from watershed.topology.selectors import is_internal_topic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        found = [name for name in list_selected_names(context, flow) if describe_reserved_name(name) is not None]
        overwriting = [name for name in found if describe_reserved_name(flow.plan.target_topic(name)) is not None]
        if overwriting:
            yield _selected(flow, overwriting, "error", f"to {flow.target}, where the name is internal too")
        if renamed := [name for name in found if name not in overwriting]:
            yield _selected(flow, renamed, "info", f"to {flow.target}, as `{flow.plan.target_topic(renamed[0])}`")
        yield from _not_taken(flow)


def _selected(flow: Flow, names: list[str], severity: Severity, arriving: str) -> Problem:
    return Problem(
        "TPC401",
        f"flow {flow.id} copies {render_some_names(names)} ({describe_reserved_name(names[0])}) {arriving}",
        (Label(find_selector_span(flow, names[0]), "selected here"),),
        path=f"{flow.path}.topics.include",
        ids=(flow.id, *names[:3]),
        help="take it out, or exclude it; positions, schemas and access rights have their own `sync` sections",
        severity=severity,
    )


def _not_taken(flow: Flow) -> Iterator[Problem]:
    silent = [
        each
        for each in flow.settings.list("topics", "include")
        if each.data.kind == "literal" and is_internal_topic(each.data.text) and not flow.plan.topics.allow_internal
    ]
    if silent:
        names = sorted({each.data.text for each in silent})
        yield Problem(
            "TPC401",
            f"flow {flow.id} names {render_some_names(names)}: internal, and therefore not copied",
            tuple(sorted({Label(each.span, "selects nothing") for each in silent})),
            path=f"{flow.path}.topics.include",
            ids=(flow.id, *names[:3]),
            help="take the line out; if it really must travel, say `allow_internal: true` and give it another name",
            severity="warning",
        )


RULE = Rule("TPC401", "internal-topic-selected", "error", __doc__, check)
