"""SLO705 hub-fan-out: the flows out of a cluster read more at their peaks than it can give.

Why: each flow reads everything again, so ten spokes cost ten times the topic; the hub's own consumers fall behind.
Counted as in SLO704, against `limits.egress` less the headroom.

Source: own
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
    leaving: dict[str, list[Flow]] = {}
    for flow in topology.flows if topology is not None else ():
        leaving.setdefault(flow.source, []).append(flow)
    for alias, flows in sorted(leaving.items()):
        limit = find_traffic_ceiling(context, alias, "egress")
        found = estimate_peaks(context, flows) if limit is not None else []
        total = sum(each.rate for each in found)
        if limit is None or total <= limit.usable:
            continue
        yield Problem(
            "SLO705",
            f"{render_plural(len(found), 'flow')} {'reads' if len(found) == 1 else 'read'} up to "
            f"{render_rate(total)} from {alias}, which can give {limit}",
            build_labels(
                (limit.span, "the cluster's limit"),
                *((each.declared, "at the peak") for each in found[:MAX_SHOWN_PEAKS]),
                (found[0].flow.declared, "a flow out of it"),
            ),
            path=f"clusters.{alias}.limits.egress",
            ids=(alias, *(each.flow.id for each in found)),
            notes=render_peak_sum(found),
            help="copy once and pass it on (a chain), copy less, or make the cluster larger and say so in `limits`",
        )


RULE = Rule("SLO705", "hub-fan-out", "warning", __doc__, check, options=(HEADROOM_OPTION,))
