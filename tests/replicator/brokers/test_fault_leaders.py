"""Three brokers, every record on all of them, two enough: what a copy does while one of them is gone.

With equal offsets their leaders change in the middle of the fill, of the copy, and before consumers move.

`tri` is the three-node cluster of the whole file, a flow's source or target; the other side is the pair that all tests
share.
"""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from tests.replicator.brokers.test_real_aligned import assert_same_offsets, begins_at
from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import QUICK_BROKER, Feeding, copied, progress, reports, times
from tests.replicator.readers import READERS, from_on, positioned, settled
from tests.replicator.real import (
    applied,
    assert_exact_copy,
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
from watershed.clusters.control_topics import LEDGER_TOPIC, compute_slot
from watershed.clusters.errors import ClusterError
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.lab import clusters as lab_clusters
from watershed.lab.preload import create_lab_topics

pytestmark = pytest.mark.kafka

PARTITIONS = 3
FILLED = 30_000_000
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


def test_the_labs_topics_are_on_all_brokers(tri, topic_name):
    _, settings = tri
    create_lab_topics(",".join(settings["tri"].bootstrap), [topic_name], 1)
    admin = AdminClient(settings["tri"].librdkafka({}))
    deadline = time.monotonic() + 180
    while not (known := admin.list_topics(topic_name, timeout=60).topics[topic_name].partitions):
        assert time.monotonic() < deadline  # each broker hears of it in its own time
        time.sleep(0.2)
    assert sorted(known[0].replicas) == [1, 2, 3]


@pytest.mark.parametrize(
    ("fault", "side"),
    [
        ("kill", "target"),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (("kill", "source"), ("freeze", "source"), ("freeze", "target"))
        ),
    ],
)
def test_the_leader_goes_and_the_copy_goes_on(tri, topic_name, tmp_path, side, fault):
    home, settings = tri
    route = ("tri", "cloud") if side == "source" else ("onprem", "tri")
    sending, send = sending_to(settings[route[0]], topic_name, 3 if side == "source" else 1)
    flow = {"routes": (route,), "replication_factor": 1 if side == "source" else 3}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, route[1], tmp_path, QUICK) as start, Feeding(send, 900) as feeding:
        start()
        wait_progress(settings, plan, topic_name, PARTITIONS, 600)
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
            progress(settings[route[1]], topic_name, range(PARTITIONS), 300)
        finally:
            if fault == "kill":
                lab_clusters.restart_lab_broker(home, "tri", victim)
            else:
                lab_clusters.freeze_lab_broker(home, "tri", victim, frozen=False)
        progress(settings[route[1]], topic_name, range(PARTITIONS), 200)
        total = feeding.end()
        sending.flush()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == total


@pytest.mark.soak
def test_a_rolling_restart_of_the_target(tri, topic_name, tmp_path):
    home, settings = tri
    sending, send = sending_to(settings["onprem"], topic_name, 1)
    flow = {"routes": (("onprem", "tri"),), "replication_factor": 3}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, "tri", tmp_path, QUICK) as start, Feeding(send, 900) as feeding:
        start()
        wait_progress(settings, plan, topic_name, PARTITIONS, 300)
        for broker in (1, 2, 3):
            lab_clusters.stop_lab_broker(home, "tri", broker)
            progress(settings["tri"], topic_name, range(PARTITIONS), 200)
            lab_clusters.restart_lab_broker(home, "tri", broker)
        total = feeding.end()
        sending.flush()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == total


@pytest.mark.soak
def test_leaders_are_killed_while_a_target_is_filled_and_copied(tri, topic_name, tmp_path):
    home, settings = tri
    begins_at(settings["onprem"], topic_name, 2, FILLED, 0)
    committed = transactions(settings["onprem"], topic_name, 10)
    flow = {"routes": (("onprem", "tri"),), "replication_factor": 3, "offsets": "aligned"}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, "tri", tmp_path, times(session=3)) as start:
        start()
        filled = _wait_end(settings["tri"], topic_name, 100_000)
        assert filled < FILLED, "the fill was over before the leader could be killed"
        victim = leaders(settings["tri"], topic_name)[0]
        lab_clusters.kill_lab_broker(home, "tri", victim)
        _wait_end(settings["tri"], topic_name, FILLED)
        lab_clusters.restart_lab_broker(home, "tri", victim)
        wait_copied(settings, plan, topic_name, 2)

        def send(count: int, start: int) -> None:
            nonlocal committed
            committed += transactions(settings["onprem"], topic_name, 3)
            time.sleep(0.3)

        with Feeding(send, 10) as feeding:
            progress(settings["tri"], topic_name, range(2), 100)
            victim = leaders(settings["tri"], topic_name)[1]
            lab_clusters.kill_lab_broker(home, "tri", victim)
            progress(settings["tri"], topic_name, range(2), 300)
            lab_clusters.restart_lab_broker(home, "tri", victim)
            feeding.end()
        wait_copied(settings, plan, topic_name, 2)
    sides = {"onprem": settings["onprem"], "cloud": settings["tri"]}
    assert assert_same_offsets(sides, topic_name, 2) == committed


