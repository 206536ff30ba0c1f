"""Several workers, real brokers: what each of them carries, and that any of them may come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from tests.replicator.real import (
    WorkerProcess,
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    workers,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT, compute_slot
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.topology.plan import Plan, PlanCluster, seal_plan

pytestmark = pytest.mark.kafka

PARTITIONS = 24
# Placements are decided every two seconds here, and every minute in life.
OFTEN = "import watershed.replicator.worker.worker; watershed.replicator.worker.worker._PLACED_EVERY_S = 2.0"


def until(condition: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


def reports(settings, topic: str) -> list[PartitionStatus]:
    return [report for report in read_statuses(settings["cloud"]) if report.topic == topic]


def owners(settings, topology: str) -> dict[int, str]:
    with Admin(settings["cloud"]) as admin:
        return read_slot_owners(admin, topology)


def shared_by(workers: int, settings, topology: str) -> dict[int, str]:
    """Wait until so many workers serve all slots; who serves which."""
    began = time.monotonic()
    while True:
        given = owners(settings, topology)
        if len(given) == SLOT_COUNT and len(set(given.values())) == workers:
            print(f"{workers} workers share the slots after {time.monotonic() - began:.1f} s")
            return given
        assert time.monotonic() < began + 180, f"{workers} workers were to share the slots, but: {given}"
        time.sleep(0.1)


@contextmanager
def load_on(into: Producer, topic: str, partitions: list[int], rate: int) -> Iterator[None]:
    """About `rate` bytes a second, in records of 2 kB, on these partitions."""
    ended = threading.Event()

    def feed() -> None:
        number = 0
        while not ended.wait(0.02):
            for _ in range(max(rate // 50 // 2_000, 1)):
                into.produce(topic, b"%08d" % number + b"." * 1_990, partition=partitions[number % len(partitions)])
                number += 1
            into.poll(0)

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        yield
    finally:
        ended.set()
        feeding.join()
        into.flush()


def test_two_workers_both_carry_bytes_when_few_partitions_have_all_of_them(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    flow = plan.flows[0].id
    with workers(plan, "cloud", tmp_path, OFTEN) as start:
        start(), start()
        given = shared_by(2, settings, plan.topology)
        until(lambda: len(reports(settings, topic_name)) == PARTITIONS)
        mine = {slot for slot, owner in given.items() if owner == given[0]}
        hot = [number for number in range(PARTITIONS) if compute_slot(flow, topic_name, number) in mine][:4]
        assert len(hot) > 1

        def carrying() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for report in reports(settings, topic_name):
                if report.partition in hot and report.rate_bytes > 50_000:
                    found.setdefault(report.worker, []).append(report.partition)
            return found

        with load_on(producer(settings["onprem"]), topic_name, hot, 2_500_000):
            until(lambda: len(carrying()) == 2)
            print("\nhot partitions by worker:", carrying())
        wait_copied(settings, plan, topic_name, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) > 0


def test_what_is_applied_reaches_a_running_worker(kafka_pair, topic_name, tmp_path):
    """A new flow, from a cluster that the worker has never heard of, and then another address of that cluster."""
    settings = settings_of(kafka_pair)
    branch = f"{topic_name}-branch"
    with Admin(settings["onprem"]) as admin:
        for name in (topic_name, branch):
            admin.create_topic(name, 2, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    sending = producer(settings["onprem"])
    with workers(plan, "cloud", tmp_path) as start:
        worker = start()
        put(sending, topic_name, 1_000)
        sending.flush()
        wait_copied(settings, plan, topic_name, 2)

        port = settings["onprem"].bootstrap[0].rpartition(":")[2]
        settings["branch"] = replace(settings["onprem"], alias="branch", bootstrap=(f"localhost:{port}",))
        further = plan_for(settings, topic_name, branch, routes=(("branch", "cloud"),))
        both = applied(settings, seal_plan(replace(further, flows=(*further.flows, *plan.flows))))
        put(sending, branch, 1_000)
        sending.flush()
        wait_copied(settings, further, branch, 2)

        settings["branch"] = replace(settings["branch"], bootstrap=(f"127.0.0.1:{port}",))
        applied(settings, replace_clusters(both, settings))
        until(
            lambda: "clusters changed" in worker.log.read_text() and worker.log.read_text().count("copying flow") >= 6
        )
        put(sending, branch, 1_000, start=1_000)
        sending.flush()
        wait_copied(settings, further, branch, 2)
        assert worker.runs()
    assert assert_exact_copy(settings, plan, topic_name, 2) == 1_000
    assert assert_exact_copy(settings, further, branch, 2) == 2_000


def replace_clusters(plan: Plan, settings) -> Plan:
    return seal_plan(replace(plan, clusters=tuple(PlanCluster(a, each.bootstrap) for a, each in settings.items())))


def test_workers_come_and_go_and_nothing_is_lost_or_doubled(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))

    sending, sent = producer(settings["onprem"]), 0
    with workers(plan, "cloud", tmp_path) as start:
        running: list[WorkerProcess] = []
        for step in ("join", "join", "join", "stop", "join", "kill", "stop"):
            if step == "join":
                running.append(start())
            elif step == "stop":
                assert running.pop(0).stop() == 0
            else:
                running.pop(0).kill()
            put(sending, topic_name, 3_000, start=sent)
            sent += 3_000
            shared_by(len(running), settings, plan.topology)
        assert running.pop().stop() == 0
        put(sending, topic_name, 3_000, start=sent)
        sending.flush()
        start(), start()  # the whole fleet anew
        wait_copied(settings, plan, topic_name, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == sent + 3_000
