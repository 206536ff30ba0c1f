"""How much a flow copies at its peak: what the file expects, or what a scan saw producers write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Flow
from watershed.topology.quantities import render_rate
from watershed.topology.rule import RuleContext, RuleOption
from watershed.topology.rules.finding_text import build_labels, render_plural

HEADROOM_OPTION = RuleOption(
    "headroom", "share", 0.3, "The share of a cluster's ingress and egress that flows must leave free."
)
_MAX_SHOWN_PEAKS = 5


@dataclass(frozen=True, slots=True)
class PeakTraffic:
    """Bytes a second of one flow. declared is where `expected.peak_ingress` says it, None when a scan saw it: then it
    is a lower bound, as topics whose rate is not known are not in it."""

    flow: Flow
    rate: int
    declared: FileSpan | None


@dataclass(frozen=True, slots=True)
class _TrafficCeiling:
    """A cluster's limit and what of it flows may use."""

    limit: int
    usable: int
    headroom: float
    span: FileSpan

    def __str__(self) -> str:
        return f"{render_rate(self.usable)} ({render_rate(self.limit)} less {self.headroom:.0%} headroom)"


def estimate_peak(context: RuleContext, flow: Flow) -> PeakTraffic | None:
    """None where nobody knows."""
    said = flow.settings.at("expected", "peak_ingress")
    if said is not None:
        return PeakTraffic(flow, said.data, said.span)
    names = context.facts.names(flow.source, flow.plan.topics) if context.inventory is not None else ()
    seen = (context.facts.seen(flow.source, name) for name in names)
    rates = [topic.rate_bytes for topic in seen if topic is not None and topic.rate_bytes is not None]
    return PeakTraffic(flow, sum(rates), None) if rates else None


def check_hub_traffic(
    context: RuleContext, code: str, limit_name: Literal["ingress", "egress"], does: str, can: str, help_text: str
) -> Iterator[Problem]:
    """One problem for each cluster whose running flows need more at their peaks than `limits` has, less the headroom.

    ingress: the flows into it, egress: the flows out of it. does: what a flow does there, `brings`. can: what the
    cluster can do, `take`.
    """
    hub, way = ("target", "into") if limit_name == "ingress" else ("source", "from")
    by_cluster: dict[str, list[Flow]] = {}
    for flow in context.topology.flows if context.topology is not None else ():
        by_cluster.setdefault(getattr(flow, hub), []).append(flow)
    for alias, flows in sorted(by_cluster.items()):
        ceiling = _find_ceiling(context, alias, limit_name)
        if ceiling is None:
            continue
        peaks = (estimate_peak(context, flow) for flow in flows if flow.plan.state == "running")
        found = [peak for peak in peaks if peak is not None]
        total = sum(each.rate for each in found)
        if total <= ceiling.usable:
            continue
        yield Problem(
            code,
            f"{render_plural(len(found), 'flow')} {does if len(found) == 1 else does.removesuffix('s')} up to "
            f"{render_rate(total)} {way} {alias}, which can {can} {ceiling}",
            build_labels(
                (ceiling.span, "the cluster's limit"),
                *((each.declared, "at the peak") for each in found[:_MAX_SHOWN_PEAKS]),
                (found[0].flow.declared, f"a flow {'into' if hub == 'target' else 'out of'} it"),
            ),
            path=f"clusters.{alias}.limits.{limit_name}",
            ids=(alias, *(each.flow.id for each in found)),
            notes=_render_peak_sum(found),
            help=help_text,
        )


def _find_ceiling(context: RuleContext, alias: str, name: str) -> _TrafficCeiling | None:
    """`limits.ingress` or `limits.egress` of a cluster with its headroom; None where it declares none."""
    assert context.topology is not None, "asked without a topology"
    limits = context.topology.root.at("clusters", alias, "limits")
    limit = limits.at(name) if limits is not None else None
    if limits is None or limit is None:
        return None
    headroom = limits.get("headroom", default=context.option(HEADROOM_OPTION))
    return _TrafficCeiling(limit.data, int(limit.data * (1 - headroom)), headroom, limit.span)


def _render_peak_sum(found: list[PeakTraffic]) -> tuple[str, ...]:
    """The sum, written out: the largest first."""
    largest = sorted(found, key=lambda each: (-each.rate, each.flow.id))
    parts = [
        f"{each.flow.id} {render_rate(each.rate)}{'' if each.declared else ' (seen)'}"
        for each in largest[:_MAX_SHOWN_PEAKS]
    ]
    more = largest[_MAX_SHOWN_PEAKS:]
    if more:
        parts.append(f"{render_plural(len(more), 'more flow')} {render_rate(sum(each.rate for each in more))}")
    return (f"{' + '.join(parts)} = {render_rate(sum(each.rate for each in found))}",)
