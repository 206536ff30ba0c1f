"""A cluster's history from Confluent Cloud's Metrics API, version 2 (`POST /v2/metrics/cloud/query`).

Source: Confluent, "Confluent Cloud Metrics API": one metric a query, groups in pages by `page_token`, intervals
bounded by the granularity. Counters are sums over an interval, gauges means. The newest three minutes may be
incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from watershed.clusters.errors import ProtocolError, RequestRefused
from watershed.clusters.usage.history_collector import HistoryCollector, UnusableInterval
from watershed.clusters.usage.usage_requests import RequestPace, UsageServer, ask_usage_server
from watershed.topology.bounded_json import parse_json_object
from watershed.topology.copy_bounds import parse_instant
from watershed.topology.usage.history import WHOLE_CLUSTER, UsageMetric, UsagePeriod

_PATH = "/v2/metrics/cloud/query"
_PREFIX = "io.confluent.kafka.server/"
_TOPIC = "metric.topic"
_GROUPS = 1_000  # of a page, the most that the API gives
_MOST_PAGES = 1_000
# Seconds of an interval: its name, and the longest time of one query. From an hour on any is allowed; 30 days are ours.
_GRANULARITIES: Final = {
    60: ("PT1M", 6 * 3_600),
    300: ("PT5M", 86_400),
    900: ("PT15M", 4 * 86_400),
    1_800: ("PT30M", 7 * 86_400),
    3_600: ("PT1H", 30 * 86_400),
    14_400: ("PT4H", 30 * 86_400),
    21_600: ("PT6H", 30 * 86_400),
    43_200: ("PT12H", 30 * 86_400),
    86_400: ("P1D", 30 * 86_400),
}
FRESHNESS_S: Final = 300  # three minutes are promised
_COUNTERS: Final[dict[UsageMetric, str]] = {
    "bytes_in": "received_bytes",
    "bytes_out": "sent_bytes",
    "messages_in": "received_records",
}


def read_confluent_history(server: UsageServer, collector: HistoryCollector, cluster: str, pace: RequestPace) -> None:
    """Fills the collector. Raises as `ask_usage_server` does, ProtocolError, and UnusableInterval."""
    step = collector.period.step_s
    if step not in _GRANULARITIES:
        known = ", ".join(f"{seconds // 60}m" for seconds in _GRANULARITIES)
        raise UnusableInterval(
            f"{server.what} has no intervals of {step} s. Take an --interval of {known}.", alias=collector.alias
        )
    query = _MetricQuery(server, collector, cluster, pace)
    for metric, name in _COUNTERS.items():
        query.collect(metric, name, by_topic=True, divide_by=step)
    query.collect("stored", "retained_bytes", by_topic=True)
    query.collect("partitions", "partition_count", by_topic=False)
    collector.add_note(
        "Confluent gives no point for a topic where it has none: whether nothing was sent then, or nothing "
        "was measured, "
        "cannot be told. Such intervals are gaps here, so means are of the time with traffic."
    )


class _MetricQuery:
    """Queries of one cluster, over the whole period, page by page."""

    def __init__(self, server: UsageServer, collector: HistoryCollector, cluster: str, pace: RequestPace) -> None:
        self.server, self.collector, self.cluster, self.pace = server, collector, cluster, pace

    def collect(self, metric: UsageMetric, name: str, *, by_topic: bool, divide_by: float = 1.0) -> None:
        """A metric that this cluster does not have is said, and nothing more."""
        period = self.collector.get_period(metric)
        try:
            for topic, at_s, value in self._points(name, period, by_topic=by_topic):
                self.collector.add_value(metric, topic, at_s, value / divide_by)
        except RequestRefused as error:
            if error.code != 400:
                raise
            self.collector.add_note(f"{_PREFIX}{name}: {error}")

    def _points(self, name: str, period: UsagePeriod, *, by_topic: bool) -> Iterator[tuple[str, float, float]]:
        granularity, longest = _GRANULARITIES[period.step_s]
        for start in range(period.start_s, period.end_s, longest):
            end = min(start + longest, period.end_s)
            question: dict[str, Any] = {
                "aggregations": [{"metric": f"{_PREFIX}{name}"}],
                "filter": {"field": "resource.kafka.id", "op": "EQ", "value": self.cluster},
                "granularity": granularity,
                "intervals": [f"{_render_second(start)}/{_render_second(end)}"],
            }
            if by_topic:
                question |= {"group_by": [_TOPIC], "limit": _GROUPS, "format": "GROUPED"}
            yield from self._pages(question)

    def _pages(self, question: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
        body, token = json.dumps(question).encode(), ""
        for _ in range(_MOST_PAGES):
            path = _PATH + (f"?page_token={quote(token, safe='')}" if token else "")
            answer = ask_usage_server(
                self.server, "POST", path, body, {"content-type": "application/json"}, pace=self.pace
            )
            try:
                found = parse_json_object(answer)
                yield from _read_points(found)
                token = str(((found.get("meta") or {}).get("pagination") or {}).get("next_page_token") or "")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ProtocolError(
                    f"{self.server.what} answers at {self.server.url}{_PATH}, but not as the Metrics API does "
                    f"({error!r}). "
                    f"Check {self.server.where}.url.",
                    alias=self.server.alias,
                ) from None
            if not token:
                return
        raise ProtocolError(f"{self.server.what} gives pages without end.", alias=self.server.alias)


def _read_points(answer: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Groups with points, or points by themselves. Raises ValueError and others for another form."""
    found = []
    for each in answer["data"]:
        topic = str(each.get(_TOPIC, WHOLE_CLUSTER))
        for point in each.get("points", [each]):
            at_s = parse_instant(str(point["timestamp"]).replace("Z", "+00:00")) / 1000
            found.append((topic, at_s, float(point["value"])))
    return found


def _render_second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
