"""What the histories mean for a topology: the use of each cluster, what each flow would copy and how it would keep up,
how large target and fleet must be, and what it costs at the user's prices."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watershed.topology.inventory import Inventory, InventoryCluster
from watershed.topology.model import Topology
from watershed.topology.plan import PlanFlow
from watershed.topology.planning.copy_estimate import CopyEstimate, choose_copy_rate
from watershed.topology.rounded_amounts import GIB_BYTES
from watershed.topology.usage.history import (
    RATE_METRICS,
    WHOLE_CLUSTER,
    ClusterHistory,
    UsageMetric,
    UsagePeriod,
    sum_values,
)
from watershed.topology.usage.lag_forecast import LagForecast, forecast_lag
from watershed.topology.usage.series_summary import SeriesSummary, find_quietest_hour, summarise_series
from watershed.topology.usage.sizing import (
    DEFAULT_REPLICATION,
    ClusterNeed,
    ClusterSizing,
    FleetSizing,
    size_cluster,
    size_fleet,
)
from watershed.topology.usage.sources_file import UsagePrices, UsageSources

_DAY_S = 86_400
MONTH_S: Final = 30 * _DAY_S


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """rates: by metric, those that the source has. stored: bytes, partitions: a number, as the source saw them last;
    else as the inventory has them; None: not known."""

    name: str
    rates: Mapping[UsageMetric, SeriesSummary]
    stored: float | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """totals: the sums over all topics, or the source's own for the whole cluster. stored: bytes of the leaders' logs.
    kept_s: for how long a record is kept, on average: stored / mean of bytes in. topics: the busiest first. growth:
    bytes a second by which `stored` grew; None where less than a day is known of it. sized_by_inventory: sizes of that
    many topics are the inventory's."""

    history: ClusterHistory
    totals: Mapping[UsageMetric, SeriesSummary]
    stored: float | None
    partitions: int | None
    kept_s: float | None
    growth: float | None
    topics: tuple[TopicUsage, ...]
    sized_by_inventory: int


@dataclass(frozen=True, slots=True)
class FlowUsage:
    """by_topic: the figures are those of the flow's topics; else of the whole source cluster, an upper bound. unseen:
    topics of the inventory that the flow selects and the history does not have; the inventory's sizes of them count.
    copy: with the mean as what is written; None: no bytes in are known. sized: the size of a topic is known.
    quietest_hour: UTC."""

    flow: PlanFlow
    by_topic: bool
    topics: tuple[TopicUsage, ...]
    unseen: tuple[str, ...]
    rates: Mapping[UsageMetric, SeriesSummary]
    copy: CopyEstimate | None
    sized: bool
    partitions: int | None
    lag: LagForecast | None
    quietest_hour: int | None
    period: UsagePeriod


@dataclass(frozen=True, slots=True)
class UsageMoney:
    """In the currency of the prices; None: no price, or nothing known to multiply with it. copy: the egress of the
    first copy; egress, storage, brokers: of 30 days."""

    copy: float | None
    egress: float | None
    storage: float | None
    brokers: float | None


@dataclass(frozen=True, slots=True)
class TargetUsage:
    """What the running flows into a cluster bring. flows: those with bytes in; unknown: those without. exact: peaks
    are of the sums over time; else sums of the flows' own peaks, because their histories are of different times."""

    alias: str
    flows: tuple[str, ...]
    unknown: tuple[str, ...]
    exact: bool
    need: ClusterNeed
    sizing: ClusterSizing
    fleet: FleetSizing
    money: UsageMoney


@dataclass(frozen=True, slots=True)
class UsageEstimate:
    """without_source: clusters of the topology that the file of sources does not have. unmeasured: flows whose source
    cluster has no history."""

    topology: str
    sources: UsageSources
    clusters: tuple[ClusterUsage, ...]
    without_source: tuple[str, ...]
    flows: tuple[FlowUsage, ...]
    unmeasured: tuple[str, ...]
    targets: tuple[TargetUsage, ...]

    @property
    def prices(self) -> UsagePrices:
        """The user's."""
        return self.sources.prices


def estimate_usage(
    topology: Topology,
    sources: UsageSources,
    histories: Mapping[str, ClusterHistory],
    inventory: Inventory | None = None,
) -> UsageEstimate:
    """Clusters and targets by alias, flows in the topology's order."""
    scanned = inventory.clusters if inventory is not None else {}
    used = {alias: _summarise(histories[alias], scanned.get(alias)) for alias in sorted(histories)}
    plans = [flow.plan for flow in topology.flows if flow.external is None]
    measured = {
        plan.id: _estimate_flow(plan, used[plan.source], scanned.get(plan.source), sources.link)
        for plan in plans
        if plan.source in used and not used[plan.source].history.failure
    }
    targets = sorted({plan.target for plan in plans if plan.state == "running"})
    return UsageEstimate(
        topology=topology.name,
        sources=sources,
        clusters=tuple(used.values()),
        without_source=tuple(alias for alias in sorted(topology.clusters) if alias not in histories),
        flows=tuple(measured.values()),
        unmeasured=tuple(plan.id for plan in plans if plan.id not in measured),
        targets=tuple(_estimate_target(alias, plans, measured, histories, sources) for alias in targets),
    )


