"""Two workers and traffic: a partition that a person pauses stands still over restarts, one that is moved is served by
the chosen worker, and nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.replicator.real import (
    applied,
    assert_exact_copy,
    end_of,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    workers,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.cutover.operations.partition_control import propose_partition_order
from watershed.replicator.partition_control import PartitionOrder
from watershed.replicator.transport.stall_detector import WORKER_SESSION_MS
from watershed.topology.plan import Plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PARTITIONS, PAUSED = 6, 3
LATE_S = 5.0  # beside a worker's session timeout: nobody serves its partitions for longer


@contextmanager
def traffic(settings, topic: str) -> Iterator[Callable[[], int]]:
    """A few thousand records a second over all partitions; gives how many there were so far."""
    ended, sent = threading.Event(), [0]
    sending = producer(settings["onprem"])

    def feed() -> None:
        while not ended.wait(0.05):
            put(sending, topic, 200, start=sent[0])
            sent[0] += 200

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        yield lambda: sent[0]
    finally:
        ended.set()
        feeding.join()
        sending.flush()


def until(condition: Callable[[], object], seconds: float = 120) -> float:
    """Seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"not within {seconds} s"
        time.sleep(0.1)
    return time.monotonic() - began


def order(settings, plan: Plan, kind, partition: int | None, **more: str) -> list[str]:
    flow = plan.flows[0]
    topic = flow.topics.include[0].text
    asked = PartitionOrder(kind, topic, partition, **more)
    return [*propose_partition_order(plan, settings.__getitem__, str(flow.id), asked).carry_out("ann")]


def find_report(settings, topic: str, partition: int) -> PartitionStatus | None:
    found = [each for each in read_statuses(settings["cloud"]) if (each.topic, each.partition) == (topic, partition)]
    return found[0] if found else None


def is_shared(settings, plan: Plan, count: int) -> bool:
    with Admin(settings["cloud"]) as admin:
        given = read_slot_owners(admin, plan.topology)
    return len(given) == SLOT_COUNT and len(set(given.values())) == count


def advance(settings, topic: str) -> None:
    """Until each partition but the paused one has got more records at the target."""
    others = [number for number in range(PARTITIONS) if number != PAUSED]
    before = {number: end_of(settings["cloud"], topic, number) for number in others}
    until(lambda: all(end_of(settings["cloud"], topic, number) > before[number] + 50 for number in others))


@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_a_paused_partition_stands_still_over_restarts_of_all_workers(kafka_pair, topic_name, tmp_path, delivery):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery=delivery))
    with traffic(settings, topic_name) as sent:
        with workers(plan, "cloud", tmp_path) as start:
            start(), start()
            until(lambda: is_shared(settings, plan, 2))
            until(lambda: end_of(settings["cloud"], topic_name, PAUSED) > 100)
            told = order(settings, plan, "pause", PAUSED, reason="a poisonous record")
            assert told[0].startswith(f"{topic_name}-{PAUSED} of {plan.flows[0].id}: paused")
            took = until(lambda: getattr(find_report(settings, topic_name, PAUSED), "state", "") == "paused")
            stood = end_of(settings["cloud"], topic_name, PAUSED)
            print(f"\n{delivery}: paused after {took:.1f} s at target offset {stood}, {sent()} records sent")
            advance(settings, topic_name)
            assert end_of(settings["cloud"], topic_name, PAUSED) == stood
        with workers(plan, "cloud", tmp_path) as start:  # the whole fleet anew
            first, second = start(), start()
            until(lambda: is_shared(settings, plan, 2))
            advance(settings, topic_name)
            report = find_report(settings, topic_name, PAUSED)
            assert report is not None
            assert (report.state, report.pid in (first.pid, second.pid)) == ("paused", True)
            assert end_of(settings["cloud"], topic_name, PAUSED) == stood
            applied(settings, plan)  # takes nothing of it back
            advance(settings, topic_name)
            assert end_of(settings["cloud"], topic_name, PAUSED) == stood
            order(settings, plan, "resume", PAUSED)
            took = until(lambda: end_of(settings["cloud"], topic_name, PAUSED) > stood)
            print(f"{delivery}: goes on after {took:.1f} s, {sent()} records sent")
            advance(settings, topic_name)
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    print(f"{assert_exact_copy(settings, plan, topic_name, PARTITIONS)} records, each once")


def test_a_moved_partition_is_served_by_the_chosen_worker_until_that_is_killed(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))

    def serving(number: int) -> int:
        report = find_report(settings, topic_name, number)
        return report.pid if report is not None and report.state in ("running", "catching_up") else 0

    with workers(plan, "cloud", tmp_path) as start:
        with traffic(settings, topic_name) as sent:
            both = {each.pid: each for each in (start(), start())}
            until(lambda: is_shared(settings, plan, 2))
            until(lambda: all(serving(number) for number in range(PARTITIONS)))
            moved = PAUSED
            home = serving(moved)
            (chosen,) = set(both) - {home}
            name = next(
                each.worker
                for each in read_statuses(settings["cloud"])
                if each.topic == topic_name and each.pid == chosen
            )
            began = time.monotonic()
            told = order(settings, plan, "move", moved, worker=name)
            print(f"\nmoved after {time.monotonic() - began:.1f} s: {told}")
            assert told[-1] == f"{topic_name}-{moved} is served by worker {name}"
            before = end_of(settings["cloud"], topic_name, moved)
            until(lambda: serving(moved) == chosen and end_of(settings["cloud"], topic_name, moved) > before + 200)

            both[chosen].kill()
            stood = end_of(settings["cloud"], topic_name, moved)
            within = WORKER_SESSION_MS / 1000 + LATE_S
            took = until(lambda: end_of(settings["cloud"], topic_name, moved) > stood, within)
            until(lambda: serving(moved) == home)
            print(f"killed, and others copy it after {took:.1f} s (session {WORKER_SESSION_MS} ms), {sent()} sent")
            third = start()
            until(lambda: is_shared(settings, plan, 2))
            began = time.monotonic()
            assert order(settings, plan, "move", None, worker=f"w{third.pid}")[-1].startswith(
                f"{topic_name}-5 is served"
            )
            print(f"the whole topic moved after {time.monotonic() - began:.1f} s")
            assert [serving(number) for number in range(PARTITIONS)] == [third.pid] * PARTITIONS
            order(settings, plan, "release", None)
        wait_copied(settings, plan, topic_name, PARTITIONS)
    print(f"{assert_exact_copy(settings, plan, topic_name, PARTITIONS)} records, each once")
