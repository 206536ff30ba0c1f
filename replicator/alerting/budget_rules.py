"""Rules for the budgets of the file (`slo`): what is recorded, and when somebody hears of it.

Source of the windows and factors: multiwindow, multi-burn-rate alerts, The Site Reliability Workbook, chapter 5
(https://sre.google/workbook/alerting-on-slos/), with a budget of 28 days in place of 30: each has four weekends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from watershed.clusters.latency_buckets import list_doubling_ends_s
from watershed.replicator.alerting.promql import (
    escape_annotation,
    match_label,
    quote_label,
    render_promql_number,
    render_promql_seconds,
)
from watershed.replicator.alerting.rule_group import AlertRule, AlertSeverity, RecordingRule, RuleGroup
from watershed.topology.flow_budgets import LONGEST_MEASURED_LATENCY_MS, OUTAGE_WARNING_SHARE, read_flow_budgets
from watershed.topology.metric_catalogue import (
    CLUSTER_UP,
    FLOW_LAG_SECONDS,
    FLOW_STATE,
    PARTITIONS,
    PARTITIONS_SILENT,
    STOPPED_BY_BUDGET,
)
from watershed.topology.metric_catalogue import REPLICATION_LATENCY_SECONDS as LATENCY
from watershed.topology.model import Flow, Topology
from watershed.topology.quantities import render_duration
from watershed.topology.rules.slo.paths import find_worst_paths

BUDGET_DAYS: Final = 28
ALLOWED_SLOW_SHARE: Final = 0.01  # what a 99th percentile leaves
SLOW_RATIO: Final = "watershed:slow_records:ratio_rate"  # the window follows
BUDGET_LEFT: Final = "watershed:latency_budget_left:ratio"
_SHORT_WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h")
_LONG_WINDOWS: Final = ("1d", "3d", f"{BUDGET_DAYS}d")
_HOLD: Final = "30s"


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """Fires while both windows burn `share` of the whole budget as fast as the long one would use it up.

    long, short: windows of PromQL. hours: of the long one.
    """

    long: str
    short: str
    hours: int
    share: float

    @property
    def slow_ratio(self) -> float:
        """The share of slow records over which the budget burns too fast."""
        return self.share * BUDGET_DAYS * 24 / self.hours * ALLOWED_SLOW_SHARE


FAST_BURNS: Final = (BurnWindow("1h", "5m", 1, 0.02), BurnWindow("6h", "30m", 6, 0.05))
SLOW_BURNS: Final = (BurnWindow("1d", "2h", 24, 0.1), BurnWindow("3d", "6h", 72, 0.1))


@dataclass(frozen=True, slots=True)
class AlertPlace:
    """What all alerts of a file say alike. topology: the file's name. file: the file, as a shell reads it. runbooks:
    where docs/runbooks.md is published."""

    topology: str
    file: str
    runbooks: str


def build_budget_groups(topology: Topology, place: AlertPlace) -> Iterator[RuleGroup]:
    """A group for each window length, then the alerts of all flows that declare a budget."""
    measured = {flow.id: limit for flow in topology.flows if (limit := _find_measured_limit(flow)) is not None}
    for name, windows, interval in (("latency", _SHORT_WINDOWS, ""), ("latency-days", _LONG_WINDOWS, "2m")):
        rules = [record_slow_ratio(each, limit, window) for each, limit in measured.items() for window in windows]
        if interval:
            rules += [_record_budget_left(each) for each in measured]
        yield RuleGroup(f"watershed-{place.topology}-{name}", tuple(rules), interval)
    yield RuleGroup(f"watershed-{place.topology}-budgets", tuple(_list_budget_alerts(topology, place)))


def _find_measured_limit(flow: Flow) -> int | None:
    limit = read_flow_budgets(flow).lag_p99
    return limit if limit is not None and 0 < limit <= LONGEST_MEASURED_LATENCY_MS else None


def record_slow_ratio(flow: str, limit_ms: int, window: str) -> RecordingRule:
    """The share of the records of the window that took longer than the limit; nothing while no record is copied.

    Between two ends of buckets the records are taken to be spread evenly, as `histogram_quantile` takes them.
    """
    ends = [end_s * 1000 for end_s in list_doubling_ends_s()]
    above = bisect_left(ends, limit_ms)
    below = max(above - 1, 0)
    share = 1.0 if above == 0 else (limit_ms - ends[below]) / (ends[above] - ends[below])
    terms = [
        f"{render_promql_number(weight)} * {_sum_rate(flow, window, render_promql_seconds(ends[bucket]))}"
        for bucket, weight in ((below, 1 - share), (above, share))
        if weight
    ]
    copied = f"sum by (flow) (rate({LATENCY.name}_count{{{match_label('flow', [flow])}}}[{window}]))"
    return RecordingRule(f"{SLOW_RATIO}{window}", f"1 - ({' + '.join(terms)}) / ({copied} > 0)")


def _sum_rate(flow: str, window: str, end: str) -> str:
    matchers = f"{match_label('flow', [flow])},le={quote_label(end)}"
    return f"sum by (flow) (rate({LATENCY.name}_bucket{{{matchers}}}[{window}]))"


def _record_budget_left(flow: str) -> RecordingRule:
    ratio = f"{SLOW_RATIO}{BUDGET_DAYS}d{{{match_label('flow', [flow])}}}"
    return RecordingRule(BUDGET_LEFT, f"1 - {ratio} / {render_promql_number(ALLOWED_SLOW_SHARE)}")


def _list_budget_alerts(topology: Topology, place: AlertPlace) -> Iterator[AlertRule]:
    paths = find_worst_paths(topology, "max")
    for flow in topology.flows:
        limit = _find_measured_limit(flow)
        if limit is not None:
            yield from _list_burn_alerts(flow, limit, place)
        yield from _list_lag_alerts(flow, place)
        yield _build_paused_alert(flow, place)
        end_to_end = read_flow_budgets(flow).end_to_end_max
        if end_to_end is not None:
            path = paths.get(flow.id)
            yield _build_end_to_end_alert(flow, path.flows if path is not None else (flow,), end_to_end, place)


def _list_burn_alerts(flow: Flow, limit: int, place: AlertPlace) -> Iterator[AlertRule]:
    matcher, name, limit_text = match_label("flow", [flow.id]), escape_annotation(flow.id), render_duration(limit)
    kinds: tuple[tuple[str, tuple[BurnWindow, ...], AlertSeverity, str], ...] = (
        ("WatershedLatencyBudgetBurnsFast", FAST_BURNS, "critical", "within days"),
        ("WatershedLatencyBudgetBurnsSlowly", SLOW_BURNS, "warning", "before the 28 days end"),
    )
    for alert, burns, severity, until in kinds:
        expression = " or ".join(
            f"({SLOW_RATIO}{each.short}{{{matcher}}} > {render_promql_number(each.slow_ratio)}"
            f" and {SLOW_RATIO}{each.long}{{{matcher}}} > {render_promql_number(each.slow_ratio)})"
            for each in burns
        )
        yield AlertRule(
            alert, expression, "0s", severity,
            f"Flow {name}: too many records take longer than {limit_text}",
            f"{{{{ $value | humanizePercentage }}}} of the records of flow {name} took longer than {limit_text} "
            f"(`slo.lag.p99`; 1 % may) from the source to the target. Going on like this uses up the budget {until}. "
            f"See where they wait: `topology status {escape_annotation(place.file)}`.",
            "a-budget-is-used-up", place.topology, place.runbooks,
        )  # fmt: skip


def _list_lag_alerts(flow: Flow, place: AlertPlace) -> Iterator[AlertRule]:
    budgets, name, file = read_flow_budgets(flow), escape_annotation(flow.id), escape_annotation(place.file)
    waits = f"The oldest uncopied record of flow {name} has been waiting for {{{{ $value | humanizeDuration }}}}"
    if budgets.lag_max is not None:
        limit = render_duration(budgets.lag_max)
        yield AlertRule(
            "WatershedLagOverMax", f"{_lag_over(flow, budgets.lag_max)} {_only_while_copying(flow, place)}", _HOLD,
            "critical",
            f"Flow {name} is more than {limit} behind",
            f"{waits}; `slo.lag.max` allows {limit}. See which partitions wait: `topology status {file}`.",
            "a-flow-is-behind", place.topology, place.runbooks,
        )  # fmt: skip
    if budgets.rpo:
        limit = render_duration(budgets.rpo)
        yield AlertRule(
            "WatershedFailoverWouldLoseMore", _lag_over(flow, budgets.rpo), _HOLD, "critical",
            f"A failover to {escape_annotation(flow.target)} would now lose more than {limit}",
            f"{waits}; `slo.rpo` allows {limit}. If {escape_annotation(flow.source)} dies now, what waits is lost. "
            f"`topology failover {file} --show-loss` counts it.",
            "a-flow-is-behind", place.topology, place.runbooks,
        )  # fmt: skip
    if budgets.outage_allowance:
        limit, share = render_duration(budgets.outage_allowance), f"{OUTAGE_WARNING_SHARE:.0%}"
        yield AlertRule(
            "WatershedRetentionComesNear", _lag_over(flow, budgets.outage_allowance * OUTAGE_WARNING_SHARE), _HOLD,
            "critical",
            f"Flow {name} has used more than {share} of the time in which nothing is lost",
            f"{waits}; after {limit} (`slo.outage_allowance`) {escape_annotation(flow.source)} deletes records that "
            "are not copied. Repair the flow, or raise the retention of its topics there.",
            "retention-comes-near", place.topology, place.runbooks,
        )  # fmt: skip


def _build_paused_alert(flow: Flow, place: AlertPlace) -> AlertRule:
    """`WatershedLagOverMax` ends when the flow pauses, and this one begins. Both leave a window of a scrape between.

    Every flow has it: one that an earlier file's `pause` has stopped stays so whatever the file says now, and where
    nothing was stopped there is no series. What `fail` stops is halted, and that has an alert of its own.
    """
    name, file = escape_annotation(flow.id), escape_annotation(place.file)
    matchers = f'{match_label("flow", [flow.id])},action="pause"'
    return AlertRule(
        "WatershedPausedByBudget", f"max by (flow) ({STOPPED_BY_BUDGET.name}{{{matchers}}}) == 1", "0s", "critical",
        f"Flow {name} was paused because it exceeded `slo.lag.max`",
        f"Nothing is copied until a person resumes it: `topology status {file}` says which partition was late and "
        f"when, `topology flow resume {name} {file}` lets it go on.",
        "a-budget-stopped-a-flow", place.topology, place.runbooks,
    )  # fmt: skip


def _lag_over(flow: Flow, milliseconds: float) -> str:
    """A flow that nobody serves goes on waiting, and the exporter ages the lag of silent partitions; so this does not
    ask whether it is meant to run."""
    lag = f"max by (flow) ({FLOW_LAG_SECONDS.name}{{{match_label('flow', [flow.id])}}})"
    return f"{lag} > {render_promql_seconds(milliseconds)}"


def _only_while_copying(flow: Flow, place: AlertPlace) -> str:
    """`slo.lag.max` counts while the flow is meant to run, workers report and both clusters answer; another alert says
    when not."""
    matcher = match_label("flow", [flow.id])
    clusters = match_cluster([flow.source, flow.target], place.topology)
    return (
        f'and on (flow) ({FLOW_STATE.name}{{{matcher},state="running"}} == 1)'
        f' unless on (flow) ({PARTITIONS.name}{{{matcher},state="retrying"}} > 0)'
        f" unless on (flow) ({PARTITIONS_SILENT.name}{{{matcher}}} > 0)"
        f" unless on () (max by (cluster) ({CLUSTER_UP.name}{{{clusters}}}) == 0)"
    )


def match_cluster(clusters: list[str], topology: str) -> str:
    """A matcher for what the topology's exporters tell of clusters: another topology may have a cluster in common."""
    return f"{match_label('topology', [topology])},{match_label('cluster', clusters)}"


