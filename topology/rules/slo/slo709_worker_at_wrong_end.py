"""SLO709 worker-at-wrong-end: the workers of a flow between regions run near the source.

Why: then they produce over the long line, and a batch is only done when its acknowledgement came back: throughput falls
with the distance, and on a broken line it is unknown what arrived. Fetching over the long line is cheap and can be
repeated. Looked at where both clusters say their region. A flow with `compression` is left out: in front of the long
line its workers save most of what the line would carry.

Source: apache/kafka docs/ops.html, geo-replication: consume from remote, produce to local
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import is_cross_region
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.slo.flows_by_declaration import render_flow_names


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    groups: dict[FileSpan, list[Flow]] = {}
    for flow in topology.flows if topology is not None else ():
        near = flow.settings.at("workers", "near")
        if topology is None or near is None or near.data != "source" or flow.plan.compression is not None:
            continue
        if is_cross_region(topology, flow.source, flow.target):
            groups.setdefault(near.span, []).append(flow)
    for span, flows in sorted(groups.items()):
        yield Problem(
            "SLO709",
            f"the workers of {render_flow_names(flows)} run near {flows[0].source} and produce over the long line to "
            f"{flows[0].target}",
            build_labels((span, "far from the target"), (flows[0].declared, "between regions")),
            path=f"{flows[0].path}.workers.near",
            ids=tuple(flow.id for flow in flows),
            help="say `near: target` (or leave it out): read remotely, write locally",
        )


RULE = Rule("SLO709", "worker-at-wrong-end", "warning", __doc__, check)
