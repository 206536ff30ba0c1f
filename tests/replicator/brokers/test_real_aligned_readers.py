"""Consumers of others read an aligned copy: a group goes on at the target with the numbers it has committed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.replicator.brokers.test_real_aligned import START, begins_at
from tests.replicator.readers import READERS, from_on, positioned, settled
from tests.replicator.real import (
    applied,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    wait_decided,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition

pytestmark = pytest.mark.kafka
PARTITIONS = 2


def test_every_consumer_goes_on_with_the_same_number(kafka_pair, topic_name, tmp_path):
    """The topic begins at five million, every fourth transaction was rolled back: gaps before and behind the groups."""
    settings = settings_of(kafka_pair)
    begins_at(settings["onprem"], topic_name, PARTITIONS, START)
    sending = producer(settings["onprem"], **{"transactional.id": topic_name})
    sending.init_transactions()
    for number in range(20):
        sending.begin_transaction()
        put(sending, topic_name, 100, start=number * 100)
        sending.flush()
        (sending.abort_transaction if number % 4 == 0 else sending.commit_transaction)()
    wait_decided(settings["onprem"], topic_name)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, offsets="aligned"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    here, there = (read_all(settings[alias], topic_name, PARTITIONS) for alias in ("onprem", "cloud"))
    assert there == here
    places = [TopicPartition(topic_name, number) for number in range(PARTITIONS)]
    with Admin(settings["onprem"]) as admin:
        beginning = {place: span.start for place, span in admin.offsets(places).items()}
    assert set(beginning.values()) == {START}

    def moves(name: str) -> None:
        read, group = READERS[name], f"{topic_name}-{name.replace(' ', '-')}"
        positioned(settings["onprem"], name, group, beginning)
        first = read(settings["onprem"], topic_name, group, 611)
        number = settled(settings["onprem"], name, group, beginning, here, first)
        left = from_on(here, topic_name, number)
        positioned(settings["cloud"], name, group, number)
        seen = read(settings["cloud"], topic_name, group, sum(map(len, left.values())))
        assert seen == left, name
        settled(settings["cloud"], name, group, number, there, seen)

    with ThreadPoolExecutor() as pool:  # they wait more than they work
        list(pool.map(moves, READERS))
