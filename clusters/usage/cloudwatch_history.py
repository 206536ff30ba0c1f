"""An MSK cluster's history from CloudWatch (namespace AWS/Kafka), and what it cost, from Cost Explorer.

Sources: AWS, "Monitor an MSK Provisioned cluster" (metrics by monitoring level), "GetMetricData" (500 metrics and
100,800 values a request, more by `NextToken`), "CloudWatch concepts" (how long values are kept), "GetCostAndUsage".

Which dimensions the series have follows from the cluster's monitoring level, so the series that are there are asked for
first: by topic and broker where the level has them, else by broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from watershed.clusters.errors import ProtocolError
from watershed.clusters.usage.aws_clients import call_aws
from watershed.clusters.usage.history_collector import HistoryCollector, UnusableInterval
from watershed.topology.usage.history import WHOLE_CLUSTER, CostLine, UsageMetric, UsagePeriod
from watershed.topology.usage.sources_file import CloudWatchSource

_NAMESPACE = "AWS/Kafka"
_CLUSTER, _BROKER, _TOPIC = "Cluster Name", "Broker ID", "Topic"
_RATES: Final[dict[UsageMetric, str]] = {
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "messages_in": "MessagesInPerSec",
}
_MOST_QUERIES, _MOST_VALUES = 500, 100_800
_MOST_PAGES = 1_000
# CloudWatch keeps values of less than 5 minutes for 15 days, of less than an hour for 63 days, others for 455 days.
_KEPT: Final = ((300, 15), (3_600, 63), (1 << 62, 455))
_DAY_S = 86_400
_LISTED_DAYS: Final = 14  # ListMetrics leaves out what had no value for two weeks
_SERVICE = "Amazon Managed Streaming for Apache Kafka"


@dataclass(frozen=True, slots=True)
class _Series:
    name: str
    topic: str
    broker: str


def read_cloudwatch_history(client: Any, source: CloudWatchSource, collector: HistoryCollector, now_s: float) -> None:
    """Fills the collector. client: boto3's of `cloudwatch`. Raises as `call_aws` does, and UnusableInterval."""
    _require_kept(collector, now_s)
    query = _CloudWatchQuery(client, source, collector)
    reporting: defaultdict[int, set[str]] = defaultdict(set)
    for metric, name in _RATES.items():
        listed = query.list_series(name)
        by_topic = [each for each in listed if each.topic]
        by_broker = [each for each in listed if each.broker and not each.topic]
        for series, at_s, value in query.read(by_topic or by_broker, collector.period):
            collector.add_value(metric, series.topic, at_s, value, together=True)
        if metric == "bytes_in":
            _note_level(collector, by_topic, by_broker)
            for series, at_s, _ in query.read(by_broker, collector.period):
                index = collector.period.find_interval(at_s)
                if index is not None:
                    reporting[index].add(series.broker)
    if reporting:
        collector.brokers = max(map(len, reporting.values()))
        collector.partial = frozenset(at for at, seen in reporting.items() if len(seen) < collector.brokers)
    _read_gauges(query, source, collector)


def read_msk_costs(client: Any, source: CloudWatchSource, collector: HistoryCollector) -> None:
    """What was paid for MSK on the days of the period. client: boto3's of `ce`. Raises as `call_aws` does."""
    asked = _build_cost_question(source, collector.period)
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    estimated, answered, token = False, False, ""
    for _ in range(_MOST_PAGES):
        more = {"NextPageToken": token} if token else {}
        answer = call_aws(collector.alias, "Cost Explorer", partial(client.get_cost_and_usage, **asked, **more))
        for day in answer.get("ResultsByTime", ()):
            answered, estimated = True, estimated or bool(day.get("Estimated"))
            for usage, cost in _list_costs(day):
                sums[usage, str(cost.get("Unit", ""))] += float(cost.get("Amount", 0))
        token = answer.get("NextPageToken", "")
        if not token:
            break
    if not answered:
        collector.add_note("Cost Explorer has no costs of MSK for these days: is it enabled, and is the tag activated?")
        return
    collector.costs = tuple(CostLine(usage, amount, unit) for (usage, unit), amount in sorted(sums.items()))
    if estimated:
        collector.add_note("Cost Explorer calls some of these costs estimated: the newest days are not final.")
    if source.cost_tag is None:
        collector.add_note("Costs are of all MSK clusters of the account: say clusters.ALIAS.cloudwatch.costs.tag.")


