"""What applications wrote behind an offset, told from what a flow brought, from markers and from aborted records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replicator.real import applied, plan_for, producer, read_all, settings_of, wait_copied, wait_decided, workers
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.replicator.batch.records import decode_record_fields
from watershed.replicator.recovery.divergence import read_divergence, read_divergent_records

pytestmark = pytest.mark.kafka


def test_only_the_applications_own_records_are_named(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    settings = settings_of(kafka_pair)
    here = settings["onprem"]
    for alias in ("onprem", "cloud"):
        create_lab_topics(kafka_pair.clusters[alias].bootstrap, [topic_name], 1)
    into = producer(here)
    for number in range(10):
        into.produce(topic_name, f"plain {number}".encode())
    assert into.flush(60) == 0
    transacting = producer(here, **{"transactional.id": topic_name})
    transacting.init_transactions(60)
    for commit in (True, False):
        transacting.begin_transaction()
        for number in range(5):
            transacting.produce(topic_name, f"{'kept' if commit else 'aborted'} {number}".encode())
        transacting.flush(60)
        (transacting.commit_transaction if commit else transacting.abort_transaction)(60)
    wait_decided(here, topic_name)
    there = producer(settings["cloud"])
    for number in range(7):
        there.produce(topic_name, f"brought {number}".encode())
    assert there.flush(60) == 0
    routes = (("cloud", "onprem"),)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, routes=routes, delivery="transactions"))
    with workers(plan, "onprem", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
    for number in range(3):
        into.produce(topic_name, f"late {number}".encode())
    assert into.flush(60) == 0

    place = TopicPartition(topic_name, 0)
    committed = [(at, record[1]) for at, record in read_all(here, topic_name, 1)[0]]
    own = [(at, value) for at, value in committed if at >= 4 and value is not None and b"brought" not in value]
    found = list(read_divergent_records(here, {place: 4}))
    assert [(record.offset, decode_record_fields(record.rest).value) for _, record in found] == own
    seen = read_divergence(here, {place: 4})
    assert [each.records for each in seen.stretches] == [11, 3]
    assert (seen.stretches[0].first, seen.stretches[-1].last) == (4, own[-1][0])
    assert seen.ends[place] == own[-1][0] + 1
    assert list(seen.ids) == [topic_name]
    assert read_divergence(here, {place: seen.ends[place]}).stretches == ()
