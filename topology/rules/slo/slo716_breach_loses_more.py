"""SLO716 breach-loses-more: a budget stops the flow, and another budget of the flow gets worse by that.

Why: `slo.rpo` says how much may be lost when the source dies, `slo.outage_allowance` for how long nothing is copied
without loss. Both run on while a flow stands still. `on_breach: pause` or `fail` then turns a flow that is late into
one that loses, if nobody resumes it in time.

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
    for budget in ("rpo", "outage_allowance"):
        found = [flow for flow in topology.flows if flow.plan.breach is not None and flow.settings.get("slo", budget)]
        for flows in group_flows_by_declaration(found):
            said, other = flows[0].settings.at("slo", "on_breach"), flows[0].settings.at("slo", budget)
            assert said is not None, "the default is `alert`"
            assert other is not None
            yield Problem(
                "SLO716",
                f"`on_breach: {said.data}` stops {render_flow_names(flows)}, and `slo.{budget}` runs on meanwhile",
                build_labels((said.span, "stands still"), (other.span, "is used up by that")),
                path=f"{flows[0].path}.slo.on_breach",
                ids=tuple(flow.id for flow in flows),
                help=f"say `on_breach: alert`, or give up `slo.{budget}` for this flow",
            )


RULE = Rule("SLO716", "breach-loses-more", "warning", __doc__, check)
