"""SLO713 compression-beside-target: a flow between regions compresses, and its workers run near the target.

Why: workers compress what they send. Beside the target the long line lies in front of them, so the batches have crossed
it uncompressed already: the target stores less, and the line carries as much as without the key. `workers: {near:
source}` puts them in front of the line. Looked at where both clusters say their region.

Source: own; a broker sends batches as they are stored (KafkaApis, Fetch)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import is_cross_region
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.slo.flows_by_declaration import group_flows_by_declaration, render_flow_names


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    found = [
        flow
        for flow in topology.flows
        if flow.plan.compression is not None
        and flow.settings.get("workers", "near", default="target") == "target"
        and is_cross_region(topology, flow.source, flow.target)
    ]
    for flows in group_flows_by_declaration(found):
        said = flows[0].settings.at("compression")
        assert said is not None, "a flow compresses only where the file says so"
        yield Problem(
            "SLO713",
            f"{render_flow_names(flows)} {'compresses' if len(flows) == 1 else 'compress'} beside {flows[0].target}, "
            f"so the line from {flows[0].source} carries as much as before",
            build_labels((said.span, "behind the line"), (flows[0].declared, "between regions")),
            path=f"{flows[0].path}.compression",
            ids=tuple(flow.id for flow in flows),
            help=f"start the workers beside {flows[0].source} and say `workers: {{near: source}}`, or drop the key if "
            f"the disks of {flows[0].target} are not what you want to save",
        )


RULE = Rule("SLO713", "compression-beside-target", "warning", __doc__, check)
