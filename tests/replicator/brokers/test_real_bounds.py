"""Copies that begin in the middle and copies that end, on real brokers, compared record by record."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from tests.replicator.real import (
    Record,
    applied,
    plan_for,
    producer,
    read_all,
    settings_of,
    wait_progress,
    workers,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.partition_end_records import build_end_key, read_partition_ends
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED
from watershed.replicator.recovery.log_inspection import read_leader_logs
from watershed.topology.copy_bounds import CopyBound, build_offsets_bound
from watershed.topology.plan import Plan, seal_plan

pytestmark = pytest.mark.kafka

PARTITIONS = 2
MANY = 6_000
SEQUENCE, TRANSACTIONS, ALIGNED = {"delivery": "sequence"}, {"delivery": "transactions"}, {"offsets": "aligned"}


def ways(*usual: str) -> pytest.MarkDecorator:
    """The ways to copy; those that are not usual are tried in `make soak` only."""
    every = {"sequence": SEQUENCE, "transactions": TRANSACTIONS, "aligned": ALIGNED}
    return pytest.mark.parametrize(
        "way",
        [pytest.param(way, id=name, marks=() if name in usual else pytest.mark.soak) for name, way in every.items()],
    )


BEGAN = int(time.time() * 1000) - 3_600_000


def fill(sending: Producer, topic: str, first: int, end: int) -> None:
    """Records numbered from `first`, one a millisecond, in turns over the partitions."""
    for number in range(first, end):
        value = b"%d." % number + b"v" * 120
        sending.produce(topic, value, key=b"%d" % number, partition=number % PARTITIONS, timestamp=BEGAN + number)
        sending.poll(0)
    sending.flush()


def with_flow(plan: Plan, **changed) -> Plan:
    (flow,) = plan.flows
    return seal_plan(replace(plan, flows=(replace(flow, **changed),)))


def wait_states(settings: ConnectionSettings, topic: str, *states: str, timeout: float = 90) -> list[PartitionStatus]:
    """The reports of the topic's partitions, once they say these states, by partition."""
    deadline = time.monotonic() + timeout
    while True:
        found = [each for each in read_statuses(settings) if each.topic == topic]
        if [each.state for each in found] == [*states]:
            return found
        told = [(each.partition, each.state, each.source_position, each.error) for each in found]
        assert time.monotonic() < deadline, f"{told}, not {states}"
        time.sleep(0.2)


def select_records(
    here: dict[int, list[tuple[int, Record]]], spans: dict[int, tuple[int, int]]
) -> dict[int, list[Record]]:
    """The records of each partition in its span of source offsets."""
    return {
        number: [record for offset, record in records if spans[number][0] <= offset < spans[number][1]]
        for number, records in here.items()
    }


def wait_equal(settings, topic: str, spans: dict[int, tuple[int, int]], timeout: float = 90) -> None:
    """Until the target holds the source's records of these spans, and no other."""
    expected = select_records(read_all(settings["onprem"], topic, PARTITIONS), spans)
    deadline = time.monotonic() + timeout
    while True:
        found = read_all(settings["cloud"], topic, PARTITIONS)
        there = {number: [record for _, record in records] for number, records in found.items()}
        if there == expected:
            return
        counts = {number: (len(there[number]), len(expected[number])) for number in expected}
        assert time.monotonic() < deadline, f"(found, expected) records by partition: {counts}"
        assert all(found <= wanted for found, wanted in counts.values()), counts
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("start", "way"),
    [
        pytest.param("timestamp", SEQUENCE, id="timestamp", marks=pytest.mark.soak),
        pytest.param("offsets", TRANSACTIONS, id="offsets"),
        pytest.param("timestamp", TRANSACTIONS, id="timestamp, transactions", marks=pytest.mark.soak),
        pytest.param("offsets", SEQUENCE, id="offsets, sequence", marks=pytest.mark.soak),
    ],
)
def test_a_copy_begins_where_the_file_says(kafka_pair, topic_name, tmp_path, start, way):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    sending = producer(settings["onprem"])
    fill(sending, topic_name, 0, 2_000)
    if start == "timestamp":
        bound, first = CopyBound(timestamp_ms=BEGAN + 701), {0: 351, 1: 350}
    else:
        bound, first = build_offsets_bound({topic_name: {1: 123}}), {0: 0, 1: 123}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, start=bound, **way))
    with workers(plan, "cloud", tmp_path) as spawn:
        worker = spawn()
        wait_equal(settings, topic_name, {number: (first[number], 1_000) for number in first})
        worker.kill()
        fill(sending, topic_name, 2_000, 2_400)
        spawn()
        wait_equal(settings, topic_name, {number: (first[number], 1_200) for number in first})


