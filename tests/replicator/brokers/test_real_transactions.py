"""Copying in transactions between real clusters: two flows and a foreign producer write into one topic, while workers
die, freeze and wake up, requests arrive late, brokers restart and forget producers.

The target forgets a producer 5 s after the time of its newest record, and half of the records are three days old.
"""

from __future__ import annotations

import datetime
import signal
import time
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kio.schema.update_features.v1.request import FeatureUpdateKey
from kio.static.primitive import i8, i16, i32Timedelta

from tests.replicator.faults import Faulty, Feeding, faulty_clusters, progress, times
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    end_of,
    plan_for,
    producer,
    read_all,
    settings_of,
    wait_copied,
    wait_decided,
    wait_latencies,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.lab import clusters as lab_clusters
from watershed.lab.fault_proxy import NO_FAULT, ProxyFault
from watershed.replicator.ledger.ledger import read_ledger
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, seal_plan

pytestmark = pytest.mark.kafka

PARTITIONS = 3
DAY_MS = 86_400_000
UPDATE_FEATURES, SAFE_DOWNGRADE, UPGRADE = 57, 2, 1
QUICK = times(session=2)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    home = tmp_path_factory.mktemp("transactions")
    forgetful = {"producer.id.expiration.ms": "5000"}
    with faulty_clusters(home, {"onprem": 1, "cloud": 1}, forgetful) as clusters:
        yield clusters


def put(into: Producer, topic: str, count: int, start: int = 0, age_ms: int = 0) -> None:
    """`count` records that name their topic in key and value, over the partitions."""
    now = int(time.time() * 1000) - age_ms
    for number in range(start, start + count):
        value = f"{topic} {number} ".encode() + b"." * 150
        into.produce(topic, value, key=f"{topic} {number % 101}".encode(), partition=number % PARTITIONS, timestamp=now)
        if number % 500 == 0:
            into.poll(0)
    into.flush()


def merging(settings: dict[str, ConnectionSettings], merged: str, *topics: str, quota: int | None) -> Plan:
    """Two flows of one topology, each with a topic of its own, into the same target topic."""
    plans = [
        plan_for(
            settings,
            topic,
            topic,
            naming=Naming("map", map=((topic, merged),)),
            delivery="transactions",
            delivery_reason="several flows write into it",
            merge=True,
            quota=quota,
        )
        for topic in topics
    ]
    flows = tuple(sorted((flow for plan in plans for flow in plan.flows), key=lambda flow: flow.id))
    return seal_plan(replace(plans[0], topology=merged, flows=flows))


def of_flow(plan: Plan, topic: str) -> Plan:
    """The plan with only the flow of a topic, for the questions that are about one flow."""
    return replace(plan, flows=tuple(flow for flow in plan.flows if flow.selects(topic)))


def assert_merged(
    settings: dict[str, ConnectionSettings], plan: Plan, merged: str, *topics: str
) -> tuple[dict[str, int], list[bytes]]:
    """Every flow's records once each, in their order, with the map exact at every offset both ways. Returns how many
    there are of each flow, and the values that somebody else wrote."""
    there = read_all(settings["cloud"], merged, PARTITIONS)
    found: dict[str, int] = {}
    foreign = [record[1] for part in there.values() for _, record in part if record[0] == b"foreign"]
    for topic in topics:
        here = read_all(settings["onprem"], topic, PARTITIONS)
        (flow,) = of_flow(plan, topic).flows
        ledger = read_ledger(settings["cloud"], flow=flow.id)
        found[topic] = 0
        for number in range(PARTITIONS):
            ours = [(offset, record) for offset, record in there[number] if record[0].startswith(topic.encode() + b" ")]
            assert [record for _, record in ours] == [record for _, record in here[number]], f"{topic}-{number}"
            found[topic] += len(ours)
            offsets = ledger.map(flow.id, topic, number)
            end = ours[-1][0] + 1
            back = dict.fromkeys(range(end))
            for (source, _), (target, _) in zip(reversed(here[number]), reversed(ours), strict=True):
                assert offsets.to_target(source, end) == target
                back[target] = source
            upcoming = offsets.position
            for target in range(end - 1, ours[0][0] - 1, -1):
                upcoming = back[target] if back[target] is not None else upcoming
                assert offsets.to_source(target) == upcoming  # a foreign record or marker: our next record
    assert sum(found.values()) + len(foreign) == sum(map(len, there.values()))
    return found, foreign


