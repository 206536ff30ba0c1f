"""Copying between two real clusters: content, order, offsets, in ordinary times."""

from __future__ import annotations

import json
import random
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
from confluent_kafka import Producer

from tests.replicator.real import (
    applied,
    assert_exact_copy,
    end_of,
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
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter, compute_slot
from watershed.clusters.flow_records import read_flows, write_flow
from watershed.clusters.latency_buckets import describe_latency
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from watershed.replicator.batch.codecs import NONE, ZSTD
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.compression_forecast import forecast_compression
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import inspect_logs, read_leader_logs
from watershed.replicator.recovery.recovery_point import find_recovery_point
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.replicator.recovery.takeover import TakenPartition, claim_partitions
from watershed.spark.reading.broker_connections import BrokerConnections
from watershed.spark.reading.fetch_answers import PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_all_fingerprints
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.naming import Naming
from watershed.topology.plan import seal_plan

pytestmark = pytest.mark.kafka


def test_two_flows_of_one_topic_copy_all_of_it_each(kafka_pair, topic_name, tmp_path):
    """One worker fetches each partition for two flows at once, from different positions: one flow begins later."""
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1, {})
    sending = producer(settings["onprem"])
    put(sending, topic_name, 2_000)
    sending.flush()
    first = plan_for(settings, topic_name, topic_name)
    flow = replace(first.flows[0], id=f"{first.flows[0].id}-again", naming=Naming("prefix", before="again."))
    both = applied(settings, seal_plan(replace(first, flows=(*first.flows, flow))))
    second = replace(first, flows=(flow,))
    with workers(both, "cloud", tmp_path) as start:
        start()
        for round_ in range(40):  # small bits, so that partitions become busy and quiet
            put(sending, topic_name, 50, 2_000 + 50 * round_)
            sending.flush()
            time.sleep(0.05)
        for plan in (first, second):
            wait_copied(settings, plan, topic_name, 2)
    for plan in (first, second):
        assert assert_exact_copy(settings, plan, topic_name, 2) == 4_000


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


def order(chance: random.Random) -> bytes:
    """A JSON text of 1 KB such as applications write: the same keys and many of the same words, with other numbers."""
    words = ("small", "large", "red", "green", "blue", "wool", "linen", "sale", "new", "gift", "express", "return")
    lines = [
        {
            "sku": f"{chance.choice(words)}-{chance.randrange(10**6):06}",
            "quantity": chance.randrange(1, 20),
            "price": chance.randrange(10**6) / 100,
            "note": " ".join(chance.choices(words, k=3)),
        }
        for _ in range(10)
    ]
    return json.dumps({"order": chance.randrange(10**12), "customer": chance.randrange(10**9), "lines": lines}).encode()


def fingerprints(settings, topic: str, partition: int) -> list[tuple[int, int, int]]:
    """(fingerprint, timestamp, bytes) of each record, by the reader of the proof."""
    with closing(open_connection(settings)) as link:
        [found] = link.metadata((topic,)).topics
    address = PartitionAddress(settings, topic, found.topic_id, partition)
    with BrokerConnections(settings) as connections:
        whole = OffsetRange(0, end_of(settings, topic, partition))
        prints = read_all_fingerprints(address, whole, connections)
    return list(zip(prints.fp.tolist(), prints.ts.tolist(), prints.size.tolist(), strict=True))


def stored_codecs(settings, topic: str, span: OffsetRange) -> set[int]:
    """Of the batches that the target stores in partition 0."""
    led = read_leader_logs(settings, [(topic, 0)], READ_UNCOMMITTED)[topic, 0]
    codecs, at = set(), span.start
    with closing(open_connection(settings, led.leader)) as link:
        while at < span.end:
            answer = fetch_one(link, FetchPartition(led.topic_id, 0, at), isolation=READ_UNCOMMITTED)
            for batch in decode_batches(answer.records):
                if at <= batch.base < span.end:
                    codecs.add(batch.codec)
                at = batch.end
    return codecs


def test_compression_saves_what_was_forecast_and_may_be_switched_under_a_copy(kafka_pair, topic_name, tmp_path):
    """A takeover each time. Simulations do so all the time (`tests/replicator/model.py`)."""
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending, chance = producer(settings["onprem"], **{"batch.size": 100_000, "linger.ms": 20}), random.Random(7)
    plain = plan_for(settings, topic_name, topic_name)
    packed = seal_plan(replace(plain, flows=(replace(plain.flows[0], compression=EgressCompression("zstd", 3)),)))

    def send(count: int) -> None:
        for number in range(count):
            sending.produce(topic_name, order(chance), partition=number % 2)
        assert sending.flush(60) == 0

    send(6_000)
    [forecast] = forecast_compression(packed, settings.__getitem__)
    assert forecast_compression(plain, settings.__getitem__) == []
    with workers(packed, "cloud", tmp_path) as start:
        applied(settings, packed)
        start()
        wait_copied(settings, packed, topic_name, 2)
        ends = [0, end_of(settings["cloud"], topic_name, 0)]
        copied, saved = wait_bytes(settings, topic_name, range(5_500_000, 8_000_000))
        applied(settings, plain)
        wait_bytes(settings, topic_name, range(1))  # the copy without it has begun
        send(200)
        wait_copied(settings, plain, topic_name, 2)
        ends.append(end_of(settings["cloud"], topic_name, 0))
    assert (forecast.topics, forecast.sampled) == (1, 1)
    assert saved / copied >= 0.60
    assert forecast.saved == pytest.approx(saved / copied, rel=0.10)
    parts = [OffsetRange(*span) for span in pairwise(ends)]
    assert [stored_codecs(settings["cloud"], topic_name, part) for part in parts] == [{ZSTD}, {NONE}]
    for number in range(2):
        here, there = (fingerprints(settings[alias], topic_name, number) for alias in ("onprem", "cloud"))
        assert len(here) == 3_100
        assert here == there
    assert_exact_copy(settings, packed, topic_name, 2)


def wait_bytes(settings, topic: str, wanted: range) -> tuple[int, int]:
    """(bytes copied, bytes that compression saved of them) of all partitions, once so many are reported."""
    deadline = time.monotonic() + 60
    while True:
        reports = [each for each in read_statuses(settings["cloud"]) if each.topic == topic]
        copied, saved = sum(each.copied_bytes for each in reports), sum(each.saved_bytes for each in reports)
        if copied in wanted:
            return copied, saved
        assert time.monotonic() < deadline, reports
        time.sleep(0.2)


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
            outcomes.append(claim_partitions([found], SharedLedger(settings["cloud"]), [slot], writer)[key])
    assert isinstance(outcomes[0], TakenPartition)
    assert isinstance(outcomes[1], Reinspect)
    assert read_ledger(settings["cloud"], record.flow.id).map(record.flow.id, topic_name, 0).to_source(0) == 100
