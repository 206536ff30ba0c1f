"""Topics and partitions that come and go while others are copied, on brokers that create topics by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    workers,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import clusters as lab_clusters
from watershed.replicator.apply import apply_plan
from watershed.replicator.ledger.ledger import read_ledger
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

pytestmark = pytest.mark.kafka

Settings = dict[str, ConnectionSettings]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A pair whose brokers create a topic for whoever asks for it in the wrong way: nobody may."""
    home = tmp_path_factory.mktemp("growth")
    try:
        yield settings_of(
            lab_clusters.start_clusters(home, ["onprem", "cloud"], settings={"auto.create.topics.enable": "true"})
        )
    finally:
        lab_clusters.end_clusters(home)


def glob_plan(settings: Settings, name: str, *without: str, **flow) -> Plan:
    """All topics that begin with `name`, but for some."""
    plan = plan_for(settings, name, name, **flow)
    topics = TopicSelection((Selector("glob", f"{name}*"),), tuple(Selector("literal", each) for each in without))
    return seal_plan(replace(plan, flows=(replace(plan.flows[0], topics=topics),)))


def create(settings: ConnectionSettings, topic: str, partitions: int, records: int = 0) -> None:
    with Admin(settings) as admin:
        admin.create_topic(topic, partitions, 1)
    write(settings, topic, records)


def grow(settings: ConnectionSettings, topic: str, partitions: int) -> None:
    with Admin(settings) as admin:
        admin.create_partitions(topic, partitions)


def write(settings: ConnectionSettings, topic: str, records: int) -> None:
    sending = producer(settings)
    put(sending, topic, records)
    assert sending.flush(60) == 0


def delete(settings: ConnectionSettings, topic: str) -> None:
    client = AdminClient(settings.librdkafka())
    client.delete_topics([topic])[topic].result(60)


def reports(settings: Settings, topic: str) -> dict[int, PartitionStatus]:
    return {report.partition: report for report in read_statuses(settings["cloud"]) if report.topic == topic}


def generations(settings: Settings, plan: Plan, topic: str) -> dict[int, int]:
    """How often each partition was looked at, by its number in the ledger."""
    ledger = read_ledger(settings["cloud"], flow=plan.flows[0].id)
    return {key.partition: number for key, (_, number) in ledger.partitions.items() if key.topic == topic}


def until(condition: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.5)


