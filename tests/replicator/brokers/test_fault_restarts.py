"""Brokers die and come back in each phase of a copy's life.

Records so old that the target forgets who wrote them, while workers die, connections break and brokers restart.

The brokers look every second for producers to forget (600 s by default), so what happens here in seconds takes days
elsewhere. With old records settling takes 3 s instead of 35: nothing here is under way for longer than two.
"""

from __future__ import annotations

import signal
import time

import pytest

from tests.replicator.faults import Feeding, copied, progress, times
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    wait_copied,
    wait_progress,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.lab import clusters as lab_clusters
from watershed.lab.fault_proxy import NO_FAULT, ProxyFault

pytestmark = pytest.mark.kafka

DAY_MS = 86_400_000
QUICK = times(session=3)
SETTLED = times(settle=3, session=2)


@pytest.mark.parametrize(
    "phase",
    [
        "catching up",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("starting", "idle at the tail", "taking over")),
    ],
)
def test_both_brokers_restart(faulty, topic_name, tmp_path, phase):
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings["onprem"], **{"acks": "all", "enable.idempotence": True})
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=600_000))
    put(sending, topic_name, 8_000, size=150)
    sending.flush()
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        worker = start()
        if phase == "catching up":
            wait_progress(settings, plan, topic_name, 2, 1_200)
        elif phase == "idle at the tail":
            wait_copied(settings, plan, topic_name, 2)
        elif phase == "taking over":
            wait_progress(settings, plan, topic_name, 2, 1_200)
            worker.kill()
            worker = start()
        for alias in ("onprem", "cloud"):
            lab_clusters.kill_lab_broker(faulty.home, alias)
        lab_clusters.restart_lab_broker(faulty.home, "onprem", wait=False)
        lab_clusters.restart_lab_broker(faulty.home, "cloud")
        lab_clusters.restart_lab_broker(faulty.home, "onprem")
        put(sending, topic_name, 1_000, start=8_000)
        sending.flush()
        if not worker.runs():
            # Only a worker that has not got to know its target yet may end, and says why (`run_worker`).
            assert phase in ("starting", "taking over")
            assert "Unreachable" in worker.log.read_text()
            start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == 9_000


@pytest.mark.soak
@pytest.mark.parametrize("broken", ["onprem", "cloud"])
def test_a_broker_killed_and_started_again(faulty, topic_name, tmp_path, broken):
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 3, 1)
    sending = producer(settings["onprem"], **{"acks": "all", "enable.idempotence": True})
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=700_000))
    put(sending, topic_name, 10_000, size=200)
    sending.flush()
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        wait_progress(settings, plan, topic_name, 3, 1_700)
        lab_clusters.kill_lab_broker(faulty.home, broken)
        time.sleep(2)
        lab_clusters.restart_lab_broker(faulty.home, broken)
        put(sending, topic_name, 2_000, start=10_000, size=200)
        sending.flush()
        wait_copied(settings, plan, topic_name, 3)
    assert assert_exact_copy(settings, plan, topic_name, 3) == 12_000


def in_small_batches(settings):
    return producer(settings, **{"batch.size": 4_000, "linger.ms": 1})


def put_old(sending, topic: str, days: int, count: int, start: int = 0) -> None:
    """`count` numbered records whose time is `days` ago, over the partitions by key."""
    then = int(time.time() * 1000) - days * DAY_MS
    for number in range(start, start + count):
        sending.produce(topic, b"%d" % number + b"." * 100, key=b"key-%d" % (number % 101), timestamp=then + number)
        if number % 1000 == 0:
            sending.poll(0)
    sending.flush()


@pytest.mark.soak
def test_old_records_under_every_fault(faulty, topic_name, tmp_path):
    settings, proxy = faulty.settings, faulty.proxy("cloud")
    topics = {days: f"{topic_name}-{days}-days" for days in (3, 60)}
    with Admin(settings["onprem"]) as admin:
        for topic in topics.values():
            admin.create_topic(topic, 2, 1, {"retention.ms": "-1"})
    plan = applied(faulty.through, plan_for(faulty.through, topic_name, *topics.values(), quota=300_000))
    sending = in_small_batches(settings["onprem"])
    for days, topic in topics.items():
        put_old(sending, topic, days, 6_000)

    def more(records: int) -> None:
        for topic in topics.values():
            progress(settings["cloud"], topic, range(2), records)

    def still(count: int, start: int) -> None:  # so that there is something to copy behind every fault
        for days, topic in topics.items():
            put_old(sending, topic, days, count, start)

    with workers(plan, "cloud", tmp_path, SETTLED) as start, Feeding(still, 100, total=6_000) as feeding:
        worker = start()
        more(500)
        proxy.cut()
        more(200)
        proxy.up = ProxyFault(latency_s=1.5)  # a request lands after its connection is gone
        time.sleep(0.3)
        proxy.up = NO_FAULT
        proxy.drop_clients()
        more(200)
        worker.kill()
        start()
        more(200)
        lab_clusters.kill_lab_broker(faulty.home, "cloud")
        lab_clusters.restart_lab_broker(faulty.home, "cloud")
        total = feeding.end()
        for topic in topics.values():
            wait_copied(settings, plan, topic, 2)
    for topic in topics.values():
        assert assert_exact_copy(settings, plan, topic, 2) == total


def test_an_idle_partition_whose_producer_was_forgotten(faulty, topic_name, tmp_path):
    """Copied, forgotten, then new records of today, with a worker that never stopped and one that starts anew."""
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1, {"retention.ms": "-1"})
    plan = applied(faulty.through, plan_for(faulty.through, topic_name, topic_name))
    put_old(in_small_batches(settings["onprem"]), topic_name, 3, 500)
    with workers(plan, "cloud", tmp_path, SETTLED) as start:
        worker = start()
        wait_copied(settings, plan, topic_name, 1)
        time.sleep(2.5)  # two rounds of the broker's look for expired producers
        sending = producer(settings["onprem"])
        put(sending, topic_name, 500, start=500)
        sending.flush()
        wait_copied(settings, plan, topic_name, 1)
        assert worker.stop() == 0
        put_old(in_small_batches(settings["onprem"]), topic_name, 20, 500)
        start()
        wait_copied(settings, plan, topic_name, 1)
    assert copied(settings["cloud"], topic_name, [0]) == 1_500
    assert assert_exact_copy(settings, plan, topic_name, 1) == 1_500


@pytest.mark.soak
def test_a_zombie_wakes_up_where_nobody_remembers_its_numbers(faulty, topic_name, tmp_path):
    """A frozen worker is replaced; when it wakes up, the broker would take anything from it. It must send nothing."""
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1, {"retention.ms": "-1"})
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=100_000))
    sending = in_small_batches(settings["onprem"])
    put_old(sending, topic_name, 3, 10_000)

    def still(count: int, start: int) -> None:
        put_old(sending, topic_name, 3, count, start)

    with workers(plan, "cloud", tmp_path, SETTLED) as start, Feeding(still, 200, total=10_000) as feeding:
        frozen = start()
        progress(settings["cloud"], topic_name, range(2), 400)
        frozen.send(signal.SIGSTOP)
        start()
        progress(settings["cloud"], topic_name, range(2), 400)  # the other one took over
        frozen.send(signal.SIGCONT)
        total = feeding.end()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == total
