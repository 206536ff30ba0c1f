"""History from Prometheus: gaps, brokers that were not scraped, counters that began again, busy and wrong servers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from tests.clusters.usage.metrics_servers import Answer, Asked, serve_metrics
from watershed.clusters.usage.history_reading import HistoryRequest, read_history
from watershed.clusters.usage.prometheus_history import find_thin
from watershed.clusters.usage.usage_requests import RequestPace
from watershed.topology.secret_ref import SecretRef
from watershed.topology.usage.history import ClusterHistory
from watershed.topology.usage.sources_file import DEFAULT_METRIC_NAMES, HttpLogin, PrometheusSource

NOW = 1_800_000_000.0  # a multiple of an hour
STEP = 300
NOBODY = HttpLogin()
TOKEN = "WATERSHED_SECRET_PROMETHEUS"


def matrix(*series: tuple[dict[str, str], list[tuple[float, float]]], **more: object) -> Answer:
    result = [
        {"metric": labels, "values": [[at, str(value)] for at, value in values]} for labels, values in series if values
    ]
    data = {"status": "success", "data": {"resultType": "matrix", "result": result}, **more}
    return 200, json.dumps(data).encode(), {"content-type": "application/json"}


class Estate:
    """Two brokers and a topic: 100 B/s in each interval; `missing` intervals have no values, in `partial` ones a single
    broker reports, and half of the bytes."""

    def __init__(self, missing: tuple[int, ...] = (), partial: tuple[int, ...] = (), resets: int = 0) -> None:
        self.missing, self.partial, self.resets = missing, partial, resets
        self.thin: tuple[int, ...] = ()

    def __call__(self, asked: Asked) -> Answer:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        query, start, end, step = form["query"], int(form["start"]), int(form["end"]), int(form["step"])
        begin = int(NOW) - 3600
        times = [
            at for at in range(start, end + 1, step) if step > STEP or (at - begin) // STEP - 1 not in self.missing
        ]
        half = [at for at in times if (at - begin) // STEP - 1 in self.partial]
        if query.startswith("count(rate"):
            return matrix(({}, [(at, 1.0 if at in half else 2.0) for at in times]))
        if query.startswith("min(count_over_time"):
            return matrix(({}, [(at, 3.0 if (at - begin) // STEP - 1 in self.thin else 10.0) for at in times]))
        if query.startswith("sum(resets"):
            return matrix(({}, [(times[0], float(self.resets))]))
        if "log_size" in query:
            value = 4.0 if query.startswith("count by") else 5_000.0
            return matrix(({} if query.startswith("sum(kafka") else {"topic": "orders"}, [(at, value) for at in times]))
        return matrix(({"topic": "orders"}, [(at, 50.0 if at in half else 100.0) for at in times]))


def read(url: str, login: HttpLogin = NOBODY, since: int = 3600, **pace: object) -> ClusterHistory:
    source = PrometheusSource(url, {"cluster": 'on"prem'}, DEFAULT_METRIC_NAMES, login)
    waits: list[float] = []
    settings = {"sleep": waits.append, "wall": lambda: NOW, "attempts": 3, **pace}
    request = HistoryRequest(since, STEP, environ={TOKEN: "s3cret"}, pace=RequestPace(**settings))  # type: ignore[arg-type]
    return read_history("onprem", source, request)


def test_rates_sizes_and_partitions_by_topic() -> None:
    with serve_metrics(Estate()) as server:
        found = read(server.url)
    assert found.failure == ""
    assert list(found.series["bytes_in", "orders"].values) == [100.0] * 12
    assert list(found.series["stored", "orders"].values) == [5_000.0] * 12
    assert list(found.series["partitions", "orders"].values) == [4.0] * 12
    assert (found.brokers, found.on_disks, found.partial, found.notes) == (2, 5_000, 0, ())
    assert '{cluster="on\\"prem",topic!=""}' in parse_qs(server.asked[0].body.decode())["query"][0]


def test_gaps_stay_gaps_and_brokers_that_nobody_scraped_are_not_less_traffic() -> None:
    with serve_metrics(Estate(missing=(3, 4), partial=(7,), resets=2)) as server:
        found = read(server.url)
    values = found.series["bytes_in", "orders"].values
    assert [index for index, value in enumerate(values) if math.isnan(value)] == [3, 4, 7]
    assert (found.partial, found.resets) == (1, 2)


def test_an_interval_in_which_a_broker_was_away_for_a_part_is_left_out() -> None:
    estate = Estate()
    estate.thin = (2,)
    with serve_metrics(estate) as server:
        found = read(server.url)
    assert math.isnan(found.series["bytes_in", "orders"].values[2])
    assert found.partial == 1
    assert find_thin({0: 3.0, 1: 2.0, 2: 1.0}) == {2}
    assert find_thin({}) == frozenset()


def test_a_long_period_is_asked_for_in_windows() -> None:
    with serve_metrics(Estate()) as server:
        found = read(server.url, since=3 * 86_400)
    windows = [parse_qs(asked.body.decode()) for asked in server.asked[:3]]
    assert all(int(each["end"][0]) - int(each["start"][0]) < 86_400 for each in windows)
    assert sum(not math.isnan(value) for value in found.series["bytes_in", "orders"].values) == 3 * 288
    assert list(found.series["stored", "orders"].values) == [5_000.0] * 72


def test_no_series_is_said_and_is_not_zero() -> None:
    with serve_metrics(lambda asked: matrix()) as server:
        found = read(server.url)
    assert not found.series
    assert any("two samples within an interval of 300 s" in note for note in found.notes)
    assert any("no bytes in for this cluster" in note for note in found.notes)


def test_warnings_of_a_partial_answer_are_repeated() -> None:
    with serve_metrics(
        lambda asked: matrix(({"topic": "a"}, [(NOW, 1.0)]), warnings=["store gateway is away"])
    ) as server:
        assert "Prometheus warns: store gateway is away" in read(server.url).notes


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    waits: list[float] = []
    estate, turns = Estate(), iter([(429, b"{}", {"retry-after": "7"}), (503, b"{}", {})])
    with serve_metrics(lambda asked: next(turns, None) or estate(asked)) as server:
        found = read(server.url, sleep=waits.append)
    assert found.failure == ""
    assert waits == [7.0, 2.0]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((429, b"{}", {"retry-after": "3600"}), "is asked too often, or busy: HTTP 429. It asks to wait for 3600 s."),
        ((401, b"no", {}), "refuses who we are: HTTP 401"),
        ((422, b'{"status": "error", "error": "bad query"}', {}), "does not answer the question: HTTP 422 (bad query)"),
        ((200, b"<html>", {}), "no matrix of Prometheus"),
        ((302, b"", {"location": "http://127.0.0.1:1/"}), "does not answer the question: HTTP 302"),
    ],
)
def test_what_is_wrong_with_a_server_is_said(answer: Answer, says: str) -> None:
    with serve_metrics(lambda asked: answer) as server:
        found = read(server.url)
    assert says in found.failure
    assert not found.series
    assert len(server.asked) == 1


def test_a_silent_address_is_a_failure_after_bounded_attempts() -> None:
    waits: list[float] = []
    found = read("http://127.0.0.1:9", sleep=waits.append)
    assert "does not answer at http://127.0.0.1:9" in found.failure
    assert waits == [1.0, 2.0]


def test_a_token_travels_only_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    login = HttpLogin(bearer=SecretRef("env", TOKEN))
    with serve_metrics(Estate()) as server:
        assert read(server.url, login).failure == ""
        assert server.asked[0].headers["authorization"] == "Bearer s3cret"
    monkeypatch.delenv("WATERSHED_ALLOW_PLAINTEXT", raising=False)
    refused = read("http://prometheus.example.internal", login).failure
    assert "without TLS" in refused
    assert "s3cret" not in refused
    unset = HttpLogin(bearer=SecretRef("env", "WATERSHED_SECRET_NONE"))
    assert (
        "clusters.onprem.prometheus.bearer: secret {env: WATERSHED_SECRET_NONE} is not set"
        in read("http://127.0.0.1:9", unset).failure
    )


def test_too_much_for_one_answer_is_asked_for_in_smaller_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    from watershed.clusters.usage import prometheus_history

    whole = prometheus_history.ask_usage_server
    monkeypatch.setattr(
        prometheus_history, "ask_usage_server", lambda *args, **more: whole(*args, **more, largest=1_500)
    )
    with serve_metrics(Estate()) as server:
        found = read(server.url, since=6 * 3600)
    assert found.failure == ""
    assert sum(not math.isnan(value) for value in found.series["bytes_in", "orders"].values) == 72
    assert len(server.asked) > 12


def test_more_than_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from watershed.clusters.usage import history_collector

    monkeypatch.setattr(history_collector, "MAX_HISTORY_VALUES", 10)
    with serve_metrics(Estate()) as server:
        found = read(server.url)
    assert "Take a longer --interval" in found.failure
    assert replace(found, failure="").series == {}
