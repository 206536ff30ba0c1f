"""The use of clusters as a page, or as a section of another report: blocks for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.planning.page_blocks import BlockPage, Bullets, Cell, Heading, PageBlock, Sentence, Table
from watershed.topology.quantities import render_duration
from watershed.topology.rounded_amounts import (
    render_counted_noun,
    render_first_names,
    render_number,
    render_rounded_duration,
    render_rounded_rate,
    render_rounded_size,
    render_utc_minute,
)
from watershed.topology.usage.estimate import ClusterUsage, FlowUsage, TopicUsage, UsageEstimate
from watershed.topology.usage.history import ClusterHistory, UsageMetric, UsagePeriod
from watershed.topology.usage.lag_forecast import PAUSE_S
from watershed.topology.usage.series_summary import SeriesSummary
from watershed.topology.usage.sizing import (
    BYTE_CPU_S,
    PARTITIONS_A_WORKER,
    RECORD_CPU_S,
    WORKER_CPU,
)
from watershed.topology.usage.target_page import build_target_section, render_money

_LISTED = 15  # topics of a cluster; the JSON document has all
_LITTLE = 0.95  # a share of the period below which the reader is warned
_WORDS: dict[UsageMetric, str] = {"bytes_in": "Bytes in", "bytes_out": "Bytes out", "messages_in": "Records in"}


def build_usage_page(estimate: UsageEstimate) -> BlockPage:
    """A page of its own."""
    title = Heading(1, f"{estimate.topology or 'Topology'}: use and cost")
    return (title, *build_usage_section(estimate))


def build_usage_section(estimate: UsageEstimate) -> Iterator[PageBlock]:
    """The same without a title, for a report that has more."""
    yield from _tell_clusters(estimate)
    yield from _tell_flows(estimate)
    for target in estimate.targets:
        yield from build_target_section(target, estimate)
    for each in estimate.clusters:
        if not each.history.failure:
            yield from _tell_cluster(each)
    yield from _tell_method(estimate)


def _tell_clusters(estimate: UsageEstimate) -> Iterator[PageBlock]:
    yield Heading(2, "How much the clusters are used")
    head = ("Cluster", "Period", "Covered", "Bytes in: mean", "p95", "max", "Bytes out: max", "Stored", "Partitions")
    rows = [_build_cluster_row(each, estimate) for each in estimate.clusters]
    if rows:
        yield Table(head, tuple(rows))
    for each in estimate.clusters:
        if each.history.failure:
            yield Sentence(f"{each.history.alias} has no history here: {each.history.failure}", "warning")
        else:
            yield from _tell_coverage(each)
    for alias in estimate.without_source:
        yield Sentence(f"{alias} has no source of history in the file: nothing is known of its use.", "warning")


def _build_cluster_row(each: ClusterUsage, estimate: UsageEstimate) -> tuple[Cell, ...]:
    period = each.history.period
    name = Cell(each.history.alias, note=each.history.source)
    if each.history.failure:
        return (name, Cell("no history"), *[Cell("unknown", number=True)] * 7)
    written, read = each.totals.get("bytes_in"), each.totals.get("bytes_out")
    largest = max((_get_peak(other.totals.get("bytes_in")) for other in estimate.clusters), default=0.0)
    return (
        name,
        Cell(_render_period(period), note=f"intervals of {render_duration(period.step_s * 1000)}"),
        Cell("unknown" if written is None else f"{_floor_share(written.covered)}", number=True),
        Cell(render_rounded_rate(written.mean if written else None), number=True),
        Cell(render_rounded_rate(written.p95 if written else None), number=True),
        _draw_peak(written, largest),
        Cell(render_rounded_rate(read.maximum if read else None), number=True),
        Cell(render_rounded_size(each.stored), number=True),
        Cell(render_number(each.partitions), number=True),
    )


def _tell_coverage(each: ClusterUsage) -> Iterator[PageBlock]:
    """What is missing of the period is said where the numbers are."""
    history, written = each.history, each.totals.get("bytes_in")
    if written is None:
        yield Sentence(f"{history.alias}: the source has no bytes in for the period.", "warning")
        return
    if written.covered < 1:
        gaps = ", ".join(f"{_render_second(gap.start_s)} to {_render_second(gap.end_s)}" for gap in written.gaps)
        more = written.gap_count - len(written.gaps)
        yield Sentence(
            f"{history.alias}: {_floor_share(written.covered)} of the period has values; all numbers are of that part. "
            f"Without: {gaps}" + (f" and {render_counted_noun(more, 'shorter gap')}." if more else "."),
            "warning" if written.covered < _LITTLE else "note",
        )
    if history.partial:
        yield Sentence(
            f"{history.alias}: {render_counted_noun(history.partial, 'interval')} left out, in which not all of "
            f"{history.brokers} brokers reported all the time: their sums would be too small.",
            "warning",
        )
    if history.resets:
        yield Sentence(
            f"{history.alias}: counters began again {render_counted_noun(history.resets, 'time')} (brokers restarted). "
            "What was counted between the last reading and a restart is missing.",
            "note",
        )


def _tell_flows(estimate: UsageEstimate) -> Iterator[PageBlock]:
    yield Heading(2, "What the flows would copy")
    if estimate.flows:
        yield Table(
            (
                "Flow",
                "Topics",
                "Mean",
                "p95",
                "max",
                "To copy",
                "Copies at",
                "First copy",
                "Then catch-up",
                "Quietest hour",
            ),
            tuple(_build_flow_row(each, estimate) for each in estimate.flows),
        )
    for each in estimate.flows:
        yield from _tell_doubts(each)
    if any(each.lag is not None for each in estimate.flows):
        yield Heading(3, "How they would have kept up")
        head = (
            "Flow",
            "Copies at",
            "Largest lag",
            "Behind for at most",
            "Time behind",
            f"After {PAUSE_S // 60} min of pause at the peak",
        )
        yield Table(head, tuple(_build_lag_row(each) for each in estimate.flows if each.lag is not None))
    for flow in estimate.unmeasured:
        yield Sentence(f"{flow}: its source cluster has no history, so nothing is known of it.", "warning")


def _build_flow_row(each: FlowUsage, estimate: UsageEstimate) -> tuple[Cell, ...]:
    written, copy = each.rates.get("bytes_in"), each.copy
    largest = max((_get_peak(other.rates.get("bytes_in")) for other in estimate.flows), default=0.0)
    catch_up = copy.catch_up_s if copy is not None else None
    sized = copy is not None and each.sized
    hour = each.quietest_hour
    return (
        Cell(each.flow.id, note="" if each.flow.state == "running" else each.flow.state),
        Cell(render_number(len(each.topics)) if each.by_topic else "unknown", number=True),
        Cell(render_rounded_rate(written.mean if written else None), number=True),
        Cell(render_rounded_rate(written.p95 if written else None), number=True),
        _draw_peak(written, largest),
        Cell(render_rounded_size(copy.bytes if copy is not None and sized else None), number=True),
        Cell(render_rounded_rate(copy.copy_rate if copy else None), number=True, note=copy.limited_by if copy else ""),
        Cell(render_rounded_duration(copy.copy_s if copy is not None and sized else None), number=True),
        Cell(("never" if catch_up is None else render_rounded_duration(catch_up)) if sized else "unknown", number=True),
        Cell("unknown" if hour is None else f"{hour:02}:00 UTC", number=True),
    )


def _build_lag_row(each: FlowUsage) -> tuple[Cell, ...]:
    assert each.lag is not None
    assert each.copy is not None
    lag = each.lag
    longest = "still behind at the end" if lag.longest_s is None else render_rounded_duration(lag.longest_s)
    return (
        Cell(each.flow.id),
        Cell(render_rounded_rate(each.copy.copy_rate), number=True),
        Cell(render_rounded_size(lag.largest), number=True),
        Cell("never behind" if not lag.largest else longest, number=True),
        Cell(_floor_share(lag.behind), number=True),
        Cell(
            "never level" if lag.after_pause_s is None else f"level {render_rounded_duration(lag.after_pause_s)} later",
            number=True,
        ),
    )


def _tell_doubts(each: FlowUsage) -> Iterator[PageBlock]:
    if not each.by_topic:
        yield Sentence(
            f"{each.flow.id}: the source has no figures by topic, so these are those of the whole cluster "
            f"{each.flow.source}: the flow's own are no larger.",
            "warning",
        )
    elif each.copy is None:
        yield Sentence(f"{each.flow.id}: no bytes in are known of the topics that it selects.", "warning")
    if each.unseen:
        yield Sentence(
            f"{each.flow.id}: the history has no {render_first_names(each.unseen)}. Their sizes are the "
            "inventory's; what "
            "is written to them is not in the numbers.",
            "warning",
        )
    if each.copy is not None and each.copy.unsized:
        yield Sentence(
            f"{each.flow.id}: the size of {each.copy.unsized:,} of {render_counted_noun(each.copy.topics, 'topic')} is "
            "not known, so the first copy takes longer than shown. Give an --inventory with sizes.",
            "warning",
        )
    lacking = max((summary.lacking for summary in each.rates.values()), default=0)
    if lacking:
        yield Sentence(
            f"{each.flow.id}: in {render_counted_noun(lacking, 'interval')} some of its topics have no value "
            "(a topic that "
            "nobody uses has none, and neither has one that was not measured); sums there are of the others.",
            "note",
        )


def _tell_cluster(each: ClusterUsage) -> Iterator[PageBlock]:
    history = each.history
    yield Heading(2, f"Cluster {history.alias}")
    yield Sentence(f"From {history.source}, {_render_period(history.period)}.", "note")
    rows = tuple(_build_rate_row(metric, summary) for metric, summary in each.totals.items())
    if rows:
        yield Table(("Whole cluster", "Mean", "p95", "max", "Busiest interval", "Covered"), rows)
    yield Bullets(tuple(_list_facts(each)))
    if history.notes:
        yield Sentence("What the source could not tell:")
        yield Bullets(history.notes)
    if each.topics:
        yield Heading(3, "Busiest topics")
        largest = max((_get_peak(topic.rates.get("bytes_in")) for topic in each.topics), default=0.0)
        head = ("Topic", "Partitions", "Stored", "Mean", "p95", "max", "Covered")
        yield Table(head, tuple(_build_topic_row(topic, largest) for topic in each.topics[:_LISTED]))
        if len(each.topics) > _LISTED:
            yield Sentence(f"and {len(each.topics) - _LISTED:,} more; the JSON document has all.", "note")
    yield from _tell_costs(history)


def _list_facts(each: ClusterUsage) -> Iterator[str]:
    history = each.history
    logs, disks = render_rounded_size(each.stored), render_rounded_size(history.on_disks)
    yield f"Stored: {logs} in the leaders' logs, {disks} on all disks."
    if each.kept_s is not None:
        kept = render_rounded_duration(each.kept_s)
        yield f"Retention: a byte is kept for {kept} on average (stored / mean of bytes in)."
    if each.growth is not None:
        sign = "grew" if each.growth >= 0 else "shrank"
        yield f"Stored {sign} by {render_rounded_size(abs(each.growth) * 86_400)} a day."
    if each.sized_by_inventory:
        yield f"Sizes of {render_counted_noun(each.sized_by_inventory, 'topic')} are the inventory's."
    yield f"Brokers that reported: {render_number(history.brokers)}. Counters that began again: {history.resets:,}."


def _build_rate_row(metric: UsageMetric, summary: SeriesSummary) -> tuple[Cell, ...]:
    say = _render_records if metric == "messages_in" else render_rounded_rate
    return (
        Cell(_WORDS[metric]),
        Cell(say(summary.mean), number=True),
        Cell(say(summary.p95), number=True),
        Cell(say(summary.maximum), number=True),
        Cell("unknown" if summary.peak_s is None else _render_second(summary.peak_s), number=True),
        Cell(_floor_share(summary.covered), number=True),
    )


def _build_topic_row(topic: TopicUsage, largest: float) -> tuple[Cell, ...]:
    written = topic.rates.get("bytes_in")
    return (
        Cell(topic.name),
        Cell(render_number(topic.partitions), number=True),
        Cell(render_rounded_size(topic.stored), number=True),
        Cell(render_rounded_rate(written.mean if written else None), number=True),
        Cell(render_rounded_rate(written.p95 if written else None), number=True),
        _draw_peak(written, largest),
        Cell("no values" if written is None else _floor_share(written.covered), number=True),
    )


def _tell_costs(history: ClusterHistory) -> Iterator[PageBlock]:
    if history.costs is None:
        return
    yield Heading(3, "What was paid")
    if not history.costs:
        yield Sentence("Nothing, says the provider's account.")
        return
    rows = sorted(history.costs, key=lambda cost: (-cost.amount, cost.usage))
    yield Table(
        ("Use", "Paid in the period"),
        tuple((Cell(cost.usage), Cell(render_money(cost.amount, cost.currency), number=True)) for cost in rows),
    )


def _tell_method(estimate: UsageEstimate) -> Iterator[PageBlock]:
    yield Heading(2, "How these numbers of use are made")
    steps = sorted({each.history.period.step_s for each in estimate.clusters})
    intervals = ", ".join(render_duration(step * 1000) for step in steps) or "an interval"
    yield Bullets(
        (
            f"A value is the mean of an interval ({intervals}). Mean, p95 and max are of such means, so a "
            "burst within an "
            "interval is not seen: the true peak is higher. A shorter --interval shows more.",
            "Covered: the share of the period's intervals with a value. Intervals without one are left out, "
            "never filled.",
            "Stored: the leaders' logs, as the source saw them last. To copy: those of the flow's topics.",
            "First copy: to copy / copies at. Then catch-up: to copy / (copies at - mean) - first copy.",
            "Largest lag: the history run through a copy of that rate, interval by interval; an interval "
            "without a value "
            "changes nothing.",
            "Brokers: needed / (what a broker takes x (1 - headroom)), rounded up, the largest limit, and no "
            "fewer than "
            "replicas. 4,000 replicas a broker where the file says nothing (Confluent, 2018).",
            f"Workers: {RECORD_CPU_S * 1e6:.2f} µs of a core for a record and {BYTE_CPU_S * 1e9:.2f} ns for a "
            "byte, the "
            f"dearest that were measured (docs/benchmarks.md), {WORKER_CPU:.0%} of a core for each worker, and "
            f"{PARTITIONS_A_WORKER:,} partitions each (docs/scale.md); 1, 2, 4, 8 or 16 of them.",
            "Money: GiB x price, by the prices of the file alone. Discounts, tiers and taxes are not in it.",
        )
    )


def _draw_peak(summary: SeriesSummary | None, largest: float) -> Cell:
    peak = _get_peak(summary)
    text = render_rounded_rate(None if summary is None else summary.maximum)
    return Cell(text, share=peak / largest if largest else 0.0, number=True)


def _get_peak(summary: SeriesSummary | None) -> float:
    return (summary.maximum or 0.0) if summary is not None else 0.0


def _floor_share(share: float) -> str:
    """Never rounded up to 100 %."""
    return f"{int(share * 1000) / 10:g} %"


def _render_records(count: float | None) -> str:
    return "unknown" if count is None else f"{count:,.0f}/s"


def _render_second(at_s: int) -> str:
    return render_utc_minute(at_s * 1000)


def _render_period(period: UsagePeriod) -> str:
    return f"{_render_second(period.start_s)} to {_render_second(period.end_s)}"
