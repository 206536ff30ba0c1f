"""Who may write to a topic may write under any producer id, also under a flow's: on real brokers."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replicator.brokers.test_real_timestamps import in_state
from tests.replicator.real import applied, plan_for, producer, put, read_all, settings_of, wait_copied, workers
from tests.spark.logs import Packed, a_log, append
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.claim_rules import find_partition_claims
from watershed.clusters.flow_records import read_flows
from watershed.clusters.producer_registry import read_producers
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from watershed.lab.clusters import Lab
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.ledger.claims import read_claims
from watershed.replicator.recovery.log_inspection import LeaderLog, read_leader_logs
from watershed.topology import compile_path

pytestmark = pytest.mark.kafka


def forged(settings: Any, topic: str, who: tuple[int, int, int]) -> None:
    """One record of nobody's under this producer id, epoch and sequence number."""
    append(settings, topic, {0: (replace(Packed((a_log(99, 1)[0],)), producer=who),)})


def test_a_forged_next_sequence_at_the_target_is_a_foreign_write(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    settings = settings_of(kafka_pair)
    for alias in ("onprem", "cloud"):
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic_name, 1, 1, {"retention.ms": "-1"})
    into = producer(settings["onprem"])
    for number in range(3):
        into.produce(topic_name, b"ours %d" % number)
    assert into.flush(60) == 0
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
        ours = read_flows(settings["cloud"])[plan.flows[0].id].producer_id
        assert ours is not None
        forged(settings["cloud"], topic_name, (ours, 0, 3))
        into.produce(topic_name, b"ours 3")
        assert into.flush(60) == 0
        status = in_state(settings["cloud"], topic_name, "target_foreign_write")
    assert status.error is not None
    assert f"producer {ours} epoch 0 with sequence 3" in status.error
    assert "source offsets 3 to 3" in status.error
    assert "reseed" in (status.remedy or "")


def test_what_a_flow_wrote_by_sequence_numbers_is_claimed_and_a_forged_batch_is_not(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    settings = settings_of(kafka_pair)
    cloud, into = settings["cloud"], producer(settings["onprem"])
    for alias in ("onprem", "cloud"):
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic_name, 1, 1, {"retention.ms": "-1"})
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    for start_at in (0, 200):  # another worker goes on behind the first
        put(into, topic_name, 200, start=start_at)
        assert into.flush(60) == 0
        with workers(plan, "cloud", tmp_path) as start:
            start()
            wait_copied(settings, plan, topic_name, 1)
    ours = read_flows(cloud)[plan.flows[0].id].producer_id
    assert ours is not None
    forged(cloud, topic_name, (ours, 1, 0))  # the broker takes any newer epoch
    place = (topic_name, 0)
    led = read_leader_logs(cloud, [place], READ_UNCOMMITTED)[place]
    assert isinstance(led, LeaderLog)
    rules = find_partition_claims(read_claims(cloud, {plan.flows[0].id}), topic_name, led.topic_id, 0).rules
    with closing(open_connection(cloud, led.leader)) as link:
        (answer,) = link.fetch((FetchPartition(led.topic_id, 0, 0),), max_wait_ms=0, isolation=READ_UNCOMMITTED)
    found = [
        any(rule.covers(b.producer_id, b.producer_epoch, b.base_sequence, b.base, b.end) for rule in rules)
        for b in decode_batches(answer.records)
    ]
    assert found == [True] * (len(found) - 1) + [False]
    assert len(found) >= 3


_PAIR = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: test}}
clusters:
  {name}-a: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  {name}-b: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
defaults: {{naming: {{policy: identity}}, topics: {{include: ["{topic}"]}}, workers: {{engine: process}}}}
flows:
  - {{source: {name}-a, target: {name}-b}}
  - {{source: {name}-b, target: {name}-a, state: {back}}}
"""


@pytest.mark.parametrize("back", ["paused", "running"])
def test_a_record_under_the_id_of_the_flow_back_stops_its_partition_until_it_is_copied(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], back: str
) -> None:
    name, known = f"f{topic_name[-8:]}", settings_of(kafka_pair)
    onprem, cloud = (replace(known[old], alias=f"{name}-{new}") for old, new in (("onprem", "a"), ("cloud", "b")))
    for each in (onprem, cloud):
        with Admin(each) as admin:
            admin.create_topic(topic_name, 2, 1, {"retention.ms": "-1"})
    path = tmp_path / "pair.yaml"
    path.write_text(
        _PAIR.format(name=name, topic=topic_name, onprem=onprem.bootstrap[0], cloud=cloud.bootstrap[0], back=back)
    )
    plan = applied({each.alias: each for each in (onprem, cloud)}, compile_path(path))
    there, again = plan.flows
    (tmp_path / "back").mkdir()
    with workers(plan, cloud.alias, tmp_path) as at_cloud, workers(plan, onprem.alias, tmp_path / "back") as at_onprem:
        at_cloud()
        at_onprem()
        written = write(onprem, topic_name, "born here", 100)
        if back == "running":
            written += write(cloud, topic_name, "born there", 100)
        wait_for(cloud, topic_name, written)
        registered = [id_ for id_, each in read_producers(onprem).items() if each.flow == again.id]
        registered += [id_ for id_ in (read_flows(onprem)[again.id].producer_id,) if id_ is not None]
        append(onprem, topic_name, {1: (replace(Packed((a_log(99, 1)[0],)), producer=(registered[0], 0, 0)),)})
        status = in_state(cloud, topic_name, "source_foreign_write")
        assert f"producer id {registered[0]} of a flow into this cluster" in (status.error or "")
        assert (status.partition, status.seen and status.seen["source"]) == (1, [0, 1])
        asked = ["flow", "copy-foreign", there.id, str(path), "-t", topic_name, "-p", "1"]
        assert main([*asked, "--yes", "--wait", "120"]) == 0, capsys.readouterr()
        assert "source offsets 0 to 0 are copied as an application's" in capsys.readouterr().out
        if back == "running":
            written += write(cloud, topic_name, "afterwards", 10)
        written += write(onprem, topic_name, "at last", 10)
        for each in (onprem, cloud) if back == "running" else (cloud,):
            wait_for(each, topic_name, written)
        assert [record[1] for _, record in read_all(cloud, topic_name, 2)[1]] == [a_log(99, 1)[0].value]


def write(settings: ConnectionSettings, topic: str, text: str, count: int) -> list[bytes]:
    """Into partition 0, in several batches."""
    into = producer(settings)
    found = [f"{text} {number}".encode() for number in range(count)]
    for at, value in enumerate(found):
        into.produce(topic, value, partition=0)
        if at % 10 == 9:
            assert into.flush(60) == 0
    return found


def wait_for(settings: ConnectionSettings, topic: str, written: list[bytes]) -> None:
    """Until partition 0 holds each of them; once is all that it may."""
    deadline = time.monotonic() + 180
    while len(found := [record[1] for _, record in read_all(settings, topic, 2)[0]]) < len(written):
        assert time.monotonic() < deadline, (len(found), len(written))
        time.sleep(0.4)
    assert sorted(value or b"" for value in found) == sorted(written)
