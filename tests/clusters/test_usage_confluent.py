"""History from Confluent's Metrics API, by answers of the documented shape."""

from __future__ import annotations

import base64
import json
import math
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.clusters.usage.metrics_servers import Answer, Asked, serve_metrics
from watershed.clusters.usage.history_reading import HistoryRequest, read_history
from watershed.clusters.usage.usage_requests import RequestPace
from watershed.topology.secret_ref import SecretRef
from watershed.topology.usage.history import WHOLE_CLUSTER, ClusterHistory
from watershed.topology.usage.sources_file import ConfluentSource

NOW = 1_800_000_000.0
KEY = "WATERSHED_SECRET_CONFLUENT"


def read(url: str, waits: list[float] | None = None, interval: int = 300, since: int = 3600) -> ClusterHistory:
    pace = RequestPace(sleep=([] if waits is None else waits).append, wall=lambda: NOW + 300, attempts=3)
    request = HistoryRequest(since, interval, environ={KEY: "KEY:secret"}, pace=pace)
    return read_history("cloud", ConfluentSource("lkc-1", SecretRef("env", KEY), url), request)


def answer_query(asked: Asked) -> Answer:
    """Two topics on two pages; 3,000 bytes in each interval that it was asked for first."""
    body = json.loads(asked.body)
    metric = body["aggregations"][0]["metric"]
    start = body["intervals"][0].partition("/")[0].replace("Z", ".000Z")
    if metric.endswith("/partition_count"):
        assert "group_by" not in body
        return reply({"data": [{"timestamp": start, "value": 12}]})
    if metric.endswith("/sent_bytes"):
        return 400, b'{"errors": [{"detail": "unknown metric"}]}', {}
    second = "page_token" in asked.path
    data = [{"metric.topic": "b" if second else "a", "points": [{"timestamp": start, "value": 3000}]}]
    return reply({"data": data, "meta": {"pagination": {} if second else {"next_page_token": "t/2="}}})


def reply(value: object) -> Answer:
    return 200, json.dumps(value).encode(), {"content-type": "application/json"}


def test_pages_of_topics_and_what_a_cluster_does_not_have() -> None:
    with serve_metrics(answer_query) as server:
        found = read(server.url)
    assert found.failure == ""
    for topic in ("a", "b"):
        values = found.series["bytes_in", topic].values
        assert values[0] == 10.0  # 3,000 bytes in 300 s
        assert all(math.isnan(value) for value in values[1:])
    assert found.series["stored", "a"].values[0] == 3000.0
    assert found.series["partitions", WHOLE_CLUSTER].values[0] == 12.0
    assert any("sent_bytes" in note and "unknown metric" in note for note in found.notes)
    assert any("cannot be told" in note for note in found.notes)
    login = base64.b64decode(server.asked[0].headers["authorization"].split()[1])
    assert login == b"KEY:secret"
    assert parse_qs(urlsplit(server.asked[1].path).query)["page_token"] == ["t/2="]
    first, second = json.loads(server.asked[0].body), json.loads(server.asked[1].body)
    assert first == second
    assert first["granularity"] == "PT5M"
    assert first["limit"] == 1000


def test_a_query_is_no_longer_than_its_granularity_allows() -> None:
    with serve_metrics(answer_query) as server:
        read(server.url, since=2 * 86_400)
        assert read(server.url, interval=420).failure.startswith(
            "The Metrics API of cluster cloud has no intervals of 420 s"
        )
    received = [json.loads(asked.body) for asked in server.asked]
    days = {tuple(each["intervals"]) for each in received if each["granularity"] == "PT5M"}
    assert len(days) == 2


def test_a_rate_limit_is_waited_for_and_a_wrong_key_is_said() -> None:
    waits: list[float] = []
    turns = iter([(429, b"{}", {"rateLimit-reset": "11"})])
    with serve_metrics(lambda asked: next(turns, None) or answer_query(asked)) as server:
        assert read(server.url, waits).failure == ""
    assert waits == [11.0]
    refusal = b'{"errors": [{"status": "401", "detail": "invalid API key"}]}'
    with serve_metrics(lambda asked: (401, refusal, {})) as server:
        failure = read(server.url).failure
    assert "refuses who we are: HTTP 401 (invalid API key). Check the secret of clusters.cloud.confluent" in failure
    assert "secret:" not in failure


def test_pages_without_end_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from watershed.clusters.usage import confluent_history

    monkeypatch.setattr(confluent_history, "_MOST_PAGES", 3)
    endless = {"data": [], "meta": {"pagination": {"next_page_token": "again"}}}
    with serve_metrics(lambda asked: reply(endless)) as server:
        assert "pages without end" in read(server.url).failure