@pytest.mark.soak
def test_java_goes_on_at_the_target_although_the_source_has_had_other_leaders(tri, topic_name, tmp_path):
    """A position that is committed with a leader epoch which the target has not reached makes a Java consumer read
    nothing, without an error (docs/research/aligned-mode.md, section F): none may come along."""
    home, settings = tri
    with Admin(settings["tri"]) as admin:
        admin.create_topic(topic_name, 1, 3)
    put(into := producer(settings["tri"]), topic_name, 500)
    into.flush()
    left = leaders(settings["tri"], topic_name)[0]
    lab_clusters.stop_lab_broker(home, "tri", left)
    lab_clusters.restart_lab_broker(home, "tri", left)
    put(into, topic_name, 500, start=500)
    into.flush()
    beginning, numbers = {TopicPartition(topic_name, 0): 0}, {}
    names = {f"{topic_name}-{name.replace(' ', '-')}": name for name in ("java classic", "java consumer")}
    for group, name in names.items():
        positioned(settings["tri"], name, group, beginning)
        # All there is: the console consumer goes back from what it has fetched beyond, and then commits no epoch.
        first = READERS[name](settings["tri"], topic_name, group, 1_000)
        rows = read_all(settings["tri"], topic_name, 1)
        numbers[group] = settled(settings["tri"], name, group, beginning, rows, first)
        assert _epoch(settings["tri"], group, topic_name) > 0
    put(into, topic_name, 300, start=1_000)
    into.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name, routes=(("tri", "cloud"),), offsets="aligned"))
    with workers(plan, "cloud", tmp_path, times(session=3)) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
    here, there = (read_all(settings[alias], topic_name, 1) for alias in ("tri", "cloud"))
    assert here == there
    assert _leader_epoch(settings["cloud"], topic_name) == 0
    for group, name in names.items():
        positioned(settings["cloud"], name, group, numbers[group])
        assert _epoch(settings["cloud"], group, topic_name) == -1
        assert READERS[name](settings["cloud"], topic_name, group, 300) == from_on(there, topic_name, numbers[group])


@pytest.mark.soak
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
    admin = AdminClient(settings.librdkafka({}))
    for future in admin.delete_topics([topic]).values():
        future.result(60)
    while topic in admin.list_topics(timeout=5).topics:
        pass


def _epoch(settings, group: str, topic: str) -> int:
    """The leader epoch that was committed with the group's position; -1: none."""
    consumer = Consumer(settings.librdkafka({"group.id": group}))
    try:
        (found,) = consumer.committed([WirePartition(topic, 0)], timeout=60)
        return -1 if found.leader_epoch is None else found.leader_epoch
    finally:
        consumer.close()


def _leader_epoch(settings, topic: str) -> int:
    with closing(open_connection(settings)) as connection:
        (described,) = connection.metadata((topic,)).topics
    return described.partitions[0].leader_epoch


def _wait_end(settings, topic: str, offset: int) -> int:
    """Until partition 0 ends at `offset` or behind it. Returns where it ends."""
    where, deadline = TopicPartition(topic, 0), time.monotonic() + 180
    end = -1
    with Admin(settings) as admin:
        while time.monotonic() < deadline:
            try:
                end = admin.offsets([where], "read_uncommitted")[where].end
            except ClusterError:  # another leader is being chosen
                end = -1
            if end >= offset:
                return end
            time.sleep(0.02)
    raise AssertionError(f"{where} ends at {end} after 180 s, {offset} was demanded")
