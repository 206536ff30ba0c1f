"""NAM310 mixed-separators: flows that are connected use prefix naming with different separators.

Why: `a.orders` beside `a_orders` is one copy under two conventions: patterns, access rights and dashboards fit only one
of them, MirrorMaker 2 finds neither remote nor internal topics that another separator made, and over two hops
`b_a.orders` cannot be read back.

Source: apache/kafka DefaultReplicationPolicy.java: the separator is also part of the internal topics' names
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural


def check(context: RuleContext) -> Iterator[Problem]:
    for flows in _connected(context.topology) if context.topology is not None else ():
        by_separator: dict[str, list[Flow]] = {}
        for flow in flows:
            by_separator.setdefault(flow.plan.naming.before.removeprefix(flow.source), []).append(flow)
        if len(by_separator) > 1:
            yield _problem(by_separator)


def _problem(by_separator: dict[str, list[Flow]]) -> Problem:
    usual = max(sorted(by_separator), key=lambda each: len(by_separator[each]))
    first = [by_separator[each][0] for each in sorted(by_separator)]
    counts = [f"`{each}` in {render_plural(len(by_separator[each]), 'flow')}" for each in sorted(by_separator)]
    return Problem(
        "NAM310",
        f"connected flows use different separators: {', '.join(counts)}",
        build_labels(
            *(
                (flow.settings.where("naming"), f"{flow.id}: `{flow.plan.naming.before.removeprefix(flow.source)}`")
                for flow in first
            )
        ),
        path=f"{first[-1].path}.naming.separator",
        ids=tuple(flow.id for flow in first),
        help=f'use one of them for all, `separator: "{usual}"` in `defaults.naming` for instance; a change of '
        "separator makes new topics, so plan it like a migration",
    )


def _connected(topology: Topology) -> Iterator[list[Flow]]:
    """Flows with prefix naming in groups that share clusters, whatever flow connects these; by id."""
    leader: dict[str, str] = {}

    def find(alias: str) -> str:
        while leader.setdefault(alias, alias) != alias:
            leader[alias] = leader[leader[alias]]
            alias = leader[alias]
        return alias

    for flow in topology.flows:
        leader[find(flow.source)] = find(flow.target)
    groups: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        if flow.plan.naming.policy == "prefix":
            groups.setdefault(find(flow.source), []).append(flow)
    yield from groups.values()


RULE = Rule("NAM310", "mixed-separators", "error", __doc__, check)
