"""How long a source must keep its records for a flow: what may go wrong, and the time to catch up afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from watershed.topology.model import Flow
from watershed.topology.quantities import render_duration, render_rate
from watershed.topology.rule import RuleContext
from watershed.topology.topic_facts import FlowTopic

_SECOND, _HOUR = 1_000, 3_600_000


@dataclass(frozen=True, slots=True)
class OutageBudget:
    """ms and bytes a second. catch_up_ms is None where the rates that it follows from are not known."""

    lag_ms: int
    allowance_ms: int
    catch_up_ms: int | None = None
    ingress: int | None = None
    quota: int | None = None

    @property
    def total_ms(self) -> int:
        """Lag, outage and the time to catch up, in ms."""
        return self.lag_ms + self.allowance_ms + (self.catch_up_ms or 0)

    @property
    def text(self) -> str:
        """The total, rounded up to what people would say: 48h 5m are `49h`."""
        steps = ((_HOUR, 2 * _HOUR), (60 * _SECOND, 120 * _SECOND), (_SECOND, 2 * _SECOND))
        step = next((step for step, above in steps if self.total_ms > above), 1)
        rounded = render_duration(-(-self.total_ms // step) * step)
        return min(render_duration(self.total_ms), rounded, key=len)

    def __str__(self) -> str:
        parts = [(self.lag_ms, "lag"), (self.allowance_ms, "outage"), (self.catch_up_ms or 0, "catching up")]
        return " + ".join(f"{render_duration(ms)} {what}" for ms, what in parts if ms)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the time to catch up was found."""
        if self.catch_up_ms is None or self.ingress is None or self.quota is None:
            return ()
        outage, took = render_duration(self.allowance_ms), render_duration(self.catch_up_ms)
        ingress, quota = render_rate(self.ingress), render_rate(self.quota)
        formula = "outage × ingress / (quota − ingress)"
        return (f"catching up: {formula} = {outage} × {ingress} / ({quota} − {ingress}) = {took}",)


def build_outage_budget(context: RuleContext, flow: Flow, topics: Iterable[FlowTopic]) -> OutageBudget | None:
    """None where the flow promises neither a lag nor to survive an outage. Without `slo.lag.max` the p99 counts."""
    slo = flow.settings.at("slo")
    lag = slo.get("lag", "max", default=slo.get("lag", "p99")) if slo is not None else None
    allowance = slo.get("outage_allowance") if slo is not None else None
    if lag is None and allowance is None:
        return None
    ingress, quota = _ingress(context, flow, topics), flow.plan.quota
    if not allowance or ingress is None or quota is None or quota <= ingress:
        return OutageBudget(lag or 0, allowance or 0)
    exact = allowance * ingress / (quota - ingress)
    step = _SECOND if exact < _HOUR else 60 * _SECOND
    return OutageBudget(lag or 0, allowance, int(-(-exact // step) * step), ingress, quota)


def _ingress(context: RuleContext, flow: Flow, topics: Iterable[FlowTopic]) -> int | None:
    """What is expected at the peak, or what producers wrote while the scan looked."""
    said: int | None = flow.settings.get("expected", "peak_ingress")
    if said is not None:
        return said
    seen = (context.facts.seen(flow.source, topic.name) for topic in topics if topic.name is not None)
    rates = [topic.rate_bytes for topic in seen if topic is not None and topic.rate_bytes is not None]
    return sum(rates) if rates else None
