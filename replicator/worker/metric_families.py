"""Prometheus families by the catalogue: what a worker's own endpoint and the exporter have in common.

The lag of a flow is always there. Series of single partitions are ten for each partition, so an endpoint with more
than PARTITION_SERIES_LIMIT partitions leaves all of them out (decision 0129): series that come and go would be worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from watershed.clusters.flow_totals import Doublings, FlowTotals
from watershed.clusters.latency_buckets import DOUBLING_COUNT, list_doubling_ends_s
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.sync_reports import SyncReport
from watershed.topology import metric_catalogue as catalogue
from watershed.topology.metric_catalogue import MetricDefinition

PARTITION_SERIES_LIMIT: Final = 1_000
_Value = Callable[[PartitionStatus], float | None]


def build_samples(definition: MetricDefinition, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """The family of a gauge or counter. samples: values of its labels, and the value."""
    kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    family = kind(definition.name, definition.meaning, labels=definition.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def build_partition_families(reports: Sequence[PartitionStatus], most: int = PARTITION_SERIES_LIMIT) -> list[Metric]:
    """What is told of each partition; nothing where there are more than `most`. What is not known is left out."""
    if len(reports) > most:
        return []
    return [
        build_samples(definition, ((_label(each), found) for each in reports if (found := value(each)) is not None))
        for definition, value in _OF_PARTITIONS
    ]


def build_flow_families(
    reports: Sequence[PartitionStatus], beside: Iterable[SyncReport], totals: Mapping[str, FlowTotals]
) -> Iterator[Metric]:
    """What is told of each flow: lag, states, what travels beside records, copied records and latencies."""
    yield build_samples(catalogue.FLOW_LAG_RECORDS, _fold(reports, lambda each: each.lag_records, sum))
    yield build_samples(catalogue.FLOW_LAG_BYTES, _fold(reports, lambda each: each.lag_bytes, sum))
    yield build_samples(catalogue.FLOW_LAG_SECONDS, _fold(reports, lambda each: _seconds(each.lag_ms), max))
    states = Counter((each.flow, each.state) for each in reports)
    yield build_samples(catalogue.PARTITIONS, sorted(states.items()))
    counted = Counter((each.flow, each.kind, each.state) for each in beside)
    yield build_samples(catalogue.BESIDE, sorted(counted.items()))
    rows = sorted(totals.items())
    yield build_samples(catalogue.COPIED_RECORDS, (((flow,), each.records) for flow, each in rows))
    through = ((flow, each.through, each.through_s) for flow, each in rows)
    yield _build_histogram(catalogue.LATENCY_SECONDS, through)
    yield _build_histogram(catalogue.REPLICATION_LATENCY_SECONDS, ((flow, e.ages, e.age_s) for flow, e in rows))


def _build_histogram(definition: MetricDefinition, rows: Iterable[tuple[str, Doublings, float]]) -> Metric:
    family = HistogramMetricFamily(definition.name, definition.meaning, labels=definition.labels)
    for flow, counts, seconds in rows:
        below = list(accumulate(counts.get(each, 0) for each in range(DOUBLING_COUNT)))
        buckets = [(f"{end:g}", float(count)) for end, count in zip(list_doubling_ends_s(), below, strict=False)]
        family.add_metric((flow,), [*buckets, ("+Inf", float(below[-1]))], seconds)
    return family


def _fold(
    reports: Iterable[PartitionStatus], value: _Value, fold: Callable[[list[float]], float]
) -> list[tuple[tuple[str, ...], float]]:
    found: dict[str, list[float]] = {}
    for report in reports:
        if (known := value(report)) is not None:
            found.setdefault(report.flow, []).append(known)
    return [((flow,), fold(values)) for flow, values in sorted(found.items())]


def _label(report: PartitionStatus) -> tuple[str, str, str, str]:
    return report.flow, report.topic, report.target_topic, str(report.partition)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _left(aligning: Mapping[str, float | None] | None) -> float | None:
    return None if aligning is None else (aligning["of"] or 0) - (aligning["done"] or 0)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


_OF_PARTITIONS: Final[tuple[tuple[MetricDefinition, _Value], ...]] = (
    (catalogue.LAG_RECORDS, lambda each: each.lag_records),
    (catalogue.LAG_BYTES, lambda each: each.lag_bytes),
    (catalogue.LAG_SECONDS, lambda each: _seconds(each.lag_ms)),
    (catalogue.EVENT_AGE_SECONDS, lambda each: _seconds(each.event_age_ms)),
    (catalogue.OPEN_RECORDS, lambda each: each.open_records),
    (catalogue.FILLING_OFFSETS, lambda each: _left(each.aligning)),
    (catalogue.SOURCE_POSITION, lambda each: _known(each.source_position)),
    (catalogue.TARGET_END, lambda each: _known(each.target_end)),
    (catalogue.COPIED_BYTES, lambda each: each.copied_bytes),
    (catalogue.SAVED_BYTES, lambda each: each.saved_bytes),
)
