"""SLO704 hub-fan-in: the flows into a cluster bring more at their peaks than it can take.

Why: after an outage all of them catch up at the same moment, and the hub's own producers are starved. Added up are
`expected.peak_ingress` of the running flows (or the rates that a scan saw), against `limits.ingress` less the headroom:
`limits.headroom`, else the option `headroom`, 30%. Flows whose peak nobody knows are not counted.

Source: confluentinc/kcp sizes by the 95th percentile and 30 % more
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.model import Flow
from topology.quantities import render_rate
from topology.rule import Rule, RuleContext
from topology.rules.finding_text import build_labels, render_plural
from topology.rules.slo.peak_traffic import (
    HEADROOM_OPTION,
    MAX_SHOWN_PEAKS,
    estimate_peaks,
    find_traffic_ceiling,
    render_peak_sum,
)


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    arriving: dict[str, list[Flow]] = {}
    for flow in topology.flows if topology is not None else ():
        arriving.setdefault(flow.target, []).append(flow)
    for alias, flows in sorted(arriving.items()):
        limit = find_traffic_ceiling(context, alias, "ingress")
        found = estimate_peaks(context, flows) if limit is not None else []
        total = sum(each.rate for each in found)
        if limit is None or total <= limit.usable:
            continue
        yield Problem(
            "SLO704",
            f"{render_plural(len(found), 'flow')} {'brings' if len(found) == 1 else 'bring'} up to "
            f"{render_rate(total)} into {alias}, which can take {limit}",
            build_labels(
                (limit.span, "the cluster's limit"),
                *((each.declared, "at the peak") for each in found[:MAX_SHOWN_PEAKS]),
                (found[0].flow.declared, "a flow into it"),
            ),
            path=f"clusters.{alias}.limits.ingress",
            ids=(alias, *(each.flow.id for each in found)),
            notes=render_peak_sum(found),
            help="copy less, spread the flows over several clusters, or make this one larger and say so in `limits`",
        )


RULE = Rule("SLO704", "hub-fan-in", "error", __doc__, check, options=(HEADROOM_OPTION,))