def _summarise(history: ClusterHistory, scanned: InventoryCluster | None) -> ClusterUsage:
    topics = tuple(_summarise_topic(history, name, scanned) for name in history.list_topics())
    totals = {metric: summary for metric in RATE_METRICS if (summary := _total(history, metric, None)) is not None}
    whole = history.series.get(("partitions", WHOLE_CLUSTER))
    partitions = _add_known([topic.partitions for topic in topics])
    if whole is not None:
        last = summarise_series(whole.values, whole.period).last
        partitions = round(last) if last is not None else partitions
    stored = _add_known([topic.stored for topic in topics])
    written = totals["bytes_in"].mean if "bytes_in" in totals else None
    by_inventory = sum(topic.stored is not None and ("stored", topic.name) not in history.series for topic in topics)
    return ClusterUsage(
        history=history,
        totals=totals,
        stored=stored,
        partitions=_round(partitions),
        kept_s=stored / written if stored is not None and written else None,
        growth=_compute_growth(history),
        topics=tuple(sorted(topics, key=_order_by_traffic)),
        sized_by_inventory=by_inventory,
    )


def _summarise_topic(history: ClusterHistory, name: str, scanned: InventoryCluster | None) -> TopicUsage:
    rates = {
        metric: summarise_series(found.values, found.period)
        for metric in RATE_METRICS
        if (found := history.series.get((metric, name))) is not None
    }
    seen = scanned.topics.get(name) if scanned is not None else None
    stored = _read_last(history, "stored", name)
    partitions = _read_last(history, "partitions", name)
    if seen is not None:
        stored = seen.size_bytes if stored is None else stored
        partitions = seen.partitions if partitions is None else partitions
    return TopicUsage(name, rates, stored, _round(partitions))


def _read_last(history: ClusterHistory, metric: UsageMetric, topic: str) -> float | None:
    found = history.series.get((metric, topic))
    return None if found is None else summarise_series(found.values, found.period).last


def _order_by_traffic(topic: TopicUsage) -> tuple[float, str]:
    summary = topic.rates.get("bytes_in")
    return (-(summary.mean or 0.0) if summary is not None else 0.0), topic.name


def _collect(
    history: ClusterHistory, metric: UsageMetric, topics: Sequence[str] | None
) -> tuple[array[float], int] | None:
    """The sum over some topics; over all, or the source's own figure for the whole cluster, where topics is None."""
    whole = topics is None and (metric, WHOLE_CLUSTER) in history.series
    names = {WHOLE_CLUSTER} if whole else None if topics is None else set(topics)
    chosen = [
        each.values
        for (name, topic), each in history.series.items()
        if name == metric and (names is None or topic in names)
    ]
    return sum_values(chosen, history.period) if chosen else None


def _total(history: ClusterHistory, metric: UsageMetric, topics: Sequence[str] | None) -> SeriesSummary | None:
    found = _collect(history, metric, topics)
    return None if found is None else summarise_series(found[0], history.period, found[1])


def _compute_growth(history: ClusterHistory) -> float | None:
    """Between the first and the last size of each topic; None where that is less than a day for all of them."""
    change, longest = 0.0, 0
    for (metric, _), series in history.series.items():
        if metric == "stored":
            known = [(index, value) for index, value in enumerate(series.values) if value == value]
            if len(known) > 1:
                change += known[-1][1] - known[0][1]
                longest = max(longest, (known[-1][0] - known[0][0]) * series.period.step_s)
    return change / longest if longest >= _DAY_S else None


def _estimate_flow(
    flow: PlanFlow, source: ClusterUsage, scanned: InventoryCluster | None, link: int | None
) -> FlowUsage:
    history = source.history
    by_topic = bool(source.topics)
    topics = tuple(topic for topic in source.topics if flow.selects(topic.name))
    names = [topic.name for topic in topics] if by_topic else None
    found = {metric: values for metric in RATE_METRICS if (values := _collect(history, metric, names)) is not None}
    rates = {metric: summarise_series(values, history.period, lacking) for metric, (values, lacking) in found.items()}
    known = {topic.name for topic in topics}
    seen = scanned.topics if scanned is not None else {}
    unseen = tuple(name for name in sorted(seen) if name not in known and flow.selects(name))
    others = tuple(TopicUsage(name, {}, seen[name].size_bytes, seen[name].partitions) for name in unseen)
    copied = topics + others
    copy = _estimate_first_copy(flow, copied, rates, link)
    partitions = _add_known([topic.partitions for topic in copied])
    written = found["bytes_in"][0] if "bytes_in" in found else None
    return FlowUsage(
        flow=flow,
        by_topic=by_topic,
        topics=topics,
        unseen=unseen,
        rates=rates,
        copy=copy,
        sized=any(topic.stored is not None for topic in copied),
        partitions=source.partitions if partitions is None and not by_topic else _round(partitions),
        lag=None if written is None or copy is None else forecast_lag(written, history.period, copy.copy_rate),
        quietest_hour=None if written is None else find_quietest_hour(written, history.period),
        period=history.period,
    )


