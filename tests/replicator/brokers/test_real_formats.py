"""Every format of a batch that a real broker stores arrives as a consumer of the source sees it: codecs, append times,
compacted and trimmed logs, transactions, batches above the target's limit, tiny ones."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import FetchPartition
from watershed.replicator.batch.codecs import CODEC_NAMES
from watershed.replicator.batch.record_batch import RawBatch, decode_batches

pytestmark = pytest.mark.kafka

SET = AlterConfigOpType.SET


@pytest.fixture
def copied(kafka_pair, topic_name, tmp_path) -> Callable[..., int]:
    """Copy topics from onprem to cloud by one worker; all of them must arrive exactly. Returns the records."""
    settings = settings_of(kafka_pair)

    def copy(topics: dict[str, int], **flow) -> int:
        plan = applied(settings, plan_for(settings, topic_name, *topics, **flow))
        with workers(plan, "cloud", tmp_path) as start:
            start()
            for topic, partitions in topics.items():
                wait_copied(settings, plan, topic, partitions)
        return sum(assert_exact_copy(settings, plan, topic, partitions) for topic, partitions in topics.items())

    return copy


def stored(settings: ConnectionSettings, topic: str, partition: int = 0) -> list[RawBatch]:
    """The batches of a partition (of a cluster with one broker) as they are stored, from the log's start on."""
    connection = open_connection(settings)
    try:
        (described,) = connection.metadata((topic,)).topics
        (start,) = connection.list_offsets(((topic, partition),), -2)
        found: list[RawBatch] = []
        position = start.offset
        while True:
            asked = FetchPartition(described.topic_id, partition, position, max_bytes=8 << 20)
            (answer,) = connection.fetch((asked,), max_wait_ms=0)
            batches = list(decode_batches(memoryview(bytes(answer.records))))
            found += batches
            if not batches:
                return found
            position = batches[-1].end
    finally:
        connection.close()


def fill(into: Producer, topic: str, partition: int, count: int, size: int = 60) -> None:
    """Records with null and empty keys and values, and headers in order, repeated, empty and null."""
    for number in range(count):
        into.produce(
            topic,
            partition=partition,
            key=(None, b"", b"k%d" % (number % 50))[number % 3],
            value=(None, b"", b"v%d" % number + b"." * size)[min(number % 7, 2)],
            headers=[("n", b"%d" % number), ("z", None), ("n", b""), ("a", b"\x00\xff")] if number % 4 == 0 else None,
        )
        if number % 1_000 == 0:
            into.poll(0)
    into.flush()


def test_every_codec_with_both_kinds_of_timestamps(kafka_pair, topic_name, copied):
    """Tiny batches, then large ones, then tiny ones again; a partition for each codec."""
    settings = settings_of(kafka_pair)
    topics = {f"{topic_name}-{kind}": len(CODEC_NAMES) for kind in ("CreateTime", "LogAppendTime")}
    for topic in topics:
        with Admin(settings["onprem"]) as admin:
            admin.create_topic(topic, len(CODEC_NAMES), 1, {"message.timestamp.type": topic.split("-")[-1]})
    for partition, codec in enumerate(CODEC_NAMES):
        tiny = producer(settings["onprem"], **{"compression.type": codec, "linger.ms": 0, "batch.num.messages": 3})
        bulk = producer(settings["onprem"], **{"compression.type": codec, "linger.ms": 50})
        for topic in topics:
            fill(tiny, topic, partition, 300)
            fill(bulk, topic, partition, 1_500, size=300)
            fill(tiny, topic, partition, 200)
    assert copied(topics) == 2_000 * len(CODEC_NAMES) * 2
    for topic in topics:
        for partition, codec in enumerate(CODEC_NAMES):
            here, there = (stored(settings[alias], topic, partition) for alias in ("onprem", "cloud"))
            # librdkafka sends a batch as it is where the codec would not make it smaller
            assert {batch.codec for batch in there} == {batch.codec for batch in here}
            assert CODEC_NAMES.index(codec) in {batch.codec for batch in there}
            assert len(there) < len(here) * 2 / 3, f"{topic}-{partition}: tiny batches were not merged"


def compact(settings: ConnectionSettings, topic: str, policy: str = "compact", codec: str = "lz4") -> None:
    """A log that the cleaner has been through: holes in batches, batches gone, tombstones kept, and a fresh tail."""
    with Admin(settings) as admin:
        admin.create_topic(
            topic,
            1,
            1,
            {
                "cleanup.policy": policy,
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "100",
                "retention.ms": "-1",
                "delete.retention.ms": "600000",
            },
        )
    sending = producer(settings, **{"compression.type": codec, "linger.ms": 20})
    for turn in range(4):
        for number in range(600):
            keys = 7 if number % 50 else 300  # most keys come again soon, some late
            value = None if number % 83 == 0 else b"%d-%d" % (turn, number)
            sending.produce(topic, value, key=b"k%d" % (number % keys), headers=[("t", b"%d" % turn), ("t", None)])
        sending.flush()
        time.sleep(0.15)  # a new segment begins only with the next record
    deadline = time.monotonic() + 180
    while True:
        batches = stored(settings, topic)
        holes = sum(batch.records != batch.end - batch.base for batch in batches)
        if holes and sum(batch.records for batch in batches) < 1_500:
            break
        assert time.monotonic() < deadline, f"{topic} was never compacted: {holes} holes"
        time.sleep(0.3)
    frozen = ConfigResource("topic", topic)
    frozen.add_incremental_config(ConfigEntry("min.compaction.lag.ms", "36000000", incremental_operation=SET))
    changing = AdminClient(settings.librdkafka({}))
    changing.incremental_alter_configs([frozen])[frozen].result()
    put(sending, topic, 100)
    sending.flush()