def test_topics_and_partitions_come_and_go_and_nothing_else_restarts(settings, topic_name, tmp_path):
    stays, comes = f"{topic_name}-stays", f"{topic_name}-comes"
    create(settings["onprem"], stays, 2, 2_000)
    plan = applied(settings, glob_plan(settings, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, stays, 2)
        before = generations(settings, plan, stays)
        assert sorted(before) == [0, 1]

        create(settings["onprem"], comes, 3, 1_000)
        grow(settings["onprem"], stays, 4)
        write(settings["onprem"], stays, 4_000)
        until(lambda: there(settings, comes, 3) and there(settings, stays, 4))
        wait_copied(settings, plan, comes, 3)
        wait_copied(settings, plan, stays, 4)

        delete(settings["onprem"], comes)
        until(lambda: {each.state for each in reports(settings, comes).values()} == {"source_gone"})
        assert all("Take" in str(each.remedy) for each in reports(settings, comes).values())
        write(settings["onprem"], stays, 1_000)
        wait_copied(settings, plan, stays, 4)

        apply_plan(glob_plan(settings, topic_name, comes), settings.__getitem__)
        until(lambda: not reports(settings, comes))
        write(settings["onprem"], stays, 1_000)
        wait_copied(settings, plan, stays, 4)
        after = generations(settings, plan, stays)
        assert {number: after[number] for number in before} == before, (
            "partitions that were copied were looked at again"
        )
    assert assert_exact_copy(settings, plan, stays, 4) == 8_000
    with Admin(settings["onprem"]) as source, Admin(settings["cloud"]) as target:
        assert comes not in source.shapes(), "a deleted topic came back"
        assert target.shapes()[comes].partitions == 3
    assert sum(map(len, read_all(settings["cloud"], comes, 3).values())) == 1_000


@pytest.mark.soak
def test_a_topic_that_was_deleted_while_no_worker_ran_is_told_as_gone(settings, topic_name, tmp_path):
    gone, stays = f"{topic_name}-gone", f"{topic_name}-stays"
    create(settings["onprem"], gone, 2, 500)
    create(settings["onprem"], stays, 1, 100)
    plan = applied(settings, glob_plan(settings, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        first = start()
        wait_copied(settings, plan, gone, 2)
        assert first.stop() == 0
        delete(settings["onprem"], gone)
        start()
        until(lambda: [each.state for each in reports(settings, gone).values()] == ["source_gone"] * 2)
        wait_copied(settings, plan, stays, 1)
    with Admin(settings["onprem"]) as source:
        assert gone not in source.shapes()


def test_a_deleted_target_stays_deleted(settings, topic_name, tmp_path):
    create(settings["onprem"], topic_name, 2, 500)
    plan = applied(settings, glob_plan(settings, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
        delete(settings["cloud"], topic_name)
        write(settings["onprem"], topic_name, 500)
        until(lambda: [each.state for each in reports(settings, topic_name).values()] == ["target_gone"] * 2)
        time.sleep(3)  # some discoveries later
    with Admin(settings["cloud"]) as target:
        assert topic_name not in target.shapes()


def test_fixed_partitions_wait_with_a_remedy_until_the_target_has_them(settings, topic_name, tmp_path):
    create(settings["onprem"], topic_name, 2, 500)
    plan = applied(settings, glob_plan(settings, topic_name, grow=False))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
        grow(settings["onprem"], topic_name, 3)
        write(settings["onprem"], topic_name, 1_000)
        until(lambda: 2 in (found := reports(settings, topic_name)) and found[2].state == "unsupported")
        held = reports(settings, topic_name)[2]
        assert (held.state, "has 3 partitions" in held.error) == ("unsupported", True)
        assert "partitions.mode" in held.remedy
        with Admin(settings["onprem"]) as admin:
            ends = admin.offsets(TopicPartition(topic_name, number) for number in range(2))
        until(
            lambda: (
                {number: len(found) for number, found in read_all(settings["cloud"], topic_name, 2).items()}
                == {key.partition: span.end for key, span in ends.items()}
            )
        )
        grow(settings["cloud"], topic_name, 3)
        until(lambda: reports(settings, topic_name)[2].state == "running")
        wait_copied(settings, plan, topic_name, 3)
    assert assert_exact_copy(settings, plan, topic_name, 3) == 1_500


def test_latest_skips_what_existed_and_nothing_that_came_later(settings, topic_name, tmp_path):
    old, new = f"{topic_name}-old", f"{topic_name}-new"
    create(settings["onprem"], old, 1, 300)
    plan = applied(settings, glob_plan(settings, topic_name, start="latest"))
    create(settings["onprem"], new, 1, 200)  # after the flow was applied, before a worker saw it
    grow(settings["onprem"], old, 2)
    sending = producer(settings["onprem"])
    for number in range(50):
        sending.produce(old, b"in the new partition %d" % number, partition=1)
    sending.flush()
    with workers(plan, "cloud", tmp_path) as start:
        start()
        until(lambda: there(settings, new, 1) and len(read_all(settings["cloud"], new, 1)[0]) == 200)
        until(lambda: generations(settings, plan, old).keys() == {0, 1})
        for number in range(20):
            sending.produce(old, b"after the start %d" % number, partition=0)
        sending.flush()
        until(lambda: [len(found) for found in read_all(settings["cloud"], old, 2).values()] == [20, 50])


def there(settings: Settings, topic: str, partitions: int) -> bool:
    with Admin(settings["cloud"]) as admin:
        shape = admin.shapes().get(topic)
    return shape is not None and shape.partitions == partitions