def _build_end_to_end_alert(flow: Flow, hops: tuple[Flow, ...], limit_ms: int, place: AlertPlace) -> AlertRule:
    """A record may wait on every hop, so what waits longest on each hop is added up; not while nobody reports of one:
    another alert says so."""
    limit, name = render_duration(limit_ms), escape_annotation(flow.id)
    way = " → ".join(map(escape_annotation, (hops[0].source, *(hop.target for hop in hops))))
    reported = match_label("flow", [hop.id for hop in hops])
    waiting = " + ".join(f"max({FLOW_LAG_SECONDS.name}{{{match_label('flow', [hop.id])}}})" for hop in hops)
    return AlertRule(
        "WatershedEndToEndOverMax",
        f'label_replace({waiting}, "flow", {quote_label(flow.id.replace("$", "$$"))}, "", "") '
        f"> {render_promql_seconds(limit_ms)} unless on () (max({PARTITIONS_SILENT.name}{{{reported}}}) > 0)",
        _HOLD, "critical",
        f"Records may be more than {limit} late over {way}",
        f"The oldest uncopied records of all hops of {way} wait {{{{ $value | humanizeDuration }}}} together; "
        f"`slo.end_to_end.max` of flow {name} allows {limit}. `topology status {escape_annotation(place.file)}` shows "
        "which hop waits.",
        "a-flow-is-behind", place.topology, place.runbooks,
    )  # fmt: skip
