"""What only the cluster in memory can be put through in a test: restarts, expiry, truncation, broken connections.

The expected codes were seen on Apache Kafka 4.3.1 brokers (sequence-numbers §1, rows 6 to 8).
"""

from __future__ import annotations

import threading

import pytest

from watershed.clusters.errors import ProtocolError, TopicMissing, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.record_batch import build_simple_batch, decode_batch_records, split_batches
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.messages import FetchPartition, ProducePartition

OURS = 700_001
DAY = 86_400_000
START = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def batch(first: int, *, at: int = START, count: int = 5) -> bytes:
    values = [b"%d" % number for number in range(first, first + count)]
    return build_simple_batch(values, keys=values, timestamp=at, producer_id=OURS, epoch=0, base_sequence=first)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> FakeCluster:
    """Topic `t` with the sequences 0 to 49 of producer OURS, young records, in ten batches."""
    made = FakeCluster("cloud", clock=clock)
    made.create_topic("t", 1)
    for first in range(0, 50, 5):
        assert made.append("t", 0, batch(first))[:2] == (0, first)
    return made


@pytest.mark.parametrize(
    ("first", "code", "base"), [(45, 0, 45), (40, 45, -1), (25, 45, -1), (55, 45, -1), (50, 0, 50)]
)
def test_restart_keeps_the_newest_batch(cluster: FakeCluster, first: int, code: int, base: int) -> None:
    cluster.stop()
    cluster.start()
    assert cluster.append("t", 0, batch(first))[:2] == (code, base)


def test_expired_state_lets_a_repeat_in(cluster: FakeCluster, clock: Clock) -> None:
    clock.now += DAY - 1000
    cluster.expire_producers()
    assert cluster.append("t", 0, batch(45))[:2] == (0, 45)
    clock.now += 2000
    assert cluster.append("t", 0, batch(45))[:2] == (0, 45)  # expiry waits for the sweep
    cluster.expire_producers()
    assert cluster.append("t", 0, batch(45))[:2] == (0, 50)


def test_state_expires_by_record_time(cluster: FakeCluster) -> None:
    """One late old record makes the whole partition old, even while it is written."""
    assert cluster.append("t", 0, batch(50, at=START - 3 * DAY))[:2] == (0, 50)
    assert cluster.append("t", 0, batch(50, at=START - 3 * DAY))[:2] == (0, 50)
    cluster.stop()
    cluster.start()
    assert cluster.wire().describe_producers("t", 0) == (0, [])
    assert cluster.append("t", 0, batch(50, at=START - 3 * DAY))[:2] == (0, 55)


def test_restart_without_records_forgets(cluster: FakeCluster) -> None:
    cluster.delete_records("t", 0, 50)
    assert cluster.append("t", 0, batch(45))[:2] == (0, 45)
    cluster.stop()
    cluster.start()
    assert cluster.append("t", 0, batch(45))[:2] == (0, 50)


def test_open_transaction_holds_the_stable_end(cluster: FakeCluster, clock: Clock) -> None:
    producer = cluster.produce_transaction("t", 0, [[b"a", b"b"]], end="open")
    cluster.produce("t", 0, [b"c"])
    key = TopicPartition("t", 0)
    assert cluster.offsets([key])[key].end == 50
    assert cluster.offsets([key], "read_uncommitted")[key].end == 53
    clock.now += 2 * DAY
    cluster.expire_producers()
    (state,) = cluster.wire().describe_producers("t", 0)[1]
    assert (state.producer_id, state.transaction_start) == (producer, 50)
    cluster.end_transaction("t", 0, producer, commit=False)
    assert cluster.offsets([key])[key].end == 54
    assert [record.value for record in cluster.records("t", 0)][50:] == [b"c"]
    assert [record.value for record in cluster.records("t", 0, committed=False)][50:] == [b"a", b"b", b"c"]
    cluster.produce_transaction("t", 0, [[b"d"]], producer_id=producer)
    assert [record.offset for record in cluster.records("t", 0)][50:] == [52, 54]


def test_truncation_is_told_by_the_epoch(cluster: FakeCluster) -> None:
    topic, wire = cluster.topics()["t"], cluster.wire()
    log = cluster.log("t", 0)
    (known,) = wire.fetch((FetchPartition(topic.topic_id, 0, 45),))
    epoch = next(split_batches(known.records))[0].leader_epoch
    log.truncate(32)
    cluster.append("t", 0, batch(30))
    assert log.end == 35
    (answer,) = wire.fetch((FetchPartition(topic.topic_id, 0, 35, last_epoch=epoch),), max_wait_ms=0)
    assert answer.diverging_epoch == (epoch, 30)
    assert len(answer.records) == 0
    (blind,) = wire.fetch((FetchPartition(topic.topic_id, 0, 30),), max_wait_ms=0)
    assert next(split_batches(blind.records))[0].leader_epoch == epoch + 1


def test_connections_break(cluster: FakeCluster) -> None:
    """What was sent before the break is done, and its answer is lost: the outcome is unknown to the sender."""
    topic, wire, other = cluster.topics()["t"], cluster.wire(), cluster.wire()
    wire.send_produce((ProducePartition(topic.topic_id, 0, (batch(50),)),))
    wire.cut()
    with pytest.raises(Unreachable, match="cluster cloud does not answer at cloud:9092: the connection was lost"):
        wire.receive_produce()
    assert other.list_offsets((("t", 0),), -1)[0].offset == 55
    cluster.stop()
    with pytest.raises(Unreachable):
        other.metadata()
    with pytest.raises(Unreachable):
        cluster.wire()
    cluster.start()
    with pytest.raises(Unreachable):
        other.metadata()  # a broken connection stays broken
    assert cluster.wire().metadata(("t",)).topics[0].partitions[0].leader_epoch == 1


def test_a_partition_named_twice_keeps_the_last(cluster: FakeCluster) -> None:
    topic, wire = cluster.topics()["t"], cluster.wire()
    wire.send_produce(tuple(ProducePartition(topic.topic_id, 0, (batch(first),)) for first in (50, 55)))
    assert [(answer.error, answer.base_offset) for answer in wire.receive_produce()] == [(45, -1)]
    with pytest.raises(ProtocolError, match="no Produce of this connection is unanswered"):
        wire.receive_produce()


def test_fetch_wakes_up_for_new_records(cluster: FakeCluster) -> None:
    topic, wire = cluster.topics()["t"], cluster.wire()
    writer = threading.Timer(0.1, lambda: cluster.produce("t", 0, [b"new"]))
    writer.start()
    (answer,) = wire.fetch((FetchPartition(topic.topic_id, 0, 50),), max_wait_ms=20_000)
    writer.join()
    ((_, data),) = split_batches(answer.records)
    assert [record.value for record in decode_batch_records(data)] == [b"new"]


def test_groups_forget_a_deleted_topic(cluster: FakeCluster) -> None:
    key = TopicPartition("t", 0)
    cluster.groups.join("g")
    cluster.groups.commit_as_member("g", {key: 5})
    assert cluster.group("g").state == "Stable"
    cluster.groups.leave("g")
    cluster.commit_offsets("g", {key: 7})
    assert (cluster.group("g").state, cluster.group("g").offsets) == ("Empty", {key: 7})
    cluster.delete_topic("t")
    assert cluster.group("g").offsets == {}
    with pytest.raises(TopicMissing):
        cluster.offsets([key])
