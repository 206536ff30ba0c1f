"""Equal offsets on real brokers: every record where it stands on the source, whatever the source has between them."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as WirePartition

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.brokers.test_real_formats import compact
from tests.replicator.real import (
    applied,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    wait_progress,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.clusters.alignment_records import read_alignments
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.empty_log_filler import fill_log
from watershed.replicator.copy.aligned.target_log import TargetLog

pytestmark = pytest.mark.kafka
START = 5_000_000


def begins_at(settings, topic: str, partitions: int, offset: int, *only: int) -> None:
    """An empty source topic whose logs, or `only` these, begin at `offset`."""

    def wire(address):
        return open_connection(settings, address)

    with Admin(settings) as admin:
        created = admin.create_topic(topic, partitions, 1)
    for number in only or range(partitions):
        log = TargetLog(wire, settings.alias, topic, created.topic_id, number)
        assert fill_log(log, offset, f"{topic}-source") == offset
        log.close()


def assert_same_offsets(settings, topic: str, partitions: int) -> int:
    """Every record at the same offset with the same content, and the same log ends. Returns the count."""
    here, there = (read_all(settings[alias], topic, partitions) for alias in ("onprem", "cloud"))
    where = [TopicPartition(topic, number) for number in range(partitions)]
    with Admin(settings["onprem"]) as source, Admin(settings["cloud"]) as target:
        ends = [admin.offsets(where, "read_uncommitted") for admin in (source, target)]
    assert ends[0] == ends[1]
    for number in range(partitions):
        assert there[number] == here[number], f"partition {number}"
    return sum(map(len, here.values()))


def test_plain_and_transactional_topics_keep_their_offsets(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    plain, transactional = f"{topic_name}-p", f"{topic_name}-t"
    begins_at(settings["onprem"], plain, 2, 2_000_000)
    begins_at(settings["onprem"], transactional, 1, 0)
    sending = producer(settings["onprem"], **{"compression.type": "lz4"})
    put(sending, plain, 20_000)
    sending.flush()
    committed = transactions(settings["onprem"], transactional, 10)
    plan = applied(settings, plan_for(settings, topic_name, plain, transactional, offsets="aligned"))
    decided = read_alignments(settings["cloud"])
    assert {decided[plan.flows[0].id, topic].mode for topic in (plain, transactional)} == {"aligned"}
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, plain, 2)
        wait_copied(settings, plan, transactional, 1)
        put(sending, plain, 1_000, start=20_000)
        sending.flush()
        committed += transactions(settings["onprem"], transactional, 5)
        wait_copied(settings, plan, plain, 2)
        wait_copied(settings, plan, transactional, 1)
    assert assert_same_offsets(settings, plain, 2) == 21_000
    assert assert_same_offsets(settings, transactional, 1) == committed


# Each worker is alone in a group of its own: the next one need not wait until the one before is given up.
ALONE = (
    "import os, watershed.replicator.worker.worker as w; w.build_fleet_group_id = lambda name: f'{name}-{os.getpid()}'"
)


@pytest.mark.soak
def test_killed_again_and_again_in_fill_and_gaps(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    begins_at(settings["onprem"], topic_name, 1, START)
    committed = transactions(settings["onprem"], topic_name, 40)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, offsets="aligned", quota=5_000))
    kills = [300_000, 2_500_000, 4_500_000, *(START + number for number in (1, 60, 110, 170))]
    with workers(plan, "cloud", tmp_path, ALONE) as start:
        for reached in kills:
            worker = start()
            wait_progress(settings, plan, topic_name, 1, reached)
            worker.kill()
        start()
        wait_copied(settings, plan, topic_name, 1)
        committed += transactions(settings["onprem"], topic_name, 2)
        wait_copied(settings, plan, topic_name, 1)
    assert assert_same_offsets(settings, topic_name, 1) == committed


def test_a_compacted_topic_and_a_group_that_moves_with_the_same_number(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    compacted, plain = f"{topic_name}-c", f"{topic_name}-p"
    compact(settings["onprem"], compacted)
    begins_at(settings["onprem"], plain, 1, START)
    sending = producer(settings["onprem"])
    put(sending, plain, 3_000)
    sending.flush()
    before = consumed(settings["onprem"], plain, topic_name, 1_234, "earliest")
    plan = applied(settings, plan_for(settings, topic_name, compacted, plain, offsets="aligned"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, plain, 1)
        wait_copied(settings, plan, compacted, 1)
        put(sending, plain, 100, start=3_000)
        sending.flush()
        wait_copied(settings, plan, plain, 1)
    place = TopicPartition(plain, 0)
    with Admin(settings["onprem"]) as source, Admin(settings["cloud"]) as target:
        target.commit_offsets(topic_name, {place: source.group(topic_name).offsets[place]})
        configs = [admin.topic_configs([compacted])[compacted] for admin in (source, target)]
    assert configs[0]["cleanup.policy"] == configs[1]["cleanup.policy"] == "compact"
    after = consumed(settings["cloud"], plain, topic_name, 3_100 - 1_234)
    assert before + after == list(range(START, START + 3_100))
    assert assert_same_offsets(settings, plain, 1) == 3_100
    assert_same_offsets(settings, compacted, 1)
    for back_ms in (0, 2_000, 60_000):
        asked = WirePartition(plain, 0, int(time.time() * 1000) - back_ms)
        found = [reader(settings[alias], f"{topic_name}-times").offsets_for_times([asked], 60) for alias in settings]
        assert found[0][0].offset == found[1][0].offset


def consumed(settings, topic: str, group: str, count: int, reset: str = "error") -> list[int]:
    """The offsets of the next `count` records that a group reads, which has to find its position."""
    consumer = reader(settings, group, reset)
    consumer.subscribe([topic])
    offsets: list[int] = []
    deadline = time.monotonic() + 180
    while len(offsets) < count:
        assert time.monotonic() < deadline, f"{len(offsets)} of {count} records"
        for message in consumer.consume(count - len(offsets), timeout=1):
            assert message.error() is None, message.error()
            offsets.append(message.offset())
    consumer.commit(offsets=[WirePartition(topic, 0, offsets[-1] + 1)], asynchronous=False)
    consumer.close()
    return offsets


def reader(settings, group: str, reset: str = "error") -> Consumer:
    return Consumer(settings.librdkafka({"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": False}))
