"""Killing what copies: nothing lost, nothing twice, the map exact. Brokers are killed in test_fault_restarts.py."""

from __future__ import annotations

import signal

import pytest

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import Feeding, progress, times
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
from watershed.clusters.admin import Admin

pytestmark = pytest.mark.kafka

QUICK = times(session=3)


def test_a_worker_killed_again_and_again_in_mid_copy(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 4, 1)
    sending = producer(settings["onprem"], **{"batch.size": 4_000, "compression.type": "lz4"})
    # A quota keeps the copy going long enough to be killed in the middle of it.
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=500_000))
    put(sending, topic_name, 20_000, size=200)
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        for round_ in range(3):
            worker = start()
            put(sending, topic_name, 2_000, start=20_000 + round_ * 2_000, size=200)
            wait_progress(settings, plan, topic_name, 4, 1_500 + round_ * 3_000)
            worker.kill()
        sending.flush()
        start()
        wait_copied(settings, plan, topic_name, 4)
    assert assert_exact_copy(settings, plan, topic_name, 4) == 26_000


def test_a_worker_killed_between_transactions(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=4_000))
    committed = transactions(settings["onprem"], topic_name, 20)
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        for round_ in range(2):
            worker = start()
            wait_progress(settings, plan, topic_name, 2, 20 + round_ * 40)
            worker.kill()
        start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == committed


@pytest.mark.soak
def test_a_frozen_worker_that_wakes_up_after_it_was_replaced(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings["onprem"])
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=1_000_000))
    put(sending, topic_name, 40_000, size=200)

    def still(count: int, start: int) -> None:
        put(sending, topic_name, count, start=start, size=200)

    with workers(plan, "cloud", tmp_path, QUICK) as start, Feeding(still, 1_000, total=40_000) as feeding:
        frozen = start()
        wait_progress(settings, plan, topic_name, 2, 3_000)
        frozen.send(signal.SIGSTOP)
        start()
        progress(settings["cloud"], topic_name, range(2), 5_000)  # more than was under way: the other one took over
        frozen.send(signal.SIGCONT)
        progress(settings["cloud"], topic_name, range(2), 5_000)
        total = feeding.end()
        sending.flush()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == total
