"""Every protocol and mechanism on a real broker: the data plane's requests, administration, a scan."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.clusters.sites import send
from tests.clusters.ways import Way
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.inventory_scan import scan_cluster
from watershed.clusters.record_batch import build_simple_batch
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import FetchPartition
from watershed.lab.secured_cluster import PASSWORD, SECRET, SECURED_SASL_MECHANISMS, SecuredCluster

pytestmark = pytest.mark.kafka

WAYS = [("TLS", None), ("MUTUAL", None)]
WAYS += [(listener, mechanism) for listener in ("OPENSASL", "TLSSASL") for mechanism in SECURED_SASL_MECHANISMS]
RECORDS = [b"x" * 100, b"", b"y" * 300_000]  # the last larger than any TLS record


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(filter(None, way)))
def way(request: pytest.FixtureRequest, secured_cluster: SecuredCluster, tmp_path: Path) -> Way:
    return Way(secured_cluster, tmp_path, *request.param)


def test_raw_and_administrative(way: Way, topic_name: str) -> None:
    settings = way.settings()
    with Admin(settings) as admin:
        topic = admin.create_topic(topic_name, 1, 1, {})
        with closing(open_connection(settings)) as wire:
            now = int(time.time() * 1000)  # retention would delete older records at once
            [found] = wire.metadata((topic_name,)).topics
            assert found.topic_id == topic.topic_id
            answers = [send(wire, topic, build_simple_batch([record], timestamp=now)) for record in RECORDS]
            assert [(answer.error, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2)]
            fetched = bytearray()
            while len(fetched) < sum(map(len, RECORDS)):
                position = 0 if not fetched else 2
                [part] = wire.fetch((FetchPartition(topic.topic_id, 0, position, 0, 4 << 20),))
                fetched += part.records
            assert all(record in fetched for record in RECORDS)
    assert PASSWORD not in repr(settings)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-512", "OAUTHBEARER"])
def test_control_records(
    secured_cluster: SecuredCluster, tmp_path: Path, mechanism: str | None, topic_name: str
) -> None:
    settings = Way(secured_cluster, tmp_path, "TLSSASL" if mechanism else "MUTUAL", mechanism).settings()
    with Admin(settings) as admin:
        admin.create_topic(topic_name, 1, 1, {})
    with ControlWriter(settings) as writer:
        assert writer.put(topic_name, "key", {"value": 1}) == 0
    assert [record.value for record in read_control_log(settings, topic_name)] == [{"value": 1}]


@pytest.mark.parametrize("listener", ["MUTUAL", "TLSSASL"])
def test_a_scan(secured_cluster: SecuredCluster, tmp_path: Path, listener: str, topic_name: str) -> None:
    settings = Way(secured_cluster, tmp_path, listener, "SCRAM-SHA-512" if listener == "TLSSASL" else None).settings()
    with Admin(settings) as admin:
        admin.create_topic(topic_name, 3, 1, {})
    host, _, port = settings.bootstrap[0].rpartition(":")
    with Connection(settings, (host, int(port))) as inquiry:
        assert {key.topic for key in admin_reads.read_log_sizes(inquiry)} >= {topic_name}
    found = scan_cluster(settings, sample_s=0)
    assert found.topics[topic_name].partitions == 3
    assert found.topics[topic_name].size_bytes == 0, "log sizes are asked over raw connections"
    assert not [each for each in found.not_seen if "raw" in each or "protocol" in each.lower()]
