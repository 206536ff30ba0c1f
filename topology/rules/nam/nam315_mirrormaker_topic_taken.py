"""NAM315 mirrormaker-topic-taken: a flow copies records into a topic that `compatibility` writes, or heartbeats circle.

Why: two writers in one topic. A flow that copies by sequence numbers halts at the first record that is not its own, and
tools that read the topic meet records that they do not understand. Heartbeats stop before a cluster whose alias is in
the topic's name already. Where two flows call that cluster by different `aliases`, they come back to it again and
again, each time under a longer name, so topics grow without end.

Source: apache/kafka DefaultReplicationPolicy.java (`heartbeats`, `ALIAS.checkpoints.internal`,
`mm2-offset-syncs.ALIAS.internal`)
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    for flow in topology.flows:
        if flow.plan.compatibility is not None:
            for side, name in flow.plan.compatibility.list_written_topics():
                yield from _find_copies(topology, flow, flow.source if side == "source" else flow.target, name)
    yield from _find_heartbeat_circles(topology)


def _find_copies(topology: Topology, flow: Flow, cluster: str, name: str) -> Iterator[Problem]:
    for other in topology.flows:
        origin = other.plan.source_topic(name) if other.target == cluster else None
        if origin is not None:
            yield Problem(
                "NAM315",
                f"flow {other.id} copies `{origin}` into `{name}` on {cluster}, which `compatibility` of flow "
                f"{flow.id} writes",
                (
                    Label(other.settings.where("topics", "include"), "copied by this"),
                    Label(flow.settings.where("compatibility"), "written by this"),
                ),
                path=f"{other.path}.topics",
                ids=(other.id, flow.id, name),
                help=f"exclude `{origin}` from flow {other.id}",
            )


def _find_heartbeat_circles(topology: Topology) -> Iterator[Problem]:
    beating = [
        (flow, flow.plan.compatibility)
        for flow in topology.flows
        if flow.plan.compatibility is not None and flow.plan.compatibility.heartbeats
    ]
    ways = nx.DiGraph((flow.source, flow.target) for flow, _ in beating)
    for into, there in beating:
        for out, here in beating:
            if into.target != out.source or there.target_alias == here.source_alias:
                continue
            if nx.has_path(ways, out.target, into.source):
                yield Problem(
                    "NAM315",
                    f"heartbeats go round without end: flow {into.id} calls cluster {out.source} "
                    f"`{there.target_alias}`, and flow {out.id} calls it `{here.source_alias}`",
                    (
                        Label(into.settings.where("compatibility"), f"`{there.target_alias}` here"),
                        Label(out.settings.where("compatibility"), f"`{here.source_alias}` here"),
                    ),
                    path=f"{into.path}.compatibility",
                    ids=(into.id, out.id, out.source),
                    help=f"give {out.source} the same name in `compatibility.mirrormaker.aliases` of both flows",
                )


RULE = Rule("NAM315", "mirrormaker-topic-taken", "error", __doc__, check)
