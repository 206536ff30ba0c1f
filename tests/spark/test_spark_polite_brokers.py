"""Real brokers: a quota is kept to, a replica in our rack serves, and reading survives a leader that moves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import watershed.spark.reading.fetch_answers
import watershed.spark.reading.range_reader
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_writes import alter_client_quotas
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import FetchedPartition
from watershed.lab import clusters
from watershed.lab.clusters import Lab
from watershed.spark.reading.fetch_answers import PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_batch_digests, read_fingerprints

RECORDS = 4_000
VALUE = bytes(1_000)
SPAN = OffsetRange(0, RECORDS)
LEADER, OTHERS = 1, (2, 3)
THROTTLED = -1


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster of three brokers, each in a rack of its own."""
    directory = tmp_path_factory.mktemp("racks")
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    try:
        yield clusters.start_clusters(
            directory, ["three"], 3, {"broker.rack": "rack-{id}", "replica.selector.class": selector}
        )
    finally:
        clusters.end_clusters(directory)


@pytest.fixture
def settings(three: Lab) -> ConnectionSettings:
    return ConnectionSettings("three", tuple(three.cluster("three").bootstrap.split(",")))


@pytest.fixture
def address(settings: ConnectionSettings, topic_name: str) -> PartitionAddress:
    """A partition on all three, led by LEADER, with RECORDS in many batches."""
    admin = AdminClient(settings.librdkafka())
    topic = NewTopic(topic_name, 1, replica_assignment=[[LEADER, *OTHERS]])
    admin.create_topics([topic])[topic_name].result(60)
    producer = Producer(settings.librdkafka({"linger.ms": 100, "batch.num.messages": 50, "acks": "all"}))
    for number in range(RECORDS):
        producer.produce(topic_name, VALUE, b"%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    with closing(open_connection(settings)) as link:
        [found] = link.metadata((topic_name,)).topics
    return PartitionAddress(settings, topic_name, found.topic_id, 0)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, three: Lab) -> Counter[int]:
    """Bytes of records by the broker that sent them, and how many answers asked for silence; answers are small."""
    found: Counter[int] = Counter()
    brokers = {broker.port: broker.id for broker in three.cluster("three").brokers}
    receive = Connection.receive_fetch

    def counted(self: Connection, room: object = None) -> list[FetchedPartition]:
        answers = receive(self, room)  # type: ignore[arg-type]
        found[brokers[self.address[1]]] += sum(len(each.records) for each in answers)
        found[THROTTLED] += self.throttle_ms > 0
        return answers

    monkeypatch.setattr(Connection, "receive_fetch", counted)
    monkeypatch.setattr(watershed.spark.reading.fetch_answers, "_FETCH_BYTES", 200_000)
    monkeypatch.setattr(watershed.spark.reading.range_reader, "_BLOCK_BATCHES", 5)
    monkeypatch.setattr(watershed.spark.reading.range_reader, "_BLOCK_RECORDS", 500)
    return found


def read(address: PartitionAddress) -> tuple[int, int]:
    """Records, by digests and by fingerprints."""
    return (
        sum(int(block.count.sum()) for block in read_batch_digests(address, SPAN)),
        sum(len(block) for block in read_fingerprints(address, SPAN)),
    )


def test_without_a_rack_the_leader_serves(address: PartitionAddress, served: Counter[int]) -> None:
    assert read(address) == (RECORDS, RECORDS)
    assert served[LEADER] > 2 * RECORDS * len(VALUE)
    assert not served[OTHERS[0]] + served[OTHERS[1]]


@pytest.mark.parametrize("rack", OTHERS[:1])
def test_the_replica_in_our_rack_serves(rack: int, address: PartitionAddress, served: Counter[int]) -> None:
    here = replace(address, settings=replace(address.settings, rack=f"rack-{rack}"))
    assert read(here) == (RECORDS, RECORDS)
    assert served[rack] > 2 * RECORDS * len(VALUE)
    assert served[LEADER] == 0


def test_a_quota_for_proofs_is_kept_to(address: PartitionAddress, served: Counter[int]) -> None:
    slow = replace(address, settings=replace(address.settings, alias="slow"))
    with open_connection(address.settings) as inquiry:
        assert (
            alter_client_quotas(inquiry, {(("client-id", "watershed-verify-slow"),): {"consumer_byte_rate": 4e6}}) == {}
        )
    until = time.monotonic() + 180
    while not served[THROTTLED] and time.monotonic() < until:  # it reaches the brokers a moment after it is set
        assert read(slow) == (RECORDS, RECORDS)
    assert served[THROTTLED] > 0
    served.clear()
    assert read(address) == (RECORDS, RECORDS)  # another client id
    assert served[THROTTLED] == 0


def test_reading_goes_on_when_the_leader_dies(address: PartitionAddress, served: Counter[int], three: Lab) -> None:
    blocks = read_batch_digests(address, SPAN)
    records = int(next(blocks).count.sum())
    assert records < RECORDS / 2
    clusters.kill_lab_broker(three.directory, "three", LEADER)
    try:
        assert records + sum(int(block.count.sum()) for block in blocks) == RECORDS
        assert served[OTHERS[0]] + served[OTHERS[1]] > 0
    finally:
        clusters.restart_lab_broker(three.directory, "three", LEADER)
