"""SYN018 wrong-external-flow: an element of `external_flows` contradicts itself or another one.

Why: findings, plans and the status name a flow by its name, so two of one name could not be told apart. A key that
means nothing for the tool is a misunderstanding that would show only when records circulate. Two copies from different
clusters that mark their records with the same header in one topic cannot be told apart, so records of the one would be
left out as those of the other.

Source: own; docs/external-flows.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.collisions import find_shared_topics
from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    yield from context.problems("SYN018")
    shared = find_shared_topics(context.graph, _is_marked) if context.graph is not None else ()
    for cluster, name, first, second in shared:
        if first.id < second.id and _get_mark(first) == _get_mark(second) and first.source != second.source:
            yield Problem(
                "SYN018",
                f"{first.id} and {second.id} mark records in `{cluster}/{name}` with one header, `{_get_mark(first)}`",
                tuple(Label(flow.settings.where("marks_with"), flow.id) for flow in (second, first)),
                path=second.path,
                ids=(first.id, second.id),
                help="let each of the two put a header of its own on what it writes",
            )


def _is_marked(flow: Flow) -> bool:
    return _get_mark(flow) is not None


def _get_mark(flow: Flow) -> str | None:
    return None if flow.external is None else flow.external.marks_with


RULE = Rule("SYN018", "wrong-external-flow", "error", __doc__, check)
