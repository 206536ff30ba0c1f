"""The control topics on a real broker: written, read back, compacted view, failures."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.clusters.sites import RealSite
from watershed.clusters import control_topics
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log, read_latest_values
from watershed.clusters.control_topics import (
    FLOWS_TOPIC,
    JOURNAL_TOPIC,
    LEDGER_TOPIC,
    SLOT_COUNT,
    STATUS_TOPIC,
    ControlWriter,
    compute_slot,
)
from watershed.clusters.errors import (
    ClusterError,
    RequestRefused,
    TopicExists,
    TopicMissing,
    Unreachable,
)
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fleet import FleetRecord, read_fleet, write_fleet
from watershed.clusters.flow_records import FlowRecord, read_flows, write_flow
from watershed.clusters.partition_status_records import PartitionStatus, read_partition_statuses, write_partition_status
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

pytestmark = pytest.mark.kafka


@pytest.fixture
def writer(onprem: ConnectionSettings) -> Iterator[ControlWriter]:
    with Admin(onprem) as admin:
        control_topics.ensure_control_topics(admin)
    with ControlWriter(onprem, "test") as made:
        yield made


@pytest.fixture
def topic(onprem: ConnectionSettings, topic_name: str) -> str:
    """A topic like a control topic, of this test alone."""
    with Admin(onprem) as admin:
        return admin.create_topic(topic_name, SLOT_COUNT).name


def test_control_topics(onprem: ConnectionSettings) -> None:
    with Admin(onprem) as one, Admin(onprem) as two:
        racers = [threading.Thread(target=control_topics.ensure_control_topics, args=(admin,)) for admin in (one, two)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        control_topics.ensure_control_topics(one)
        topics = one.topics()
        configs = one.topic_configs([FLOWS_TOPIC, LEDGER_TOPIC, STATUS_TOPIC, JOURNAL_TOPIC])
    shape = {name: (topics[name].partitions, configs[name]["cleanup.policy"]) for name in configs}
    assert shape == {
        FLOWS_TOPIC: (1, "compact"),
        LEDGER_TOPIC: (SLOT_COUNT, "compact"),
        STATUS_TOPIC: (SLOT_COUNT, "compact"),
        JOURNAL_TOPIC: (1, "delete"),
    }
    assert configs[JOURNAL_TOPIC]["retention.ms"] == "-1"


def test_foreign_control_topic_is_refused() -> None:
    cluster = FakeCluster()
    cluster.create_topic(LEDGER_TOPIC, SLOT_COUNT)
    with pytest.raises(TopicExists, match=r"watershed\.ledger exists with cleanup\.policy=delete"):
        control_topics.ensure_control_topics(cluster)
    other = FakeCluster()
    other.create_topic(FLOWS_TOPIC, 3)
    with pytest.raises(TopicExists, match="3 partitions, 1 were asked for"):
        control_topics.ensure_control_topics(other)


def test_put_and_read(writer: ControlWriter, onprem: ConnectionSettings, topic: str) -> None:
    first = writer.put(topic, "a", {"n": 1, "text": "grün"}, 3)
    writer.put(topic, "b", {"n": 2}, 3)
    last = writer.put(topic, "a", {"n": 3}, 3)
    assert (first, last) == (0, 2)
    records = list(read_control_log(onprem, topic, [3]))
    assert [(record.offset, record.key, record.value) for record in records] == [
        (0, "a", {"n": 1, "text": "grün"}),
        (1, "b", {"n": 2}),
        (2, "a", {"n": 3}),
    ]
    assert all(abs(record.timestamp_ms - time.time() * 1000) < 60_000 for record in records)
    assert [record.offset for record in read_control_log(onprem, topic, from_offset={3: 1})] == [1, 2]
    assert [record.offset for record in read_control_log(onprem, topic, from_offset=2)] == [2]
    assert read_latest_values(onprem, topic) == {"a": {"n": 3}, "b": {"n": 2}}
    assert read_latest_values(onprem, topic, prefix="b") == {"b": {"n": 2}}
    assert read_latest_values(onprem, topic, [0, 1]) == {}
    writer.put(topic, "a", None, 3)
    assert read_latest_values(onprem, topic) == {"b": {"n": 2}}


def test_many_without_waiting(writer: ControlWriter, onprem: ConnectionSettings, topic: str) -> None:
    done: list[tuple[ClusterError | None, int]] = []
    for number in range(5000):
        key = f"k{number}"
        writer.put_nowait(topic, key, {"n": number}, number % SLOT_COUNT, on_done=lambda *answer: done.append(answer))
    writer.flush()
    assert len(done) == 5000
    assert all(error is None and offset >= 0 for error, offset in done)
    assert sorted(record.value["n"] for record in read_control_log(onprem, topic) if record.value) == list(range(5000))


def test_reading_ends_where_the_log_ended_at_the_call(
    writer: ControlWriter, onprem: ConnectionSettings, topic: str
) -> None:
    writer.put(topic, "a", {"n": 0}, 0)
    reading = read_control_log(onprem, topic)
    writer.put(topic, "a", {"n": 1}, 0)
    assert [record.value for record in reading] == [{"n": 0}]


def test_aborted_records_are_not_read(writer: ControlWriter, onprem: ConnectionSettings, topic: str) -> None:
    """The log may end in an aborted transaction and its marker: reading must still come to an end."""
    writer.put(topic, "a", {"n": 0}, 0)
    RealSite(onprem).transaction(topic, [[b'{"n":9}']], commit=False)
    assert [record.value for record in read_control_log(onprem, topic)] == [{"n": 0}]


def test_failures_are_told(writer: ControlWriter, onprem: ConnectionSettings, topic: str) -> None:
    with pytest.raises(TopicMissing, match=f"no topic {topic} partition 16"):
        writer.put(topic, "k", {}, SLOT_COUNT)
    with pytest.raises(TopicMissing, match="topology apply"):
        read_latest_values(onprem, f"{topic}-no")
    with pytest.raises(RequestRefused, match="MSG_SIZE_TOO_LARGE"):
        writer.put(topic, "k", {"large": secrets.token_hex(2_000_000)})  # more than the broker takes, compressed, too
    writer.put_nowait(f"{topic}-no", "k", {})
    with pytest.raises(TopicMissing, match=f"no topic {topic}-no"):
        writer.flush()
    writer.flush()  # told once
    with pytest.raises(Unreachable, match=r"cluster cloud does not answer at 127\.0\.0\.1:1"):
        ControlWriter(ConnectionSettings("cloud", ("127.0.0.1:1",)), timeout=1).put(topic, "k", {})


def test_a_foreign_record_is_named_and_left_out(
    onprem: ConnectionSettings, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(onprem.librdkafka())
    for key, value in ((b"key", b'{"n":1}'), (b"key", b"not json"), (b"\xff", b"{}"), (b"deep", b"[" * 100_000)):
        producer.produce(topic, value, key, 0)
    producer.flush(60)
    with caplog.at_level("WARNING", "watershed.control"):
        assert read_latest_values(onprem, topic) == {"key": {"n": 1}}
        assert read_latest_values(onprem, topic) == {"key": {"n": 1}}
    told = [(each.topic, each.partition, each.offset) for each in caplog.records]  # type: ignore[attr-defined]
    assert told == [(topic, 0, 1), (topic, 0, 2), (topic, 0, 3)]  # once each
    assert [each.offset for each in read_control_log(onprem, topic, invalid=True) if each.why] == [1, 2, 3]


def test_flows_and_fleets(writer: ControlWriter, onprem: ConnectionSettings, topic_name: str) -> None:
    flow = PlanFlow(topic_name, "onprem", "cloud", TopicSelection((Selector("glob", "orders.*"),)))
    record = FlowRecord(flow, "sha256:1", "shop", producer_id=(1 << 40) + 1)
    fleet = FleetRecord(topic_name, "cloud", "running", "sha256:1")
    write_flow(writer, record)
    write_fleet(writer, fleet)
    assert read_flows(onprem)[topic_name] == record
    assert read_fleet(onprem, topic_name, "cloud") == fleet
    assert read_fleet(onprem, topic_name, "onprem") is None
    write_flow(writer, record.with_state("paused"))
    assert read_flows(onprem)[topic_name].state == "paused"
    assert not any(key.startswith("fleet/") for key in read_flows(onprem))
    for key in (record.key, fleet.key):
        writer.put(FLOWS_TOPIC, key, None)
    assert topic_name not in read_flows(onprem)


def test_status(writer: ControlWriter, onprem: ConnectionSettings, topic_name: str) -> None:
    reports = [
        PartitionStatus(topic_name, "orders", "orders", number, "running", source_position=7, at_ms=1)
        for number in (2, 0, 1)
    ]
    for report in reports:
        write_partition_status(writer, report)
    loud = PartitionStatus(topic_name, "orders", "orders", 1, "source_gone", error="what", remedy="do this")
    write_partition_status(writer, loud)
    writer.flush()
    assert [report for report in read_partition_statuses(onprem) if report.flow == topic_name] == [
        reports[1],
        loud,
        reports[0],
    ]
    for report in reports:
        writer.put_nowait(STATUS_TOPIC, report.key, None, report.slot)


def test_slots_are_stable() -> None:
    """Changing these numbers moves every partition's ledger to another slot: never do it."""
    assert [compute_slot("onprem-to-cloud", "orders", number) for number in range(4)] == [14, 8, 2, 4]
