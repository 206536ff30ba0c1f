"""GRF212 reverse-flow-live: the way back of an active-standby pair or a migration runs together with the way there.

Why: under one name and without a guard that is a loop, made by operation instead of by design, typically left over from
a failover drill. With the guard it is no loop, but the standby's own records, if it has any, flow into the active.

Source: own; GRF201 by operation
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or context.graph is None:
        return
    meeting = {frozenset(route.loop().ids) for route in (*context.graph.cycles, *context.graph.returns)}
    for there, back in _pairs(topology):
        running = there.plan.state == back.plan.state == "running"
        if running and any({there.id, back.id} <= flows for flows in meeting):
            guarded = there.plan.guard == back.plan.guard == "producer_id"
            yield Problem(
                "GRF212",
                f"{there.id} and {back.id} both run and carry the same topics",
                tuple(sorted({Label(there.declared, "there"), Label(back.declared, "and back")})),
                path=back.path,
                ids=tuple(sorted((there.id, back.id))),
                help=f"pause the way back: `state: paused` on {back.id}; a failback run starts it",
                severity="warning" if guarded else None,
            )


def _pairs(topology: Topology) -> Iterator[tuple[Flow, Flow]]:
    pattern = topology.root.at("pattern", "active_standby")
    routes = {(pattern.get("active"), pattern.get("standby"))} if pattern is not None else set()
    if topology.migration is not None and (flow := topology.flow(topology.migration.flow)) is not None:
        routes.add((flow.source, flow.target))
    for source, target in sorted(routes, key=str):
        for there in topology.flows:
            if (there.source, there.target) == (source, target):
                yield from ((there, back) for back in topology.flows if (back.source, back.target) == (target, source))


RULE = Rule("GRF212", "reverse-flow-live", "error", __doc__, check)
