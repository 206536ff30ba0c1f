"""History of an MSK cluster from CloudWatch, and its cost from Cost Explorer: moto's server on loopback."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

from watershed.clusters.usage.history_reading import HistoryRequest, read_history
from watershed.clusters.usage.usage_requests import RequestPace
from watershed.topology.secret_ref import SecretRef
from watershed.topology.usage.history import WHOLE_CLUSTER, ClusterHistory
from watershed.topology.usage.sources_file import CloudWatchSource

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600
KEY = "WATERSHED_SECRET_AWS"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def build_source(endpoint: str, cluster: str, **more: Any) -> CloudWatchSource:
    return CloudWatchSource(
        cluster, "eu-central-1", credentials=SecretRef("env", KEY), endpoint=endpoint, cost_endpoint=endpoint, **more
    )


def put(endpoint: str, cluster: str, *values: tuple[str, dict[str, str], int, float]) -> None:
    """Metric, further dimensions, interval, value."""
    client: Any = boto3.client(
        "cloudwatch", region_name="eu-central-1", endpoint_url=endpoint, aws_access_key_id="a",
        aws_secret_access_key="b", config=Config(proxies={}),
    )  # fmt: skip
    data = [
        {
            "MetricName": name,
            "Dimensions": [{"Name": key, "Value": value} for key, value in {"Cluster Name": cluster, **more}.items()],
            "Timestamp": datetime.fromtimestamp(NOW - 3600 + interval * 300 + 10, UTC),
            "Value": value,
        }
        for name, more, interval, value in values
    ]
    client.put_metric_data(Namespace="AWS/Kafka", MetricData=data)


def read(source: CloudWatchSource, since: int = 3600, interval: int = 300) -> ClusterHistory:
    pace = RequestPace(wall=lambda: float(NOW))
    return read_history("cloud", source, HistoryRequest(since, interval, environ={KEY: "AKIA:secret"}, pace=pace))


def test_topics_are_summed_over_brokers_and_a_broker_that_is_missing_is_seen(endpoint: str) -> None:
    values: list[tuple[str, dict[str, str], int, float]] = []
    for broker in ("1", "2"):
        for interval in range(12):
            if (broker, interval) == ("2", 5):
                continue
            values.append(("BytesInPerSec", {"Broker ID": broker}, interval, 40.0))
            values.append(("BytesInPerSec", {"Broker ID": broker, "Topic": "orders"}, interval, 30.0))
        values.append(("KafkaDataLogsDiskUsed", {"Broker ID": broker}, 11, 25.0))
        values.append(("BytesInPerSec", {"Broker ID": broker, "Consumer Group": "x"}, 1, 7.0))
    values.append(("GlobalPartitionCount", {}, 11, 8.0))
    put(endpoint, "topics", *values)
    found = read(build_source(endpoint, "topics", disk=1000))
    assert found.failure == ""
    assert found.list_topics() == ("orders",)
    series = found.series["bytes_in", "orders"].values
    assert [index for index, value in enumerate(series) if math.isnan(value)] == [5]
    assert series[0] == 60.0
    assert (found.brokers, found.partial, found.on_disks) == (2, 1, 500)
    assert found.series["partitions", WHOLE_CLUSTER].values[-1] == 8.0
    assert any("no messages in" in note for note in found.notes)
    assert found.costs is None


def test_a_lower_monitoring_level_has_the_whole_cluster_only(endpoint: str) -> None:
    put(
        endpoint,
        "whole",
        ("BytesInPerSec", {"Broker ID": "1"}, 0, 40.0),
        ("KafkaDataLogsDiskUsed", {"Broker ID": "1"}, 11, 73.0),
    )
    found = read(build_source(endpoint, "whole"))
    assert found.list_topics() == ()
    assert found.series["bytes_in", WHOLE_CLUSTER].values[0] == 40.0
    assert any("PER_TOPIC_PER_BROKER" in note for note in found.notes)
    assert any("at most 73%" in note and "cloudwatch.disk" in note for note in found.notes)
    assert found.on_disks is None


def test_a_cluster_that_is_not_there_is_no_cluster_without_traffic(endpoint: str) -> None:
    found = read(build_source(endpoint, "nobody"))
    assert not found.series
    assert any("no series of a cluster of this name" in note for note in found.notes)


def test_values_that_cloudwatch_no_longer_keeps_are_not_asked_for(endpoint: str) -> None:
    source = build_source(endpoint, "whole")
    assert "keeps intervals of 60 s for 15 days. Take --interval 5m" in read(source, 20 * 86_400, 60).failure
    assert "for 63 days. Take --interval 1h" in read(source, 70 * 86_400, 300).failure
    assert read(source, 70 * 86_400, 3600).failure == ""
    assert "whole minutes" in read(source, 3600, 90).failure


def test_a_period_longer_than_cloudwatch_lists_is_said(endpoint: str) -> None:
    source = build_source(endpoint, "whole")
    said = "lists only series with values in the last 14 days"
    assert any(said in note for note in read(source, 30 * 86_400).notes)
    assert not any(said in note for note in read(source, 14 * 86_400).notes)


def test_a_profile_that_is_not_there_ends_one_source_only(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    failure = read(build_source(endpoint, "whole")).failure
    assert "CloudWatch cannot be asked for cluster cloud" in failure
    assert "nobody" in failure


def test_what_was_paid(endpoint: str) -> None:
    day = datetime.fromtimestamp(NOW, UTC).date().isoformat()
    cost = {"UnblendedCost": {"Amount": "12.5", "Unit": "USD"}}
    groups = [{"Keys": ["EUC1-Kafka.m5.large"], "Metrics": cost}]
    results = [{"ResultsByTime": [{"TimePeriod": {"Start": day, "End": day}, "Groups": groups, "Estimated": True}]}]
    request = urllib.request.Request(
        f"{endpoint}/moto-api/static/ce/cost-and-usage-results", json.dumps({"results": results}).encode(),
        {"content-type": "application/json"}, method="POST",
    )  # fmt: skip
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10):
        pass
    source = build_source(endpoint, "whole", costs=True)
    found = read(source)
    assert found.costs is not None
    assert [(each.usage, each.amount, each.currency) for each in found.costs] == [("EUC1-Kafka.m5.large", 12.5, "USD")]
    assert any("estimated" in note for note in found.notes)
    assert any("all MSK clusters of the account" in note for note in found.notes)
    nothing = read(replace(source, cost_tag=("cluster", "orders")))
    assert nothing.costs is None
    assert any("no costs of MSK" in note for note in nothing.notes)


def test_this_machines_identity_is_used_only_where_that_is_allowed(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATERSHED_ALLOW_IDENTITIES", "")
    source = replace(build_source(endpoint, "whole"), credentials=None)
    assert "WATERSHED_ALLOW_IDENTITIES=aws" in read(source).failure
    monkeypatch.setenv("WATERSHED_ALLOW_IDENTITIES", "aws")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    assert read(source).failure == ""


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("AccessDenied", 403, "CloudWatch refuses who we are"),
        ("Throttling", 400, "CloudWatch is asked too often"),
        ("InternalFailure", 500, "CloudWatch does not answer"),
        ("InvalidParameterValue", 400, "does not answer the question"),
    ],
)
def test_what_aws_refuses_is_said(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, code: str, status: int, says: str
) -> None:
    from botocore.exceptions import ClientError

    from watershed.clusters.usage import history_reading

    class Refusing:
        def get_paginator(self, name: str) -> Any:
            answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(answer, name)  # type: ignore[arg-type]

    monkeypatch.setattr(history_reading, "build_aws_client", lambda *args: Refusing())
    found = read(build_source(endpoint, "whole"))
    assert says in found.failure
    assert code in found.failure


def test_without_boto3_the_remedy_is_named(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "boto3", None)
    assert "install watershed[aws]" in read(build_source(endpoint, "whole")).failure
