"""GRF211 missing-reverse-flow: nothing is declared that could carry records home after a failover or a migration.

Why: records written at the new side after the switch have no way back; the plan for it is then made during the outage.
A paused reverse flow costs nothing and is checked for loops today.

Source: confluentinc/kcp getting-started guide (after promotion a new link is needed)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    ways = {(flow.source, flow.target) for flow in topology.flows}
    for source, target, span, path in _forward(topology):
        if (source, target) in ways and (target, source) not in ways:
            yield Problem(
                "GRF211",
                f"no flow leads from {target} back to {source}",
                (Label(span),),
                path=path,
                ids=(source, target),
                help="declare it paused: `failback: {reverse: declared_paused}` in the pattern, "
                f"or a flow {target} to {source} with `state: paused`",
            )


def _forward(topology: Topology) -> Iterator[tuple[str, str, FileSpan, str]]:
    pattern = topology.root.at("pattern", "active_standby")
    if pattern is not None and pattern.get("failback", "reverse") != "none":
        yield (
            pattern.get("active", default=""),
            pattern.get("standby", default=""),
            pattern.key or pattern.span,
            "pattern.active_standby",
        )
    elif topology.migration is not None and (flow := topology.flow(topology.migration.flow)) is not None:
        yield flow.source, flow.target, topology.root.where("migration", "flow"), "migration.flow"


RULE = Rule("GRF211", "missing-reverse-flow", "warning", __doc__, check, profile="strict")