@pytest.mark.parametrize(
    "way", [SEQUENCE, pytest.param(TRANSACTIONS, marks=pytest.mark.soak)], ids=["sequence", "transactions"]
)
def test_a_copy_begins_where_a_group_stands_and_waits_for_its_position(kafka_pair, topic_name, tmp_path, way):
    settings = settings_of(kafka_pair)
    group = f"group-{topic_name}"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
        fill(producer(settings["onprem"]), topic_name, 0, 1_000)
        admin.commit_offsets(group, {TopicPartition(topic_name, 0): 77})
        start = CopyBound(group=group)
        plan = applied(settings, plan_for(settings, topic_name, topic_name, start=start, **way))
        with workers(plan, "cloud", tmp_path) as spawn:
            spawn()
            _, halted = wait_states(settings["cloud"], topic_name, "running", "start_missing")
            assert f"group {group}, and it has no position for {topic_name}-1" in (halted.error or "")
            assert "delivery.start" in (halted.remedy or "")
            wait_equal(settings, topic_name, {0: (77, 500), 1: (0, 0)})
            admin.commit_offsets(group, {TopicPartition(topic_name, 1): 400})
            wait_equal(settings, topic_name, {0: (77, 500), 1: (400, 500)})
            admin.commit_offsets(group, {TopicPartition(topic_name, 0): 500, TopicPartition(topic_name, 1): 500})
            spawn()  # a partition that was begun asks for no group any more
            fill(producer(settings["onprem"]), topic_name, 1_000, 1_200)
            wait_equal(settings, topic_name, {0: (77, 600), 1: (400, 600)})


