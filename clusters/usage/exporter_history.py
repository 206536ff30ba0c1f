"""A cluster's rates from the pages of its brokers' JMX exporters, read twice: one interval, where there is no history.

Format: Prometheus, "Exposition formats", as prometheus_client parses it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from watershed.clusters.errors import ProtocolError
from watershed.clusters.usage.history_collector import HistoryCollector
from watershed.clusters.usage.usage_requests import RequestPace, UsageServer, ask_usage_server
from watershed.topology.usage.history import RATE_METRICS, UsageMetric

_LARGEST_PAGE = 64 << 20
_AT_ONCE = 8
_SLOW = 0.05  # of the time between two readings: how long one may take without a word


@dataclass(frozen=True, slots=True)
class ExporterPage:
    """What one broker's page says. at_s: the middle of its reading, by a clock that only goes forward; took_s: how long
    that took. counters: by metric and topic. sizes: bytes of a log by topic and partition."""

    at_s: float
    took_s: float
    counters: Mapping[tuple[UsageMetric, str], float] = field(default_factory=dict)
    sizes: Mapping[tuple[str, str], float] = field(default_factory=dict)


def read_exporter_history(
    servers: Sequence[UsageServer],
    collector: HistoryCollector,
    metrics: Mapping[str, str],
    pace: RequestPace,
    clock: Callable[[], float],
) -> None:
    """Reads all pages, waits for the period of the collector, which is one interval, and reads them again. clock:
    seconds that only go forward. Raises as `ask_usage_server` does, and ProtocolError for another kind of page.

    An exporter that was never asked looks for what there is first, which takes it seconds, and nobody knows at which of
    them it read a counter: a slow page is read once more before it counts.
    """
    step = float(collector.period.step_s)

    def read(server: UsageServer) -> ExporterPage:
        began = clock()
        body = ask_usage_server(server, "GET", "", headers={"accept": "text/plain"}, pace=pace, largest=_LARGEST_PAGE)
        ended = clock()
        return parse_exporter_page(server, body, metrics, (began + ended) / 2, ended - began)

    def read_first(server: UsageServer) -> ExporterPage:
        found = read(server)
        return read(server) if found.took_s > _SLOW * step else found

    with ThreadPoolExecutor(min(_AT_ONCE, len(servers))) as pool:
        first = list(pool.map(read_first, servers))
        pace.sleep(step)
        second = list(pool.map(read, servers))
    collector.brokers = len(servers)
    middle = (collector.period.start_s + collector.period.end_s) / 2
    _collect_rates(collector, list(zip(servers, first, second, strict=True)), middle)
    _collect_sizes(collector, second, middle)
    collector.add_note("Rates are of two readings of the exporters' pages: they say nothing of other times.")
    slowest = max(each.took_s for each in (*first, *second))
    if slowest > _SLOW * step:
        collector.add_note(
            f"A page took up to {slowest:.1f} s, of {step:.0f} s between the readings: rates may be wrong by "
            f"{100 * slowest / step:.0f} %. Take a longer --sample."
        )


def parse_exporter_page(
    server: UsageServer, body: bytes, metrics: Mapping[str, str], at_s: float, took_s: float
) -> ExporterPage:
    """metrics: the exporter's names. Raises ProtocolError."""
    from prometheus_client.parser import text_string_to_metric_families

    counted = {metrics[metric]: metric for metric in RATE_METRICS}
    counters: dict[tuple[UsageMetric, str], float] = {}
    sizes: dict[tuple[str, str], float] = {}
    try:
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                topic = sample.labels.get("topic", "")
                metric = counted.get(sample.name)
                if metric is not None and topic:
                    counters[metric, topic] = sample.value
                elif sample.name == metrics["log_size"] and topic:
                    sizes[topic, sample.labels.get("partition", "")] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise ProtocolError(
            f"{server.what} answers at {server.url}, but with no page of metrics ({str(error)[:200]}). Check "
            f"{server.where}.",
            alias=server.alias,
        ) from None
    return ExporterPage(at_s, took_s, counters, sizes)


def _collect_rates(
    collector: HistoryCollector, readings: Iterable[tuple[UsageServer, ExporterPage, ExporterPage]], middle: float
) -> None:
    """A topic's rate is known where no broker's counter of it began again; a counter that is new counts from its first
    reading on, so it is unknown, too. So is one that is no finite number."""
    unknown: set[tuple[UsageMetric, str]] = set()
    rates: defaultdict[tuple[UsageMetric, str], float] = defaultdict(float)
    for server, before, after in readings:
        seconds = after.at_s - before.at_s
        for key, value in after.counters.items():
            earlier = before.counters.get(key)
            if earlier is None or value < earlier or seconds <= 0 or not math.isfinite(value - earlier):
                unknown.add(key)
            else:
                rates[key] += (value - earlier) / seconds
        again = [key for key, value in after.counters.items() if value < before.counters.get(key, 0.0)]
        if again:
            collector.resets += 1
            topics = len({topic for _, topic in again})
            collector.add_note(
                f"Counters of {server.url} began again between the two readings: what was counted in between of "
                f"{topics:,} topics is not known."
            )
        unknown |= before.counters.keys() - after.counters.keys()
    for (metric, topic), rate in rates.items():
        if (metric, topic) not in unknown:
            collector.add_value(metric, topic, middle, rate)
    lost = {topic for _, topic in unknown}
    if lost:
        collector.add_note(
            f"{len(lost):,} topics have no rate: a counter of theirs is not in both readings, is no finite number, or "
            "began again."
        )


def _collect_sizes(collector: HistoryCollector, pages: Iterable[ExporterPage], middle: float) -> None:
    """A partition's log is the longest of its replicas'."""
    largest: dict[tuple[str, str], float] = {}
    on_disks, odd = 0.0, 0
    for page in pages:
        for key, size in page.sizes.items():
            if not math.isfinite(size):
                odd += 1
                continue
            largest[key] = max(size, largest.get(key, 0.0))
            on_disks += size
    for (topic, _), size in largest.items():
        collector.add_value("stored", topic, middle, size, together=True)
        collector.add_value("partitions", topic, middle, 1.0, together=True)
    collector.on_disks = round(on_disks) if largest else None
    if odd:
        collector.add_note(f"{odd:,} sizes of logs are no finite number on the exporters' pages, and do not count.")
