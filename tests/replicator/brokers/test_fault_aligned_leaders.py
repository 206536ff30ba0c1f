"""Equal offsets and clusters of three brokers whose leaders change: in the middle of the fill, of the copy, and before
consumers move."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as WirePartition

from clusters.admin import Admin
from clusters.errors import ClusterError
from clusters.topic_partition import TopicPartition
from clusters.wire.connection import open_connection
from lab import clusters as lab_clusters
from tests.replicator.brokers.test_fault_leaders import leaders, tri
from tests.replicator.brokers.test_real_aligned import assert_same_offsets, begins_at
from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import Feeding, progress, times
from tests.replicator.readers import READERS, from_on, positioned, settled
from tests.replicator.real import applied, plan_for, producer, put, read_all, wait_copied, workers

pytestmark = pytest.mark.kafka
PARTITIONS = 2
START = 30_000_000
__all__ = ["tri"]  # the fixture: three brokers, and the pair that all tests share


def test_leaders_are_killed_while_a_target_is_filled_and_copied(tri, topic_name, tmp_path):
    home, settings = tri
    begins_at(settings["onprem"], topic_name, PARTITIONS, START)
    committed = transactions(settings["onprem"], topic_name, 10)
    flow = {"routes": (("onprem", "tri"),), "replication_factor": 3, "offsets": "aligned"}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, "tri", tmp_path, times(session=3)) as start:
        start()
        filled = _wait_end(settings["tri"], topic_name, 100_000)
        assert filled < START, "the fill was over before the leader could be killed"
        victim = leaders(settings["tri"], topic_name)[0]
        lab_clusters.kill_lab_broker(home, "tri", victim)
        _wait_end(settings["tri"], topic_name, START)
        lab_clusters.restart_lab_broker(home, "tri", victim)
        wait_copied(settings, plan, topic_name, PARTITIONS)

        def send(count: int, start: int) -> None:
            nonlocal committed
            committed += transactions(settings["onprem"], topic_name, 3)

        with Feeding(send, 10) as feeding:
            progress(settings["tri"], topic_name, range(PARTITIONS), 100)
            victim = leaders(settings["tri"], topic_name)[1]
            lab_clusters.kill_lab_broker(home, "tri", victim)
            progress(settings["tri"], topic_name, range(PARTITIONS), 300)
            lab_clusters.restart_lab_broker(home, "tri", victim)
            feeding.end()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    sides = {"onprem": settings["onprem"], "cloud": settings["tri"]}
    assert assert_same_offsets(sides, topic_name, PARTITIONS) == committed


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
