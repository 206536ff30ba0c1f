"""GRF210 unreachable-standby: the active cluster holds records of a selected topic that never reach the standby.

Why: it is found on the day of the disaster. Records that other flows bring to the active cluster count, too: a
`forward: local` or a narrower selection on the way to the standby leaves them out.

Source: own; design of the graph proof ("every standby receives what its active holds")
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.graph is None:
        return
    from watershed.topology.standby_starvation import find_starved_topics

    for each in find_starved_topics(context.topology, context.graph):
        pattern = context.topology.root.at("pattern", "active_standby")
        assert pattern is not None, "only this pattern has a standby"
        way = context.topology.flow(f"{each.active}-to-{each.standby}")
        labels = [Label(pattern.key or pattern.span, f"promises `{each.topic}` to {each.standby}")]
        if way is not None and way.declared != labels[0].span:
            labels.append(Label(way.declared, f"{way.id} does not take all of it"))
        example = each.missing.example
        shown = f", for example `{example}`" if example not in (None, each.topic) else ""
        how = "only come by a paused flow to" if each.missing.paused else "never reach the standby"
        yield Problem(
            "GRF210",
            f"records of `{each.topic}` in {each.active} {how} {each.standby}{shown}",
            tuple(labels),
            path="pattern.active_standby",
            ids=(each.active, each.standby),
            notes=(f"route: {each.route}",) if each.route.flows else (),
            help="set `state: running` on the flow to the standby"
            if each.missing.paused
            else "let the flow to the standby select them (and forward them, if a flow brought them), "
            "or exclude them in the pattern",
            severity="warning" if each.missing.paused else None,
            confidence="certain" if each.missing.certain else "possible",
        )


RULE = Rule("GRF210", "unreachable-standby", "error", __doc__, check)
