"""A cluster's history from Prometheus, or from what speaks its HTTP API (`query_range`).

Brokers' counters are summed by topic with PromQL's `rate`, which sees a counter that begins again. It does not see a
broker that nobody scrapes: the sum is smaller then, and looks like less traffic. So the brokers that report, and their
samples, are counted in each interval, and intervals with fewer than others are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from watershed.clusters.errors import ProtocolError
from watershed.clusters.usage.history_collector import HistoryCollector
from watershed.clusters.usage.usage_requests import RequestPace, UsageAnswerTooLarge, UsageServer, ask_usage_server
from watershed.topology.bounded_json import parse_json_object
from watershed.topology.usage.history import RATE_METRICS, UsageMetric, UsagePeriod

_PATH = "/api/v1/query_range"
_MOST_POINTS: Final = 10_000  # of a series in one answer; Prometheus refuses more than 11,000
_WINDOW_S: Final = 86_400  # asked for at once: a day of 5,000 topics in intervals of 5 minutes is some 40 MB
_FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}


def read_prometheus_history(
    server: UsageServer,
    collector: HistoryCollector,
    labels: Mapping[str, str],
    metrics: Mapping[str, str],
    pace: RequestPace,
) -> None:
    """Fills the collector. labels: that all series of the cluster have. metrics: names of `bytes_in`, `bytes_out`,
    `messages_in` (counters) and `log_size` (a gauge). Raises as `ask_usage_server` does, and ProtocolError."""
    query = _RangeQuery(server, collector, pace)
    step = collector.period.step_s
    for metric in RATE_METRICS:
        series = _select_series(metrics[metric], labels, 'topic!=""')
        query.collect(metric, f"sum by (topic) (rate({series}[{step}s]))")
        if not collector.has_metric(metric):
            collector.add_note(
                f"No series {series} has two samples within an interval of {step} s. Check `labels` and `metrics` of "
                f"{server.where}, or take an --interval of at least twice the time between two scrapes."
            )
    sizes = _select_series(metrics["log_size"], labels, 'topic!=""')
    query.collect("stored", f"sum by (topic) (max by (topic, partition) ({sizes}))")
    query.collect("partitions", f"count by (topic) (count by (topic, partition) ({sizes}))")
    query.count_brokers(_select_series(metrics["bytes_in"], labels, 'topic=""'))
    on_disks = query.read_totals(f"sum({sizes})", collector.gauge_period)
    if on_disks:
        collector.on_disks = round(on_disks[max(on_disks)])


def find_thin(samples: Mapping[int, float]) -> frozenset[int]:
    """Intervals in which a broker was scraped less often than in others: `rate` then counts only a part of them.
    samples: of the broker that has the fewest, by interval. One less is chance, and so is a quarter."""
    most = max(samples.values(), default=0.0)
    return frozenset(index for index, count in samples.items() if count < most - max(1.0, most // 4))


class _RangeQuery:
    """Queries over the whole period, in windows that fit into an answer."""

    def __init__(self, server: UsageServer, collector: HistoryCollector, pace: RequestPace) -> None:
        self.server, self.collector, self.pace = server, collector, pace

    def collect(self, metric: UsageMetric, query: str) -> None:
        """A value by topic for each interval."""
        for topic, at_s, value in self._points(query, self.collector.get_period(metric)):
            self.collector.add_value(metric, topic, at_s, value)

    def count_brokers(self, series: str) -> None:
        """How many brokers report in each interval, and how often their counters began again."""
        collector, step = self.collector, self.collector.period.step_s
        reporting = self.read_totals(f"count(rate({series}[{step}s]))", collector.period)
        if not reporting:
            if collector.has_metric("bytes_in"):
                collector.add_note(
                    "The source has no counter without the label `topic`, so it cannot be told whether all brokers "
                    "reported at all times: sums may be too small."
                )
            return
        most = int(max(reporting.values()))
        collector.brokers = most
        samples = self.read_totals(f"min(count_over_time({series}[{step}s]))", collector.period)
        fewer = frozenset(index for index, count in reporting.items() if count < most)
        collector.partial = fewer | find_thin(samples)
        period = (
            collector.period
        )  # all of it at once: a counter begins again between two samples, perhaps of two windows
        whole = f"sum(resets({series}[{period.end_s - period.start_s}s]))"
        collector.resets = round(sum(value for _, _, value in self._ask(whole, period.end_s, period.end_s, step)))

    def read_totals(self, query: str, period: UsagePeriod) -> dict[int, float]:
        """The value of a query without labels, by the number of the interval."""
        found: dict[int, float] = {}
        for _, at_s, value in self._points(query, period):
            index = period.find_interval(at_s)
            if index is not None and value == value:  # not NaN
                found[index] = value
        return found

    def _points(self, query: str, period: UsagePeriod) -> Iterator[tuple[str, float, float]]:
        """Topic, a moment within the interval, value. An interval's value is what the query gives at its end."""
        window = max(min(_WINDOW_S, _MOST_POINTS * period.step_s) // period.step_s, 1) * period.step_s
        start = period.start_s
        while start < period.end_s:
            end = min(start + window, period.end_s)
            try:
                answer = self._ask(query, start + period.step_s, end, period.step_s)
            except UsageAnswerTooLarge:
                if window == period.step_s:
                    raise
                window = max(window // 2 // period.step_s, 1) * period.step_s
                continue
            for topic, at_s, value in answer:
                yield topic, at_s - period.step_s / 2, value
            start = end

    def _ask(self, query: str, start_s: int, end_s: int, step_s: int) -> list[tuple[str, float, float]]:
        form = urlencode({"query": query, "start": start_s, "end": end_s, "step": step_s}).encode()
        body = ask_usage_server(self.server, "POST", _PATH, form, _FORM, pace=self.pace)
        try:
            answer = parse_json_object(body)
            for warning in answer.get("warnings") or ():
                self.collector.add_note(f"Prometheus warns: {str(warning)[:300]}")
            return list(_read_matrix(answer))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProtocolError(
                f"{self.server.what} answers at {self.server.url}{_PATH}, but with no matrix of Prometheus "
                f"({error!r}). "
                f"Check {self.server.where}.url.",
                alias=self.server.alias,
            ) from None


def _read_matrix(answer: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Prometheus, "HTTP API", range vectors: a time in seconds and a number as text."""
    data = answer["data"]
    if answer["status"] != "success" or data["resultType"] != "matrix":
        raise ValueError("status or resultType is another")
    for series in data["result"]:
        topic = str(series["metric"].get("topic", ""))
        for at_s, value in series["values"]:
            yield topic, float(at_s), float(value)


def _select_series(name: str, labels: Mapping[str, str], *more: str) -> str:
    """A selector of PromQL; its texts are quoted as Go and JSON quote them."""
    said = [f"{label}={json.dumps(value, ensure_ascii=False)}" for label, value in sorted(labels.items())]
    return f"{name}{{{','.join([*said, *more])}}}"