@pytest.mark.soak
def test_merged_exactly_under_every_fault(faulty: Faulty, topic_name: str, tmp_path) -> None:
    old, new, merged = f"{topic_name}-old", f"{topic_name}-new", f"{topic_name}-merged"
    settings, proxy = faulty.settings, faulty.proxy("cloud")
    with Admin(settings["onprem"]) as admin:
        for topic in (old, new):
            admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": "-1"})
    plan = applied(faulty.through, merging(faulty.through, merged, old, new, quota=200_000))
    sending = producer(settings["onprem"], **{"batch.size": 4_000, "linger.ms": 1})
    put(sending, old, 4_000, age_ms=3 * DAY_MS)
    put(sending, new, 4_000)
    foreign = producer(settings["cloud"], **{"enable.idempotence": True, "linger.ms": 0})

    acknowledged: dict[bytes, tuple[int, int]] = {}  # value → partition and offset of the acknowledgement

    def acknowledge(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged[message.value()] = (message.partition(), message.offset())

    def disturb(count: int, start: int) -> None:
        for number in range(start, start + count):
            foreign.produce(
                merged,
                b"%d" % number,
                key=b"foreign",
                partition=number % PARTITIONS,
                on_delivery=acknowledge,
            )
        foreign.poll(0)

    def more(records: int) -> None:
        progress(settings["cloud"], merged, range(PARTITIONS), records)

    with Feeding(disturb, 200) as feeding, workers(plan, "cloud", tmp_path, QUICK) as start:
        for _ in range(2):
            worker = start()
            more(700)
            worker.kill()
        frozen = start()
        more(500)
        frozen.send(signal.SIGSTOP)
        start()
        more(700)  # the session ends after 2 s, the other one takes over
        frozen.send(signal.SIGCONT)
        more(250)
        proxy.up = ProxyFault(latency_s=1.5)  # requests arrive after their connection is gone
        time.sleep(0.5)
        proxy.up = NO_FAULT
        proxy.drop_clients()
        more(250)
        lab_clusters.kill_lab_broker(faulty.home, "cloud")
        lab_clusters.restart_lab_broker(faulty.home, "cloud")
        more(250)
        for topic in (old, new):
            wait_copied(settings, of_flow(plan, topic), topic, PARTITIONS)
        feeding.end()
        foreign.flush()
    wait_decided(settings["cloud"], merged)  # readers see nothing behind a transaction that is still open
    ours, theirs = assert_merged(settings, plan, merged, old, new)
    assert ours == {old: 4_000, new: 4_000}
    # A producer without transactions may repeat itself on a broker that forgot it; what was acknowledged is there.
    assert acknowledged
    missing = {value: acknowledged[value] for value in acknowledged.keys() - set(theirs)}
    ends = [end_of(settings["cloud"], merged, number) for number in range(PARTITIONS)]
    assert not missing, f"{missing} of {len(acknowledged)} are not there; the logs end at {ends}"


def test_workers_share_the_slots_and_hand_them_over(kafka_pair, topic_name: str, tmp_path) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 6, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery="transactions"))
    sending = producer(settings["onprem"], **{"enable.idempotence": True})

    def send(count: int, start: int) -> None:
        for number in range(start, start + count):
            sending.produce(topic_name, b"%d" % number, key=b"%d" % (number % 101))
        sending.poll(0)

    with workers(plan, "cloud", tmp_path) as start:
        first = start()
        with Feeding(send, 1_000) as feeding:
            progress(settings["cloud"], topic_name, range(6), 500)
            second = start()
            progress(settings["cloud"], topic_name, range(6), 3_000)
            assert first.stop() == 0
            progress(settings["cloud"], topic_name, range(6), 2_000)
            assert wait_latencies(settings, plan, 1), "of records whose transaction is committed"
        sending.flush()
        total = feeding.end()
        wait_copied(settings, plan, topic_name, 6)
        assert second.stop() == 0
    assert assert_exact_copy(settings, plan, topic_name, 6) == total


def set_transaction_version(settings: ConnectionSettings, level: int, how: int) -> None:
    connection = open_connection(settings)
    connection.close()
    with Connection(settings, connection.address) as inquiry:
        answer = inquiry.ask(
            UPDATE_FEATURES,
            lowest=1,
            timeout=i32Timedelta.parse(datetime.timedelta(seconds=10)),
            feature_updates=(
                FeatureUpdateKey(feature="transaction.version", max_version_level=i16(level), upgrade_type=i8(how)),
            ),
            validate_only=False,
        )
    inquiry.check(int(answer.error_code), "setting transaction.version")
    deadline = time.monotonic() + 180
    while True:
        with Connection(settings, connection.address) as inquiry:
            if inquiry.versions.transaction_version == level:
                return
        assert time.monotonic() < deadline, f"transaction.version never became {level}"
        time.sleep(0.1)


@pytest.mark.soak
def test_a_cluster_with_the_older_transactions(faulty: Faulty, topic_name: str, tmp_path) -> None:
    """transaction.version 1: partitions are added by a request of their own, epoch and sequences go on."""
    old, new, merged = f"{topic_name}-old", f"{topic_name}-new", f"{topic_name}-merged"
    settings = faulty.settings
    set_transaction_version(settings["cloud"], 1, SAFE_DOWNGRADE)
    try:
        with Admin(settings["onprem"]) as admin:
            for topic in (old, new):
                admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": "-1"})
        plan = applied(settings, merging(settings, merged, old, new, quota=600_000))
        sending = producer(settings["onprem"], **{"batch.size": 4_000, "linger.ms": 1})
        put(sending, old, 4_000, age_ms=3 * DAY_MS)
        put(sending, new, 4_000)

        def still(count: int, start: int) -> None:
            for topic in (old, new):
                put(sending, topic, count, start)

        with workers(plan, "cloud", tmp_path, QUICK) as start, Feeding(still, 400, total=4_000) as feeding:
            for _ in range(2):
                worker = start()
                progress(settings["cloud"], merged, range(PARTITIONS), 1_000)
                worker.kill()
            start()
            total = feeding.end()
            sending.flush()
            for topic in (old, new):
                wait_copied(settings, of_flow(plan, topic), topic, PARTITIONS)
        ours, theirs = assert_merged(settings, plan, merged, old, new)
        assert (ours, theirs) == ({old: total, new: total}, [])
    finally:
        set_transaction_version(settings["cloud"], 2, UPGRADE)
