"""Other people's consumers read a copy, and go on at the target where they stopped at the source."""

from __future__ import annotations

import pytest

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
from watershed.replicator.ledger.ledger import read_ledger

pytestmark = pytest.mark.kafka
PARTITIONS = 2


def test_every_consumer_goes_on_at_translated_offsets(kafka_pair, topic_name, tmp_path):
    """Gaps in front of and behind every position, so that no offset is the same on both sides."""
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS)
    sending = producer(settings["onprem"], **{"transactional.id": topic_name})
    sending.init_transactions()
    for number in range(20):
        sending.begin_transaction()
        put(sending, topic_name, 100, start=number * 100)
        sending.flush()
        (sending.abort_transaction if number % 4 == 0 else sending.commit_transaction)()
    wait_decided(settings["onprem"], topic_name)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    flow = plan.flows[0]
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    here, there = (read_all(settings[alias], topic_name, PARTITIONS) for alias in ("onprem", "cloud"))
    ledger = read_ledger(settings["cloud"], flow=flow.id)
    for at, name in enumerate(name for name in READERS if name != "java share"):  # see test_real_aligned_readers
        read = READERS[name]
        group, before = f"{topic_name}-{name.replace(' ', '-')}", 611 + at
        beginning = dict.fromkeys(_places(topic_name), 0)
        positioned(settings["onprem"], name, group, beginning)
        first = read(settings["onprem"], topic_name, group, before)
        committed = settled(settings["onprem"], name, group, beginning, here, first)
        left = from_on(here, topic_name, committed)
        moved = {
            place: ledger.map(flow.id, topic_name, place.partition).to_target(offset, len(there[place.partition]))
            for place, offset in committed.items()
        }
        assert moved != committed
        positioned(settings["cloud"], name, group, moved)
        seen = read(settings["cloud"], topic_name, group, sum(map(len, left.values())))
        assert seen == from_on(there, topic_name, moved), name
        assert _records(seen) == _records(left), name
        settled(settings["cloud"], name, group, moved, there, seen)


def _places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def _records(rows):
    return {number: [record for _, record in each] for number, each in rows.items()}
