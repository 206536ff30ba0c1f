"""SLO714 breach-without-budget: `slo.on_breach` says `pause` or `fail`, and the flow has no `slo.lag.max`.

Why: only `slo.lag.max` stops a flow. A worker does not know the past (`lag.p99`) or other hops (`end_to_end`), and a
flow that stands still would lose more of `rpo` and `outage_allowance`. Without `slo.lag.max` nothing ever happens, and
whoever wrote the line relies on it.

Source: own; docs/decisions/0131-budgets-that-act.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.slo.flows_by_declaration import group_flows_by_declaration, render_flow_names


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    found = [
        flow
        for flow in topology.flows
        if flow.settings.get("slo", "on_breach", default="alert") != "alert" and flow.plan.breach is None
    ]
    for flows in group_flows_by_declaration(found):
        said = flows[0].settings.at("slo", "on_breach")
        assert said is not None, "the default is `alert`"
        yield Problem(
            "SLO714",
            f"`on_breach: {said.data}` never stops {render_flow_names(flows)}: no `slo.lag.max` is declared",
            build_labels((said.span, "acts on `slo.lag.max` only"), (flows[0].declared, "no limit for it")),
            path=f"{flows[0].path}.slo.on_breach",
            ids=tuple(flow.id for flow in flows),
            help="declare the limit, `slo: {lag: {max: 15m}, …}`, or say `on_breach: alert`",
        )


RULE = Rule("SLO714", "breach-without-budget", "error", __doc__, check)
