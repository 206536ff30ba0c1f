"""SLO707 catch-up-impossible: a flow may copy no more than producers write at the peak.

Why: after an outage of an hour the flow is an hour behind for ever, and at the next peak it falls behind further, until
the source deletes what was not copied. The quota must be above the peak; how far above decides how fast the lag closes
(see TPC406 for the retention that this needs).

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.quantities import render_rate
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.slo.flows_by_declaration import render_flow_names
from watershed.topology.rules.slo.peak_traffic import PeakTraffic, estimate_peak


def check(context: RuleContext) -> Iterator[Problem]:
    groups: dict[tuple[FileSpan, int], list[PeakTraffic]] = {}
    for flow in context.topology.flows if context.topology is not None else ():
        found = estimate_peak(context, flow) if flow.plan.quota is not None else None
        if found is not None and flow.plan.quota is not None and flow.plan.quota <= found.rate:
            groups.setdefault((flow.settings.where("workers", "quota"), found.rate), []).append(found)
    for (span, rate), peaks in sorted(groups.items()):
        first = peaks[0]
        seen = " (as a scan saw it)" if first.declared is None else ""
        yield Problem(
            "SLO707",
            f"{render_flow_names(each.flow for each in peaks)} may copy "
            f"{render_rate(first.flow.plan.quota or 0)}, but producers "
            f"write {render_rate(rate)}{seen}: a lag never closes",
            build_labels((span, "the most that is copied"), (first.declared, "what is written")),
            path=f"{first.flow.path}.workers.quota",
            ids=tuple(each.flow.id for each in peaks),
            notes=("time to close a lag = outage × ingress / (quota − ingress)",),
            help=(
                f"raise the quota well above {render_rate(rate)}; half as much again closes the lag in twice the outage"
            ),
            confidence="certain" if first.declared is not None else "likely",
        )


RULE = Rule("SLO707", "catch-up-impossible", "error", __doc__, check)