class _CloudWatchQuery:
    """Series of one cluster and their values."""

    def __init__(self, client: Any, source: CloudWatchSource, collector: HistoryCollector) -> None:
        self.client, self.source, self.collector = client, source, collector

    def list_series(self, name: str) -> list[_Series]:
        """Those with no other dimensions than cluster, broker and topic."""
        asked = {"Namespace": _NAMESPACE, "MetricName": name}
        mine = [{"Name": _CLUSTER, "Value": self.source.cluster}]

        def read() -> list[Mapping[str, str]]:
            pages = self.client.get_paginator("list_metrics").paginate(**asked, Dimensions=mine)
            return [
                {each["Name"]: each["Value"] for each in metric["Dimensions"]}
                for page in pages
                for metric in page["Metrics"]
            ]

        found = call_aws(self.collector.alias, "CloudWatch", read)
        known = {_CLUSTER, _BROKER, _TOPIC}
        series = (_Series(name, each.get(_TOPIC, ""), each.get(_BROKER, "")) for each in found if each.keys() <= known)
        return list(dict.fromkeys(series))

    def read(self, series: Sequence[_Series], period: UsagePeriod) -> Iterator[tuple[_Series, float, float]]:
        """Series, a moment, its mean. What CloudWatch leaves out of an answer is noted."""
        size = max(1, min(_MOST_QUERIES, _MOST_VALUES // max(period.intervals, 1)))
        for start in range(0, len(series), size):
            part = {f"m{index}": each for index, each in enumerate(series[start : start + size])}
            yield from self._read_part(part, period)

    def _read_part(self, part: Mapping[str, _Series], period: UsagePeriod) -> Iterator[tuple[_Series, float, float]]:
        asked: dict[str, Any] = {
            "MetricDataQueries": [self._build_query(name, each, period) for name, each in part.items()],
            "StartTime": datetime.fromtimestamp(period.start_s, UTC),
            "EndTime": datetime.fromtimestamp(period.end_s, UTC),
            "ScanBy": "TimestampAscending",
        }
        states, token = {}, ""
        for _ in range(_MOST_PAGES):
            more = {"NextToken": token} if token else {}
            answer = call_aws(self.collector.alias, "CloudWatch", partial(self.client.get_metric_data, **asked, **more))
            for message in answer.get("Messages", ()):
                self.collector.add_note(f"CloudWatch says: {message.get('Code')}: {str(message.get('Value'))[:300]}")
            for result in answer["MetricDataResults"]:
                states[result["Id"]] = result.get("StatusCode", "Complete")
                for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                    yield part[result["Id"]], at.timestamp(), float(value)
            token = answer.get("NextToken", "")
            if not token:
                break
        else:
            raise ProtocolError(f"CloudWatch gives pages without end for cluster {self.collector.alias}.")
        broken = sum(state != "Complete" for state in states.values())
        if broken:
            self.collector.add_note(f"CloudWatch did not give all values of {broken:,} of {len(part):,} series.")

    def _build_query(self, name: str, series: _Series, period: UsagePeriod) -> dict[str, Any]:
        said = ((_CLUSTER, self.source.cluster), (_BROKER, series.broker), (_TOPIC, series.topic))
        dimensions = [{"Name": key, "Value": value} for key, value in said if value]
        metric = {"Namespace": _NAMESPACE, "MetricName": series.name, "Dimensions": dimensions}
        return {"Id": name, "MetricStat": {"Metric": metric, "Period": period.step_s, "Stat": "Average"}}


def _read_gauges(query: _CloudWatchQuery, source: CloudWatchSource, collector: HistoryCollector) -> None:
    whole = [each for each in query.list_series("GlobalPartitionCount") if not each.broker and not each.topic]
    for _, at_s, value in query.read(whole, collector.gauge_period):
        collector.add_value("partitions", WHOLE_CLUSTER, at_s, value)
    disks = [each for each in query.list_series("KafkaDataLogsDiskUsed") if each.broker and not each.topic]
    newest: dict[str, tuple[float, float]] = {}
    for series, at_s, value in query.read(disks, collector.gauge_period):
        newest[series.broker] = max(newest.get(series.broker, (0.0, 0.0)), (at_s, value))
    if not newest:
        return
    shares = [share / 100 for _, share in newest.values()]
    if source.disk is None:
        collector.add_note(
            f"CloudWatch tells the share of disks that is used, at most {max(shares):.0%} of a broker's, and "
            "no bytes: say "
            f"clusters.{collector.alias}.cloudwatch.disk, the volume of one broker."
        )
    else:
        collector.on_disks = round(sum(shares) * source.disk)


def _note_level(collector: HistoryCollector, by_topic: Sequence[_Series], by_broker: Sequence[_Series]) -> None:
    if collector.period.step_s * collector.period.intervals > _LISTED_DAYS * _DAY_S:
        collector.add_note(
            f"CloudWatch lists only series with values in the last {_LISTED_DAYS} days, and the period is longer: "
            "topics and brokers that were busy only before are not in it."
        )
    if by_topic:
        return
    if by_broker:
        collector.add_note(
            "CloudWatch has figures by broker and not by topic: the cluster's monitoring level is below "
            "PER_TOPIC_PER_BROKER. What flows copy can only be bounded by the whole cluster."
        )
    else:
        collector.add_note(
            f"CloudWatch has no series of a cluster of this name in its region: check "
            f"clusters.{collector.alias}.cloudwatch.cluster and `region`."
        )


def _require_kept(collector: HistoryCollector, now_s: float) -> None:
    step, period = collector.period.step_s, collector.period
    days = next(kept for limit, kept in _KEPT if step < limit)
    if step % 60 or step > _DAY_S:
        message = f"cluster {collector.alias}: CloudWatch has intervals of whole minutes, up to a day, not of {step} s"
        raise UnusableInterval(f"{message}. Take another --interval.", alias=collector.alias)
    if now_s - period.start_s > days * _DAY_S:
        longer = "--interval 5m" if days == 15 else "--interval 1h"
        more = f"{longer}, or " if days < 455 else ""
        raise UnusableInterval(
            f"cluster {collector.alias}: CloudWatch keeps intervals of {step} s for {days} days. Take {more}a "
            "shorter --since.",
            alias=collector.alias,
        )


def _build_cost_question(source: CloudWatchSource, period: UsagePeriod) -> dict[str, Any]:
    first = datetime.fromtimestamp(period.start_s, UTC).date()
    last = datetime.fromtimestamp(period.end_s, UTC).date()
    chosen: dict[str, Any] = {"Dimensions": {"Key": "SERVICE", "Values": [_SERVICE]}}
    if source.cost_tag is not None:
        key, value = source.cost_tag
        chosen = {"And": [chosen, {"Tags": {"Key": key, "Values": [value]}}]}
    return {
        "TimePeriod": {"Start": first.isoformat(), "End": max(last, first + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "GroupBy": [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
        "Filter": chosen,
    }


def _list_costs(day: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    groups = day.get("Groups") or ()
    if groups:
        return [("/".join(each["Keys"]), each["Metrics"]["UnblendedCost"]) for each in groups]
    total = day.get("Total", {}).get("UnblendedCost")
    return [("all", total)] if total else []
