"""Who may write to a topic may write under any producer id, also under a flow's: on real brokers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters.admin import Admin
from clusters.claims import claims_of
from clusters.flows import read_flows
from clusters.wire.connection import connect
from clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from lab.clusters import Lab
from replicator.batch import batches_in
from replicator.claims import read_claims
from replicator.look import Led, leaders
from tests.replicator.real import applied, plan_for, producer, put, settings_of, wait_copied, workers
from tests.replicator.test_real_timestamps import in_state
from tests.spark.logs import Packed, a_log, append

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
        loud = in_state(settings["cloud"], topic_name, "target_foreign_write")
    assert loud.error is not None
    assert f"producer {ours} epoch 0 with sequence 3" in loud.error
    assert "source offsets 3 to 3" in loud.error
    assert "reseed" in (loud.remedy or "")


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
    led = leaders(cloud, [place], READ_UNCOMMITTED)[place]
    assert isinstance(led, Led)
    rules = claims_of(read_claims(cloud, {plan.flows[0].id}), topic_name, led.topic_id, 0).rules
    with closing(connect(cloud, led.leader)) as link:
        (answer,) = link.fetch((FetchPartition(led.topic_id, 0, 0),), max_wait_ms=0, isolation=READ_UNCOMMITTED)
    found = [
        any(rule.covers(b.producer_id, b.producer_epoch, b.base_sequence, b.base, b.end) for rule in rules)
        for b in batches_in(answer.records)
    ]
    assert found == [True] * (len(found) - 1) + [False]
    assert len(found) >= 3
