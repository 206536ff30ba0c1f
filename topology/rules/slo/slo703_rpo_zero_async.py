"""SLO703 rpo-zero-async: a flow promises `rpo: 0s`.

Why: a flow copies what the source has acknowledged, so when the source dies the last records are not at the target.
Losing nothing needs replicas that acknowledge together: one stretch cluster over the sites (`regions`, `stretch`).

Source: Confluent, Multi-Region Architectures; Amazon MSK Replicator manual: some loss must be tolerated
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.slo.flows_by_declaration import render_flow_names


def check(context: RuleContext) -> Iterator[Problem]:
    groups: dict[FileSpan, list[Flow]] = {}
    for flow in context.topology.flows if context.topology is not None else ():
        said = flow.settings.at("slo", "rpo")
        if said is not None and said.data == 0:
            groups.setdefault(said.span, []).append(flow)
    for span, flows in sorted(groups.items()):
        yield Problem(
            "SLO703",
            f"{render_flow_names(flows)} {'promises' if len(flows) == 1 else 'promise'} to lose nothing, but "
            f"records are copied "
            "after they were acknowledged",
            (Label(span, "asks for no loss at all"),),
            path=f"{flows[0].path}.slo.rpo",
            ids=tuple(flow.id for flow in flows),
            help="say how much may be lost (at least the lag budget), or use one stretch cluster over the sites",
        )


RULE = Rule("SLO703", "rpo-zero-async", "error", __doc__, check)
