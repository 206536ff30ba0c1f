"""How much a flow copies at its peak: what the file expects, or what a scan saw producers write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topology.finding import Span
from topology.model import Flow
from topology.quantities import rate_text
from topology.rule import Context, Option
from topology.rules.mention import plural

HEADROOM = Option("headroom", "share", 0.3, "The share of a cluster's ingress and egress that flows must leave free.")
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes a second of one flow. declared is where `expected.peak_ingress` says it, None when a scan saw it: then it
    is a lower bound, as topics whose rate is not known are not in it."""

    flow: Flow
    rate: int
    declared: Span | None


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """A cluster's limit and what of it flows may use."""

    limit: int
    usable: int
    headroom: float
    span: Span

    def __str__(self) -> str:
        return f"{rate_text(self.usable)} ({rate_text(self.limit)} less {self.headroom:.0%} headroom)"


def peak(context: Context, flow: Flow) -> Peak | None:
    """None where nobody knows."""
    said = flow.settings.at("expected", "peak_ingress")
    if said is not None:
        return Peak(flow, said.data, said.span)
    names = context.facts.names(flow.source, flow.plan.topics) if context.inventory is not None else ()
    seen = (context.facts.seen(flow.source, name) for name in names)
    rates = [topic.rate_bytes for topic in seen if topic is not None and topic.rate_bytes is not None]
    return Peak(flow, sum(rates), None) if rates else None


def peaks(context: Context, flows: Iterable[Flow]) -> list[Peak]:
    """Of the running flows whose peak is known."""
    found = (peak(context, flow) for flow in flows if flow.plan.state == "running")
    return [each for each in found if each is not None]


def ceiling(context: Context, alias: str, name: str) -> _Ceiling | None:
    """`limits.ingress` or `limits.egress` of a cluster with its headroom; None where it declares none."""
    assert context.topology is not None, "asked without a topology"
    limits = context.topology.root.at("clusters", alias, "limits")
    limit = limits.at(name) if limits is not None else None
    if limits is None or limit is None:
        return None
    headroom = limits.get("headroom", default=context.option(HEADROOM))
    return _Ceiling(limit.data, int(limit.data * (1 - headroom)), headroom, limit.span)


def added(found: list[Peak]) -> tuple[str, ...]:
    """The sum, written out: the largest first."""
    largest = sorted(found, key=lambda each: (-each.rate, each.flow.id))
    parts = [f"{each.flow.id} {rate_text(each.rate)}{'' if each.declared else ' (seen)'}" for each in largest[:SHOWN]]
    more = largest[SHOWN:]
    if more:
        parts.append(f"{plural(len(more), 'more flow')} {rate_text(sum(each.rate for each in more))}")
    return (f"{' + '.join(parts)} = {rate_text(sum(each.rate for each in found))}",)
