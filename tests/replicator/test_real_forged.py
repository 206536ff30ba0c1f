"""Who may write to a topic may write under any producer id, also under a flow's: on real brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters.admin import Admin
from clusters.flows import read_flows
from lab.clusters import Lab
from tests.replicator.real import applied, plan_for, producer, settings_of, wait_copied, workers
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
