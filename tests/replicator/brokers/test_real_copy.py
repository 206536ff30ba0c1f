"""Copying between two real clusters: content, order, offsets, in ordinary times."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from clusters.admin import Admin
from clusters.control_topics import ControlWriter, compute_slot
from clusters.flow_records import read_flows, write_flow
from clusters.latency_buckets import describe_latency
from replicator.ledger.ledger import read_ledger
from replicator.ledger.ledger_block import Generation, LedgerBlock
from replicator.partition_key import PartitionKey
from replicator.partition_states import Reinspect
from replicator.recovery.log_inspection import inspect_logs
from replicator.recovery.recovery_point import find_recovery_point
from replicator.recovery.settled_log_ends import SettledLogEnds
from replicator.recovery.takeover import TakenPartition, claim_partitions
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    wait_decided,
    wait_latencies,
    workers,
)
from tests.replicator.status_view import read_statuses
from topology.naming import Naming

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_arrives_byte_for_byte(kafka_pair, topic_name, tmp_path, codec):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1, {"retention.ms": "777000000", "cleanup.policy": "delete"})
    sending = producer(settings["onprem"], **{"compression.type": codec})
    put(sending, topic_name, 5_000)
    sending.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
        latency = describe_latency(wait_latencies(settings, plan, 5_000))
    assert latency is not None
    assert latency["records"] == 5_000
    assert 0 < latency["p50_ms"] <= latency["p99_ms"]
    assert assert_exact_copy(settings, plan, topic_name, 2) == 5_000
    with Admin(settings["cloud"]) as admin:
        assert admin.topic_configs([topic_name])[topic_name]["retention.ms"] == "777000000"


def transactions(settings, topic: str, count: int) -> int:
    """Committed and aborted transactions in turn, two producers interleaved. Returns the committed records."""
    first, second = (
        Producer(settings.librdkafka({"transactional.id": f"{topic}-{name}", "linger.ms": 0})) for name in "ab"
    )
    first.init_transactions()
    second.init_transactions()
    committed = 0
    for number in range(count):
        first.begin_transaction()
        second.begin_transaction()
        put(first, topic, 7, start=number * 100)
        put(second, topic, 5, start=number * 100 + 50)
        first.flush()
        second.flush()
        second.commit_transaction()
        committed += 5
        if number % 3 == 0:
            first.abort_transaction()
        else:
            first.commit_transaction()
            committed += 7
    wait_decided(settings, topic)
    return committed


def test_only_committed_transactions_arrive_and_the_map_steps_over_markers(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    committed = transactions(settings["onprem"], topic_name, 30)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
        committed += transactions(settings["onprem"], topic_name, 15)
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == committed


def serving(settings, topic: str) -> set[int]:
    """The processes that report for a topic's partitions."""
    return {report.pid for report in read_statuses(settings["cloud"]) if report.topic == topic}


def test_two_workers_share_the_partitions_and_a_stopped_one_hands_over(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 8, 1)
    sending = producer(settings["onprem"])
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        first, second = start(), start()
        put(sending, topic_name, 20_000)
        sending.flush()
        wait_copied(settings, plan, topic_name, 8)
        deadline = time.monotonic() + 180
        while len(serving(settings, topic_name)) < 2:
            assert time.monotonic() < deadline, "the second worker never got a share"
            time.sleep(0.3)
        assert first.stop() == 0
        put(sending, topic_name, 20_000, start=20_000)
        sending.flush()
        wait_copied(settings, plan, topic_name, 8)
        assert second.stop() == 0
    assert assert_exact_copy(settings, plan, topic_name, 8) == 40_000


def test_a_paused_flow_stands_still_and_goes_on_where_it_was(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    sending = producer(settings["onprem"])

    def order(state: str) -> None:
        record = read_flows(settings["cloud"])[plan.flows[0].id]
        with ControlWriter(settings["cloud"]) as writer:
            write_flow(writer, record.with_state(state))

    def state() -> str:
        reports = [report.state for report in read_statuses(settings["cloud"]) if report.topic == topic_name]
        return reports[0] if reports else "not reported yet"

    with workers(plan, "cloud", tmp_path) as start:
        start()
        put(sending, topic_name, 1_000)
        sending.flush()
        wait_copied(settings, plan, topic_name, 1)
        order("paused")
        deadline = time.monotonic() + 180
        while state() != "paused" and time.monotonic() < deadline:
            time.sleep(0.2)
        assert state() == "paused"
        put(sending, topic_name, 1_000, start=1_000)
        sending.flush()
        time.sleep(1)
        assert len(read_all(settings["cloud"], topic_name, 1)[0]) == 1_000
        order("running")
        wait_copied(settings, plan, topic_name, 1)
    assert assert_exact_copy(settings, plan, topic_name, 1) == 2_000


def test_a_pair_in_both_directions_does_not_loop(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    with Admin(settings["cloud"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    there = applied(settings, plan_for(settings, f"{topic_name}-there", topic_name))
    sending = producer(settings["onprem"])
    put(sending, topic_name, 500)
    sending.flush()
    with workers(there, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, there, topic_name, 1)
    # The way back reads only what the way there wrote, and must leave all of it out.
    moved = f"{topic_name}-moved"
    back = plan_for(
        settings,
        f"{topic_name}-back",
        topic_name,
        routes=(("cloud", "onprem"),),
        naming=Naming("map", map=((topic_name, moved),)),
    )
    applied(settings, back)
    with workers(back, "onprem", tmp_path) as start:
        start()
        own = producer(settings["cloud"])
        put(own, topic_name, 100, start=9_000)
        own.flush()
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and len(read_all(settings["onprem"], moved, 1)[0]) < 100:
            time.sleep(0.3)
    arrived = [record for _, record in read_all(settings["onprem"], moved, 1)[0]]
    written = [record for _, record in read_all(settings["cloud"], topic_name, 1)[0]][500:]
    assert arrived == written
    assert len(arrived) == 100


def test_of_two_first_looks_the_first_claim_counts(kafka_pair, topic_name):
    """With `start: latest` two workers that inspection of once find other starts; the ledger must hold one."""
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, start="latest"))
    record = read_flows(settings["cloud"])[plan.flows[0].id]
    key = PartitionKey(record.flow.id, topic_name, topic_name, 0)
    slot = compute_slot(record.flow.id, topic_name, 0)
    looked = inspect_logs([key], settings["onprem"], settings["cloud"], record.producer_id, 1, SettledLogEnds())[key]
    seen, here, there = looked
    with ControlWriter(settings["cloud"]) as writer:
        outcomes = []
        for worker, position in (("z", 100), ("a", 120)):
            resumed = find_recovery_point(None, replace(seen, source_end=position), record.producer_id, "latest")
            block = LedgerBlock(key, Generation(1, worker), 1, 0, resumed.identity, here.topic_id, there.topic_id, ())
            found = TakenPartition(resumed, here, there, block)
            outcomes.append(claim_partitions([found], settings["cloud"], [slot], writer)[key])
    assert isinstance(outcomes[0], TakenPartition)
    assert isinstance(outcomes[1], Reinspect)
    assert read_ledger(settings["cloud"], record.flow.id).map(record.flow.id, topic_name, 0).to_source(0) == 100
