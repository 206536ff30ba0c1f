"""Rates from two readings of JMX exporters' pages."""

from __future__ import annotations

from tests.clusters.usage.metrics_servers import Answer, Asked, serve_metrics
from watershed.clusters.usage.history_reading import HistoryRequest, read_history
from watershed.clusters.usage.usage_requests import RequestPace
from watershed.topology.usage.history import ClusterHistory
from watershed.topology.usage.sources_file import DEFAULT_METRIC_NAMES, ExporterSource, HttpLogin

NAME = "kafka_server_brokertopicmetrics_bytesin_total"


class Broker:
    """A page for each reading, then the last one again."""

    def __init__(self, *pages: str) -> None:
        self.pages = list(pages)

    def __call__(self, asked: Asked) -> Answer:
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        return 200, page.encode(), {"content-type": "text/plain; version=0.0.4"}


def page(**counters: float) -> str:
    lines = [f"# TYPE {NAME} counter", f"{NAME} 77"]
    lines += [f'{NAME}{{topic="{topic}",}} {value}' for topic, value in counters.items()]
    return "\n".join([*lines, 'kafka_log_log_size{partition="0",topic="a",} 500.0', ""])


def read(*brokers: Broker, now: list[float] | None = None) -> ClusterHistory:
    now = now or [0.0]
    with serve_metrics(brokers[0]) as one, serve_metrics(brokers[-1]) as two:
        urls = (one.url + "/metrics", two.url + "/metrics")[: len(brokers)]
        source = ExporterSource(urls, DEFAULT_METRIC_NAMES, HttpLogin())
        pace = RequestPace(sleep=lambda seconds: now.__setitem__(0, now[0] + seconds), wall=lambda: 1_800_000_000.0)
        return read_history("onprem", source, HistoryRequest(3600, 300, 10, pace=pace, clock=lambda: now[0]))


def test_brokers_are_added_and_a_copy_of_a_log_counts_once() -> None:
    found = read(Broker(page(a=100, b=5), page(a=200, b=5)), Broker(page(a=0), page(a=50)))
    assert list(found.series["bytes_in", "a"].values) == [15.0]
    assert list(found.series["bytes_in", "b"].values) == [0.0]
    assert list(found.series["stored", "a"].values) == [500.0]
    assert list(found.series["partitions", "a"].values) == [1.0]
    assert (found.on_disks, found.brokers, found.resets) == (1000, 2, 0)
    assert any("two readings" in note for note in found.notes)


def test_a_page_that_takes_long_is_read_again_before_it_counts() -> None:
    """It has 10 bytes a second. Counters are read at the start of an answer, which takes 3 s at first."""
    now = [0.0]

    class Cold(Broker):
        def __call__(self, asked: Asked) -> Answer:
            self.pages[:1] = [page(a=100 + 10 * now[0])]
            now[0] += self.slow
            self.slow = self.slow and self.then
            return super().__call__(asked)

        slow, then = 3.0, 0.0

    found = read(Cold(""), now=now)
    assert list(found.series["bytes_in", "a"].values) == [10.0]
    assert not any("took up to" in note for note in found.notes)
    always = Cold("")
    always.then = 3.0
    told = read(always, now=now).notes
    assert any("took up to 3.0 s, of 10 s between the readings: rates may be wrong by 30 %" in note for note in told)


def test_a_counter_that_began_again_or_is_new_gives_no_rate() -> None:
    found = read(Broker(page(a=100, gone=1), page(a=30, new=9)))
    assert not any(metric == "bytes_in" for metric, _ in found.series)
    assert found.resets == 1
    assert any("3 topics have no rate" in note for note in found.notes)


def test_values_that_are_no_finite_numbers_do_not_count_and_are_said() -> None:
    odd = 'kafka_log_log_size{partition="1",topic="a",} NaN\nkafka_log_log_size{partition="0",topic="c",} +Inf\n'
    found = read(Broker(page(a=100, b=float("nan")) + odd, page(a=200, b=float("nan")) + odd))
    assert found.failure == ""
    assert (found.on_disks, list(found.series["stored", "a"].values)) == (500, [500.0])
    assert ("stored", "c") not in found.series
    assert any("2 sizes of logs are no finite number" in note for note in found.notes)
    assert any("1 topics have no rate" in note for note in found.notes)


def test_another_kind_of_page_is_said() -> None:
    assert "no page of metrics" in read(Broker("<html>\n<body class='a'>")).failure
