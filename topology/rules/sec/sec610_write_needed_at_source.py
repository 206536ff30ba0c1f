"""SEC610 write-needed-at-source: a flow's source is written to by Watershed as well, so READ is not enough there.

Why: a source is safest when nothing of a replicator may write to it. A paused flow back to it needs WRITE and CREATE
for its topics and for the control topics `watershed.*` the day it is started, and a migration's rollback commits
positions of groups there. Granted in a hurry, such rights are granted too widely.

Source: strimzi/strimzi-kafka-operator, its MirrorMaker 2 example keeps offset-syncs at the target for this reason
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    running = {(flow.source, flow.target): flow for flow in topology.flows if flow.plan.state == "running"}
    for back in topology.flows:
        there = running.get((back.target, back.source))
        if back.plan.state == "paused" and there is not None:
            yield Problem(
                "SEC610",
                f"flow {there.id} only reads {there.source}, but flow {back.id} will write there when it is started",
                build_labels((back.declared, f"writes to {back.target}"), (there.declared, "reads from it")),
                path=back.path,
                ids=(back.id, there.id),
                help=f"grant WRITE and CREATE at {back.target} for its topics and `watershed.*` before it is needed",
            )


RULE = Rule("SEC610", "write-needed-at-source", "info", __doc__, check, profile="audit")