def test_compacted_topics(kafka_pair, topic_name, copied):
    settings = settings_of(kafka_pair)
    topics = {f"{topic_name}-compact": 1, f"{topic_name}-both": 1}
    compact(settings["onprem"], f"{topic_name}-compact")
    compact(settings["onprem"], f"{topic_name}-both", policy="compact,delete", codec="none")
    with Admin(settings["cloud"]) as admin:
        for topic in topics:
            admin.create_topic(topic, 1, 1)  # a copy that is not compacted itself can be compared
    assert copied(topics) > 200


def test_transactions_committed_aborted_interleaved_and_open(kafka_pair, topic_name, copied):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    names = ("a", "b", "open")
    first, second, third = (
        Producer(
            settings["onprem"].librdkafka(
                # The open one stays open until the test ends it.
                {"transactional.id": f"{topic_name}-{name}", "linger.ms": 0, "transaction.timeout.ms": 600_000}
            )
        )
        for name in names
    )
    for each in (first, second, third):
        each.init_transactions()
    for number in range(12):
        first.begin_transaction()
        second.begin_transaction()
        for part in range(3):
            put(first, topic_name, 4, start=number * 100 + part * 10)
            first.flush()
            put(second, topic_name, 3, start=number * 100 + 50 + part * 10)
            second.flush()
        (first.abort_transaction if number % 3 == 0 else first.commit_transaction)()
        (second.abort_transaction if number % 4 == 0 else second.commit_transaction)()
    third.begin_transaction()
    put(third, topic_name, 5, start=5_000)
    third.flush()
    put(producer(settings["onprem"]), topic_name, 5, start=6_000)
    try:
        assert copied({topic_name: 1}) == 8 * 12 + 9 * 9
    finally:
        third.abort_transaction()


def test_a_log_that_begins_inside_a_batch(kafka_pair, topic_name, copied):
    settings = settings_of(kafka_pair)
    codecs = ("none", "zstd")
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, len(codecs), 1)
    deleting = AdminClient(settings["onprem"].librdkafka({}))
    left = 0
    for partition, codec in enumerate(codecs):
        sending = producer(settings["onprem"], **{"compression.type": codec, "linger.ms": 200})
        fill(sending, topic_name, partition, 1_000)
        whole = max(stored(settings["onprem"], topic_name, partition), key=lambda batch: batch.records)
        at = whole.base + whole.records // 2
        (done,) = deleting.delete_records([TopicPartition(topic_name, partition, at)]).values()
        assert done.result().low_watermark == at
        assert stored(settings["onprem"], topic_name, partition)[0].base < at
        left += 1_000 - at
    assert copied({topic_name: len(codecs)}) == left


def test_batches_above_the_targets_limit(kafka_pair, topic_name, copied):
    settings = settings_of(kafka_pair)
    codecs = ("none", "gzip", "lz4")
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, len(codecs), 1)
    with Admin(settings["cloud"]) as admin:
        admin.create_topic(topic_name, len(codecs), 1, {"max.message.bytes": "5000"})
    for partition, codec in enumerate(codecs):
        sending = producer(settings["onprem"], **{"compression.type": codec, "linger.ms": 200})
        fill(sending, topic_name, partition, 3_000, size=100)
        fill(sending, topic_name, partition, 30, size=4_000)
        assert max(len(batch.data) for batch in stored(settings["onprem"], topic_name, partition)) > 10_000
    assert copied({topic_name: len(codecs)}) == 3_030 * len(codecs)
    for partition in range(len(codecs)):
        assert max(len(batch.data) for batch in stored(settings["cloud"], topic_name, partition)) <= 5_000


@pytest.mark.soak
def test_fifty_thousand_batches_of_one_record(kafka_pair, topic_name, copied):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings["onprem"], **{"batch.num.messages": 1, "linger.ms": 0, "acks": 1})
    put(sending, topic_name, 50_000, size=20)
    sending.flush()
    assert copied({topic_name: 2}) == 50_000
    here = sum(len(stored(settings["onprem"], topic_name, number)) for number in range(2))
    there = sum(len(stored(settings["cloud"], topic_name, number)) for number in range(2))
    assert here >= 50_000
    assert there < here / 100
