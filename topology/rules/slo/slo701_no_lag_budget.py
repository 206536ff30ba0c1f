"""SLO701 no-lag-budget: a flow does not say how late its records may be.

Why: nothing can be alerted on, and the rules that compare retention, sync intervals or a chain's promise with the lag
have nothing to compare with. Asked for with `--profile strict`; a remark before that.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.slo.flows_by_declaration import group_flows_by_declaration, render_flow_names


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    for group in group_flows_by_declaration(flow for flow in flows if not _budget(flow.settings.at("slo", "lag"))):
        yield Problem(
            "SLO701",
            f"{render_flow_names(group)} {'has' if len(group) == 1 else 'have'} no lag budget",
            (Label(group[0].declared),),
            path=f"{group[0].path}.slo",
            ids=tuple(flow.id for flow in group),
            help="say `slo: {lag: {p99: 10s, max: 5m}}`, in the flow or in `defaults`",
        )


def _budget(lag: object) -> bool:
    return bool(getattr(lag, "fields", None))


RULE = Rule("SLO701", "no-lag-budget", "warning", __doc__, check, profile="strict")
