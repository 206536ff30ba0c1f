"""SLO708 no-quota: a flow may read and write as fast as it can.

Why: when it catches up it takes all of the brokers' network and disks, and the source's own producers and consumers
wait. A quota makes catching up slower and the rest steady. Asked for with `--profile strict`; a remark before that.

Source: segmentio/topicctl, which throttles migrations at 120 MB/s unless told otherwise
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.slo.flows_by_declaration import group_flows_by_declaration, render_flow_names


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    for group in group_flows_by_declaration(flow for flow in flows if flow.plan.quota is None):
        yield Problem(
            "SLO708",
            f"{render_flow_names(group)} {'has' if len(group) == 1 else 'have'} no quota",
            (Label(group[0].declared),),
            path=f"{group[0].path}.workers.quota",
            ids=tuple(flow.id for flow in group),
            help="say `workers: {quota: 60MiB/s}`: above the peak of the producers, below what the brokers can spare",
        )


RULE = Rule("SLO708", "no-quota", "warning", __doc__, check, profile="strict")
