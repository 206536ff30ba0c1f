"""Three brokers, every record on all of them, two enough: what a copy does while one of them is gone.

`tri` is the three-node cluster, a flow's source or target; the other side is the pair that all tests share.
"""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from clusters.admin import Admin
from clusters.control_topics import LEDGER_TOPIC, compute_slot
from clusters.wire.connection import open_connection
from lab import clusters as lab_clusters
from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import QUICK_BROKER, Feeding, copied, progress, reports, times
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    wait_progress,
    workers,
)

pytestmark = pytest.mark.kafka

PARTITIONS = 6
QUICK = times(session=3)


@pytest.fixture(scope="module")
def tri(tmp_path_factory, kafka_pair):
    """The three-node cluster's home, and the settings of all clusters."""
    home = tmp_path_factory.mktemp("tri")
    try:
        lab = lab_clusters.start_clusters(home, ["tri"], brokers=3, settings=QUICK_BROKER)
        yield home, settings_of(kafka_pair) | settings_of(lab)
    finally:
        lab_clusters.end_clusters(home)


def leaders(settings, topic: str) -> dict[int, int]:
    """Broker ids by partition."""
    with closing(open_connection(settings)) as connection:
        (described,) = connection.metadata((topic,)).topics
    return {each.partition: each.node for each in described.partitions}


def sending_to(settings, topic: str, replicas: int):
    with Admin(settings) as admin:
        admin.create_topic(topic, PARTITIONS, replicas)
    # The test's own producer must not wait for a broker that hangs either.
    patience = {"socket.timeout.ms": 5_000, "request.timeout.ms": 4_000}
    into = producer(settings, **{"acks": "all", "enable.idempotence": True}, **patience)
    return into, lambda count, start: put(into, topic, count, start=start, size=100)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_the_leader_goes_and_the_copy_goes_on(tri, topic_name, tmp_path, side, fault):
    home, settings = tri
    route = ("tri", "cloud") if side == "source" else ("onprem", "tri")
    sending, send = sending_to(settings[route[0]], topic_name, 3 if side == "source" else 1)
    flow = {"routes": (route,), "replication_factor": 1 if side == "source" else 3}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, route[1], tmp_path, QUICK) as start, Feeding(send, 3_000) as feeding:
        start()
        wait_progress(settings, plan, topic_name, PARTITIONS, 3_000)
        led = leaders(settings["tri"], topic_name)
        victim = led[0]
        if fault == "kill":
            lab_clusters.kill_lab_broker(home, "tri", victim)
        else:
            lab_clusters.freeze_lab_broker(home, "tri", victim)
        try:
            # Two of three brokers are a quorum: every partition goes on, also those that had their leader there.
            for partition, leader in led.items():
                if leader == victim:
                    progress(settings[route[1]], topic_name, [partition], 50)
            progress(settings[route[1]], topic_name, range(PARTITIONS), 1_000)
        finally:
            if fault == "kill":
                lab_clusters.restart_lab_broker(home, "tri", victim)
            else:
                lab_clusters.freeze_lab_broker(home, "tri", victim, frozen=False)
        progress(settings[route[1]], topic_name, range(PARTITIONS), 500)
        total = feeding.end()
        sending.flush()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == total


def test_a_rolling_restart_of_the_target(tri, topic_name, tmp_path):
    home, settings = tri
    sending, send = sending_to(settings["onprem"], topic_name, 1)
    flow = {"routes": (("onprem", "tri"),), "replication_factor": 3}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, "tri", tmp_path, QUICK) as start, Feeding(send, 2_000) as feeding:
        start()
        wait_progress(settings, plan, topic_name, PARTITIONS, 1_000)
        for broker in (1, 2, 3):
            lab_clusters.stop_lab_broker(home, "tri", broker)
            progress(settings["tri"], topic_name, range(PARTITIONS), 500)
            lab_clusters.restart_lab_broker(home, "tri", broker)
        total = feeding.end()
        sending.flush()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == total


def test_a_ledger_partition_without_its_broker(tri, topic_name, tmp_path):
    """Records that need a new run wait for the ledger; partitions whose slot is elsewhere go on. Runs last: it leaves
    a ledger with one replica behind."""
    home, settings = tri
    with Admin(settings["tri"]) as admin:
        if LEDGER_TOPIC in admin.topics():
            delete_topic(settings["tri"], LEDGER_TOPIC)
        admin.create_topic(LEDGER_TOPIC, 16, 1, {"cleanup.policy": "compact", "min.insync.replicas": "1"})
    ledger = leaders(settings["tri"], LEDGER_TOPIC)

    def slots_of(topic: str) -> dict[int, int]:
        return {number: compute_slot(f"onprem-to-tri-{topic}", topic, number) for number in range(PARTITIONS)}

    # One name in some hundreds has all its slots on one broker.
    names = (f"{topic_name}-{number}" for number in range(100))
    topic_name = next(name for name in names if len({ledger[slot] for slot in slots_of(name).values()}) > 1)
    sending_to(settings["onprem"], topic_name, 1)
    flow = {"routes": (("onprem", "tri"),), "replication_factor": 3}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    assert plan.flows[0].id == f"onprem-to-tri-{topic_name}"
    slots = slots_of(topic_name)
    victim = ledger[slots[0]]
    without = [number for number, slot in slots.items() if ledger[slot] == victim]
    with_ledger = [number for number in slots if number not in without]
    assert with_ledger, "all slots are on one broker"
    with workers(plan, "tri", tmp_path, QUICK) as start:
        start()
        committed = transactions(settings["onprem"], topic_name, 5)
        wait_copied(settings, plan, topic_name, PARTITIONS)
        before = copied(settings["tri"], topic_name, with_ledger)
        lab_clusters.kill_lab_broker(home, "tri", victim)
        try:
            committed += transactions(settings["onprem"], topic_name, 15)
            until = time.monotonic() + 180
            while copied(settings["tri"], topic_name, with_ledger) < before + 20:
                assert time.monotonic() < until, "partitions whose slots have a leader stand still"
                time.sleep(0.2)
        finally:
            lab_clusters.restart_lab_broker(home, "tri", victim)
        wait_copied(settings, plan, topic_name, PARTITIONS)
        assert {each.state for each in reports(settings["tri"], plan).values()} <= {
            "running",
            "catching_up",
            "retrying",
        }
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == committed


def delete_topic(settings, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(settings.librdkafka({}))
    for future in admin.delete_topics([topic]).values():
        future.result(60)
    while topic in admin.list_topics(timeout=5).topics:
        pass
