"""NAM315 mirrormaker-topic-taken: a flow copies records into a topic that `compatibility` writes.

Why: two writers in one topic. A flow that copies by sequence numbers halts at the first record that is not its own, and
tools that read the topic meet records that they do not understand.

Source: apache/kafka DefaultReplicationPolicy.java (`heartbeats`, `ALIAS.checkpoints.internal`,
`mm2-offset-syncs.ALIAS.internal`)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        if topology is not None and flow.plan.compatibility is not None:
            for side, name in flow.plan.compatibility.list_written_topics():
                yield from _find_copies(topology, flow, flow.source if side == "source" else flow.target, name)


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


RULE = Rule("NAM315", "mirrormaker-topic-taken", "error", __doc__, check)