def test_an_offset_outside_the_log_halts_until_the_file_names_another(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    fill(producer(settings["onprem"]), topic_name, 0, 1_000)
    beyond = build_offsets_bound({topic_name: {0: 501, 1: 500}})
    plan = applied(settings, plan_for(settings, topic_name, topic_name, start=beyond))
    with workers(plan, "cloud", tmp_path) as spawn:
        spawn()
        halted, _ = wait_states(settings["cloud"], topic_name, "start_missing", "running")
        assert halted.error == "`delivery.start` is offset 501, and the source's log ends at 500"
        assert halted.seen is not None
        assert halted.seen["source"] == [500, 501]
        applied(settings, with_flow(plan, start=build_offsets_bound({topic_name: {0: 499}})))
        wait_equal(settings, topic_name, {0: (499, 500), 1: (500, 500)})


@pytest.mark.parametrize(
    "way", [TRANSACTIONS, pytest.param(SEQUENCE, marks=pytest.mark.soak)], ids=["transactions", "sequence"]
)
def test_a_copy_ends_although_its_worker_is_killed_and_the_source_goes_on(kafka_pair, topic_name, tmp_path, way):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    sending = producer(settings["onprem"], **{"batch.size": 20_000})
    fill(sending, topic_name, 0, MANY)
    plan = plan_for(settings, topic_name, topic_name, end="latest", quota=150_000, **way)
    plan = applied(settings, plan)
    flow, whole = plan.flows[0].id, dict.fromkeys(range(PARTITIONS), (0, MANY // PARTITIONS))
    with workers(plan, "cloud", tmp_path) as spawn:
        worker = spawn()
        wait_progress(settings, plan, topic_name, PARTITIONS, 500)
        fill(sending, topic_name, MANY, MANY + 1_000)
        worker.kill()
        spawn()
        reports = wait_states(settings["cloud"], topic_name, "complete", "complete")
        wait_equal(settings, topic_name, whole)
        for report in reports:
            assert (report.source_position, report.source_end) == (MANY // PARTITIONS, MANY // PARTITIONS)
            assert (report.lag_records, report.lag_ms, report.lag_bytes, report.error) == (0, 0, 0, None)
        ends = read_partition_ends(settings["cloud"])
        for number in range(PARTITIONS):
            end = ends[build_end_key(flow, topic_name, number)]
            assert (end.offset, end.position, end.is_reached) == (MANY // PARTITIONS, MANY // PARTITIONS, True)
    delete_records(settings["onprem"], topic_name, MANY // PARTITIONS + 100)  # the source forgets, the copy is complete
    with workers(plan, "cloud", tmp_path) as spawn:
        spawn()
        wait_worker_reports(settings["cloud"], topic_name, {report.pid for report in reports})
        assert [each.state for each in reports_of(settings["cloud"], topic_name)] == ["complete", "complete"]


@pytest.mark.soak
@ways("sequence", "transactions", "aligned")
def test_a_copy_ends_however_often_its_worker_is_killed(kafka_pair, topic_name, tmp_path, way):
    settings, chance = settings_of(kafka_pair), random.Random(7)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    sending = producer(settings["onprem"], **{"batch.size": 5_000})
    made = 2 * MANY
    fill(sending, topic_name, 0, made)
    end = CopyBound(timestamp_ms=BEGAN + 3 * MANY + 1)  # it comes while the copy is under way
    plan = applied(settings, plan_for(settings, topic_name, topic_name, end=end, quota=150_000, **way))
    with workers(plan, "cloud", tmp_path) as spawn:
        for _ in range(10):
            worker = spawn()
            time.sleep(chance.uniform(1, 9))
            fill(sending, topic_name, made, made + 1_000)
            made += 1_000
            worker.kill()
        spawn()
        wait_states(settings["cloud"], topic_name, "complete", "complete", timeout=180)
        wait_equal(settings, topic_name, {0: (0, 3 * MANY // 2 + 1), 1: (0, 3 * MANY // 2)})


def test_another_end_goes_on_and_none_goes_on_for_ever(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    sending = producer(settings["onprem"])
    fill(sending, topic_name, 0, 1_000)
    ends = build_offsets_bound({topic_name: {0: 101, 1: 0}})
    plan = applied(settings, plan_for(settings, topic_name, topic_name, end=ends))
    with workers(plan, "cloud", tmp_path) as spawn:
        spawn()
        wait_states(settings["cloud"], topic_name, "complete", "complete")
        wait_equal(settings, topic_name, {0: (0, 101), 1: (0, 0)})
        later = with_flow(plan, end=build_offsets_bound({topic_name: {0: 202, 1: 50}}))
        applied(settings, later)
        wait_equal(settings, topic_name, {0: (0, 202), 1: (0, 50)})
        wait_states(settings["cloud"], topic_name, "complete", "complete")
        applied(settings, with_flow(plan, end=build_offsets_bound({topic_name: {0: 150}})))  # earlier; none for 1
        wait_states(settings["cloud"], topic_name, "complete", "running")
        wait_equal(settings, topic_name, {0: (0, 202), 1: (0, 500)})
        applied(settings, with_flow(plan, end=None))
        wait_equal(settings, topic_name, {0: (0, 500), 1: (0, 500)})
        fill(sending, topic_name, 1_000, 1_100)
        wait_equal(settings, topic_name, {0: (0, 550), 1: (0, 550)})
        wait_states(settings["cloud"], topic_name, "running", "running")


@ways("aligned")
def test_an_instant_that_has_not_come_ends_the_copy_when_it_comes(kafka_pair, topic_name, tmp_path, way):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    sending = producer(settings["onprem"])
    fill(sending, topic_name, 0, 1_000)
    end = CopyBound(timestamp_ms=BEGAN + 1_501)  # records 1501 (partition 1) and 1502 (partition 0) are the first
    plan = applied(settings, plan_for(settings, topic_name, topic_name, end=end, **way))
    with workers(plan, "cloud", tmp_path) as spawn:
        worker = spawn()
        wait_equal(settings, topic_name, {0: (0, 500), 1: (0, 500)})
        wait_states(settings["cloud"], topic_name, "running", "running")
        worker.kill()
        fill(sending, topic_name, 1_000, 2_000)
        spawn()
        wait_states(settings["cloud"], topic_name, "complete", "complete")
        wait_equal(settings, topic_name, {0: (0, 751), 1: (0, 750)})


def reports_of(settings: ConnectionSettings, topic: str) -> list[PartitionStatus]:
    return [each for each in read_statuses(settings) if each.topic == topic]


def wait_worker_reports(settings: ConnectionSettings, topic: str, before: set[int], timeout: float = 60) -> None:
    """Until another process reports the topic's partitions."""
    deadline = time.monotonic() + timeout
    while {each.pid for each in reports_of(settings, topic)} & before:
        assert time.monotonic() < deadline, "no other worker reports"
        time.sleep(0.2)


def delete_records(settings: ConnectionSettings, topic: str, before: int) -> None:
    for number in range(PARTITIONS):
        log = read_leader_logs(settings, [(topic, number)], READ_UNCOMMITTED)[topic, number]
        connection = open_connection(settings, log.leader)
        try:
            error, _ = connection.delete_records(topic, number, before)
            assert error == 0
        finally:
            connection.close()
