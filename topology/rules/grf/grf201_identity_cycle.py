"""GRF201 identity-cycle: records come back to a topic that they have been in, and nothing stops them.

Why: every record circulates for ever and multiplies until both clusters are full. The loop is proven on topics, not on
clusters: two flows in opposite directions that share no topic are fine.

Source: apache/kafka IdentityReplicationPolicy.java ("cannot prevent cycles"), apache/kafka#10652; append-and-check is
RFC 8586
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.topic_graph import FlowPath


def check(context: RuleContext) -> Iterator[Problem]:
    message = "records circulate for ever: they return under the same name and no guard stops them"
    for route, problem in find_unguarded_loops(context, "GRF201", message):
        if all(flow.plan.guard == "none" for flow in route.flows):
            yield problem


def find_unguarded_loops(context: RuleContext, code: str, message: str) -> Iterator[tuple[FlowPath, Problem]]:
    """The cycles of our flows alone (`find_cycle_problems`)."""
    for route, problem in find_cycle_problems(context, code, message, _help):
        if all(flow.external is None for flow in route.flows):
            yield route, problem


def _help(flows: tuple[Flow, ...]) -> str:
    open_flows = sorted({flow.id for flow in flows if flow.plan.guard == "none"})
    return (
        f"remove `guard: none` from {', '.join(open_flows)} (the default guard stops it), "
        "or rename with `naming: {policy: prefix}` and select the originals only"
    )


def find_cycle_problems(
    context: RuleContext, code: str, message: str, help_for: Callable[[tuple[Flow, ...]], str]
) -> Iterator[tuple[FlowPath, Problem]]:
    """One witness for every set of flows that forms a cycle, the shortest first. help_for: what to do about them."""
    seen: set[frozenset[str]] = set()
    for route in context.graph.cycles if context.graph else ():
        loop = route.loop()
        flows = frozenset(loop.ids)
        if flows in seen:
            continue
        seen.add(flows)
        labels = {
            Label(flow.declared, f"{flow.id} copies `{here[1]}`")
            for here, flow in zip(loop.nodes[:-1], loop.flows, strict=True)
        }
        yield (
            loop,
            Problem(
                code,
                message,
                tuple(sorted(labels)),
                path=loop.flows[0].path,
                ids=tuple(sorted(flows)),
                notes=(f"cycle: {loop.rotate_loop()}",),
                help=help_for(loop.flows),
                confidence="certain" if route.end[1].certain else "possible",
            ),
        )


RULE = Rule("GRF201", "identity-cycle", "error", __doc__, check, ignorable=False)
