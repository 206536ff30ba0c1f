"""Somebody else's records in every control topic of a real broker: workers start and copy all the same, and only the
partition whose ledger was spoilt stands still until its key is healed."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.replicator.real import applied, read_all, settings_of, wait_copied, workers
from tests.replicator.states_scene import QUICK, create, in_state, produce, until, written
from watershed.clusters.control_topics import (
    FLOWS_TOPIC,
    JOURNAL_TOPIC,
    LEDGER_TOPIC,
    SLOT_COUNT,
    STATUS_TOPIC,
    compute_slot,
)
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.attack.control_records import BAD_VALUES, KEY_KINDS

pytestmark = pytest.mark.kafka


def put(settings: ConnectionSettings, records: list[tuple[str, str | None, bytes | None, int]]) -> None:
    producer = Producer(settings.librdkafka())
    for topic, key, value, partition in records:
        producer.produce(topic, value, None if key is None else key.encode(), partition)
    assert producer.flush(60) == 0


def test_workers_copy_whatever_stands_in_the_control_topics(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    cloud, fine, spoilt = settings["cloud"], f"{topic_name}-fine", f"{topic_name}-spoilt"
    plan = written(tmp_path / "control.yaml", settings, topic_name, [fine, spoilt])
    flow = plan.flows[0].id
    create(settings["onprem"], fine, spoilt)
    for topic in (fine, spoilt):
        produce(settings["onprem"], topic, 0, 50)
    applied(settings, plan)
    keys = [f"{prefix}{topic_name}{at}" for prefix in ("", *KEY_KINDS) for at in range(len(BAD_VALUES))]
    strange = [(FLOWS_TOPIC, key, BAD_VALUES[at % len(BAD_VALUES)], 0) for at, key in enumerate(keys)]
    strange += [
        (topic, topic_name, bad, slot)
        for topic in (LEDGER_TOPIC, STATUS_TOPIC)
        for slot in range(SLOT_COUNT)
        for bad in BAD_VALUES
    ]
    slot, key = compute_slot(flow, spoilt, 0), f"{flow}|{spoilt}|0|1.intruder|0"
    put(
        cloud,
        [*strange, *((JOURNAL_TOPIC, None, bad, 0) for bad in BAD_VALUES), (LEDGER_TOPIC, key, b"not json", slot)],
    )
    try:
        with workers(plan, "cloud", tmp_path, QUICK) as start:
            start()
            until(lambda: len(read_all(cloud, fine, 1)[0]) == 50, "the partition beside it is copied")
            report = in_state(settings, plan, spoilt, "ledger_invalid")
            assert f"{LEDGER_TOPIC} holds a record at partition {slot} offset" in report.error
            assert key in report.error
            put(cloud, [(LEDGER_TOPIC, key, None, slot)])
            wait_copied(settings, plan, spoilt, 1)
    finally:
        put(cloud, [(topic, key, None, partition) for topic, key, _, partition in strange])