def _estimate_first_copy(
    flow: PlanFlow, topics: Sequence[TopicUsage], rates: Mapping[UsageMetric, SeriesSummary], link: int | None
) -> CopyEstimate | None:
    written = rates["bytes_in"].mean if "bytes_in" in rates else None
    if written is None:
        return None
    copy_rate, limited_by = choose_copy_rate(flow.quota, link, "the file's link")
    return CopyEstimate(
        topics=len(topics),
        partitions=sum(topic.partitions or 0 for topic in topics),
        bytes=round(sum(topic.stored or 0 for topic in topics)),
        unsized=sum(topic.stored is None for topic in topics),
        written=round(written),
        unrated=sum("bytes_in" not in topic.rates for topic in topics),
        copy_rate=copy_rate,
        limited_by=limited_by,
    )


def _estimate_target(
    alias: str,
    plans: Sequence[PlanFlow],
    measured: Mapping[str, FlowUsage],
    histories: Mapping[str, ClusterHistory],
    sources: UsageSources,
) -> TargetUsage:
    into = [plan for plan in plans if plan.target == alias and plan.state == "running"]
    flows = [each for plan in into if (each := measured.get(plan.id)) is not None and "bytes_in" in each.rates]
    known = {each.flow.id for each in flows}
    exact = len({each.period for each in flows}) < 2
    replication = max([plan.replication_factor or DEFAULT_REPLICATION for plan in into])
    peaks = {metric: _compute_peak(flows, histories, metric, exact=exact) for metric in RATE_METRICS}
    partitions = _add_known([each.partitions for each in flows])
    stored = _add_known([each.copy.bytes for each in flows if each.copy is not None and each.sized])
    written, read = peaks["bytes_in"], peaks["bytes_out"]
    need = ClusterNeed(
        bytes_in=None if written is None else written * replication,
        bytes_out=None if written is None or read is None else written * (replication - 1) + read,
        disk=None if stored is None else stored * replication,
        replicas=None if partitions is None else round(partitions) * replication,
        replication=replication,
    )
    sizing = size_cluster(need, sources.broker)
    return TargetUsage(
        alias=alias,
        flows=tuple(each.flow.id for each in flows),
        unknown=tuple(plan.id for plan in into if plan.id not in known),
        exact=exact,
        need=need,
        sizing=sizing,
        fleet=size_fleet(written, peaks["messages_in"], _round(partitions)),
        money=_estimate_money(flows, stored, need, sizing, sources.prices),
    )


def _compute_peak(
    flows: Sequence[FlowUsage], histories: Mapping[str, ClusterHistory], metric: UsageMetric, *, exact: bool
) -> float | None:
    """Of all flows together. None where one of them lacks the metric: a sum of the others would be too small."""
    if not flows or any(metric not in each.rates for each in flows):
        return None
    if not exact:
        return _add_known([each.rates[metric].maximum for each in flows if metric in each.rates])
    chosen = []
    for each in flows:
        names = [topic.name for topic in each.topics] if each.by_topic else None
        found = _collect(histories[each.flow.source], metric, names)
        if found is not None:
            chosen.append(found[0])
    return summarise_series(sum_values(chosen, flows[0].period)[0], flows[0].period).maximum if chosen else None


def _estimate_money(
    flows: Sequence[FlowUsage], stored: float | None, need: ClusterNeed, sizing: ClusterSizing, prices: UsagePrices
) -> UsageMoney:
    written = _add_known([each.rates["bytes_in"].mean for each in flows if "bytes_in" in each.rates])
    return UsageMoney(
        copy=_multiply(stored, prices.egress_per_gib, 1 / GIB_BYTES),
        egress=_multiply(written, prices.egress_per_gib, MONTH_S / GIB_BYTES),
        storage=_multiply(need.disk, prices.storage_per_gib_month, 1 / GIB_BYTES),
        brokers=_multiply(sizing.brokers, prices.broker_month, 1.0),
    )


def _multiply(amount: float | None, price: float | None, unit: float) -> float | None:
    return None if amount is None or price is None else amount * price * unit


def _round(number: float | None) -> int | None:
    return None if number is None else round(number)


def _add_known(numbers: Sequence[float | None]) -> float | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if known else None
