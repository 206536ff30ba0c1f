"""GRF204 multi-writer-topic: two flows write one topic, or a flow and the target's own producers do (a warning).

Why: keys interleave, there are two offset spaces, and there is no way back from the mixture. Where it is meant, say
`merge: {allowed: true}` on each of the flows.

Source: apache/kafka docs/ops.html: MirrorMaker 2 renames exactly to avoid it
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.collisions import find_write_collisions
from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.topic_graph import TopicGraph


def check(context: RuleContext) -> Iterator[Problem]:
    graph = context.graph
    if graph is None:
        return
    told = {frozenset((*one.ids[-1:], *two.ids[-1:])) for one, two in graph.duplicate_deliveries}
    yield from _two_flows(graph, told)
    yield from _flow_and_producers(graph)


def _two_flows(graph: TopicGraph, told: set[frozenset[str]]) -> Iterator[Problem]:
    for each in find_write_collisions(graph):
        first, second = each.first, each.second
        if frozenset((first.id, second.id)) not in told:
            paused = [flow for flow in (first, second) if flow.plan.state == "paused"]
            back = any(flow.path.endswith(".failback") for flow in paused)
            yield Problem(
                "GRF204",
                f"{first.id} and {second.id} both write `{each.cluster}/{each.name}`",
                tuple(sorted({Label(first.declared, first.id), Label(second.declared, second.id)})),
                path=first.path,
                ids=(first.id, second.id),
                help=_help(first, second),
                # the way back of a standby meets what feeds the active by design; a failback stops that first
                severity="info" if back else "warning" if paused else None,
            )


def _help(first: Flow, second: Flow) -> str:
    ours = [flow.id for flow in (first, second) if flow.external is None]
    if any(flow.plan.state == "paused" for flow in (first, second)):
        return "one of them is paused; never run both"
    where = "both" if len(ours) > 1 else ours[0]
    return f"rename (`naming: {{policy: prefix}}`), or say `merge: {{allowed: true}}` on {where}"


def _flow_and_producers(graph: TopicGraph) -> Iterator[Problem]:
    seen: set[frozenset[str]] = set()
    for route in graph.returns:
        loop = route.loop()
        flows = frozenset(loop.ids)
        if flows in seen or not loop.running or all(flow.merge_allowed for flow in loop.flows):
            continue
        seen.add(flows)
        cluster, symbol = loop.end
        yield Problem(
            "GRF204",
            f"`{cluster}/{symbol}` has two writers: its own producers and the flow that comes back",
            tuple(sorted({Label(flow.declared, flow.id) for flow in loop.flows})),
            path=loop.flows[0].path,
            ids=tuple(sorted(flows)),
            notes=(f"route: {loop} (the guard stops it there)",),
            help="pause the way back (`state: paused`), rename, or say `merge: {allowed: true}` on all of them",
            severity="warning",
        )


RULE = Rule("GRF204", "multi-writer-topic", "error", __doc__, check, ignorable=False)
