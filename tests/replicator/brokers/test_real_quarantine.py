"""Records that a real target does not take (AC-83, AC-84): kept with their coordinates, the partition goes on, the map
has a gap there; without the policy the partition stops, and others go on."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Producer

from tests.replicator.real import applied, read_all, settings_of, workers
from tests.replicator.states_scene import (
    QUICK,
    commands,
    create,
    in_state,
    produce,
    typed,
    until,
    written,
)
from watershed.cli.main import main
from watershed.replicator.copy.quarantine import read_quarantine
from watershed.replicator.ledger.ledger import read_ledger

pytestmark = pytest.mark.kafka

LARGE = 400_000


def mixed(settings, topic: str, key: bytes | None = b"k") -> dict[int, bytes]:
    """Thirty records, three of which are too large, three too old, three from the future, one without a key: offset →
    why, for those that the target does not take."""
    sending = Producer(settings.librdkafka({"linger.ms": 20, "batch.num.messages": 7}))
    now, odd = int(time.time() * 1000), {}
    for number in range(30):
        value, when = b"value %d" % number, now
        if number in (3, 10, 11):
            value, odd[number] = b"x" * LARGE, b"bytes"
        elif number in (5, 20, 29):
            when, odd[number] = now - 30 * 86_400_000, b"INVALID_TIMESTAMP"
        elif number in (0, 21, 22):
            when, odd[number] = now + 30 * 86_400_000, b"INVALID_TIMESTAMP"
        if number == 15 and key is None:
            odd[number] = b"without key"
        name = key if number == 15 else b"key %d" % number
        sending.produce(topic, value, name, timestamp=when, headers=[("n", b"%d" % number), ("null", None)])
    assert sending.flush(60) == 0
    return odd


# What the source takes and the target does not.
TAKES_ALL = {
    "max_message_bytes": "1000000",
    "message_timestamp_after_max_ms": str(400 * 86_400_000),
    "message_timestamp_before_max_ms": str(400 * 86_400_000),
}
TAKES_LITTLE = {
    "max_message_bytes": "100000",
    "message_timestamp_after_max_ms": "3600000",
    "message_timestamp_before_max_ms": str(86_400_000),
}


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_what_the_target_does_not_take_is_quarantined_in_order(kafka_pair, topic_name, tmp_path, capsys, cleanup):
    settings = settings_of(kafka_pair)
    create(settings["onprem"], topic_name, **TAKES_ALL)
    create(settings["cloud"], topic_name, cleanup_policy=cleanup, **TAKES_LITTLE)
    odd = mixed(settings["onprem"], topic_name, b"k" if cleanup == "delete" else None)
    path = tmp_path / "quarantine.yaml"
    plan = applied(settings, written(path, settings, topic_name, [topic_name], "rejected: quarantine"))
    flow_id = plan.flows[0].id
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        until(lambda: len(read_all(settings["cloud"], topic_name, 1)[0]) >= 30 - len(odd), "the others are copied")
        produce(settings["onprem"], topic_name, 30, 5)
        until(lambda: len(read_all(settings["cloud"], topic_name, 1)[0]) >= 35 - len(odd), "it goes on")
    here = read_all(settings["onprem"], topic_name, 1)[0]
    there = read_all(settings["cloud"], topic_name, 1)[0]
    assert [record for _, record in there] == [record for offset, record in here if offset not in odd]

    kept = read_quarantine(settings["cloud"], flow_id)
    assert [each.offset for each in kept] == sorted(odd)
    by_offset = dict(here)
    for each in kept:
        key, value, timestamp, headers = by_offset[each.offset]
        assert (each.flow, each.topic, each.target_topic, each.partition) == (flow_id, topic_name, topic_name, 0)
        assert (each.key, each.value, each.timestamp, each.headers) == (key, value, timestamp, headers)
        assert each.whole
        assert odd[each.offset].decode() in each.reason, each

    # The map has a gap where each stood: a reader there continues with the next record.
    offsets, position = read_ledger(settings["cloud"], flow_id).map(flow_id, topic_name, 0), 0
    for offset, _ in here:
        assert offsets.to_target(offset, len(there)) == position
        if offset not in odd:
            assert offsets.to_source(position) == offset
            position += 1

    assert main(["flow", "quarantined", flow_id, str(path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["count"] == len(odd)
    assert not {"key", "value", "headers"} & set(document["records"][0])
    assert main(["flow", "quarantined", flow_id, str(path), "--reveal"]) == 0
    assert "key 1" in capsys.readouterr().out


def test_without_the_policy_the_partition_stops_and_heals_by_its_remedy(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    fine, odd = f"{topic_name}-fine", f"{topic_name}-odd"
    create(settings["onprem"], fine, odd, **TAKES_ALL)
    create(settings["cloud"], odd, **TAKES_LITTLE)
    refused = mixed(settings["onprem"], odd)
    produce(settings["onprem"], fine, 0, 50)
    path = tmp_path / "rejected.yaml"
    plan = applied(settings, written(path, settings, topic_name, [fine, odd]))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        stopped = in_state(settings, plan, odd, "rejected")
        until(lambda: len(read_all(settings["cloud"], fine, 1)[0]) == 50, "the other topic is copied")
        in_state(settings, plan, fine, "running")
        first = min(refused)
        assert stopped.seen["source"][0] == first
        assert "source offset" in stopped.error
        assert len(read_all(settings["cloud"], odd, 1)[0]) == first
        # The remedy's second way: the policy, and apply again.
        assert commands(stopped.remedy)[-1] == "topology apply FILE"
        written(path, settings, topic_name, [fine, odd], "rejected: quarantine")
        assert typed(commands(stopped.remedy)[-1], path, "--yes") == 0
        assert typed(commands(stopped.remedy)[0], path) == 0
        until(lambda: len(read_all(settings["cloud"], odd, 1)[0]) == 30 - len(refused), "it goes on")
    assert [each.offset for each in read_quarantine(settings["cloud"], plan.flows[0].id)] == sorted(refused)
