"""`provenance.header` between real clusters: each record says where it came from, whatever becomes of the worker."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.real import (
    applied,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    wait_progress,
    workers,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.provenance_header import RecordOrigin, decode_record_origin
from watershed.replicator.apply import apply_plan
from watershed.replicator.apply_refusals import CannotApply
from watershed.topology.plan import Plan, seal_plan

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka]
COUNT = 6_000


def assert_each_tells(settings, plan: Plan, topic: str, partitions: int) -> int:
    """The target has the source's records, in order, each once, with its own header and no other change."""
    with Admin(settings["onprem"]) as admin:
        cluster_id = admin.cluster_id()
    here, there = (read_all(settings[alias], topic, partitions) for alias in ("onprem", "cloud"))
    for number in range(partitions):
        assert len(here[number]) == len(there[number]) > 0
        for (offset, (key, value, time_ms, headers)), (_, copy) in zip(here[number], there[number], strict=True):
            assert copy[:3] == (key, value, time_ms)
            assert copy[3][:-1] == headers
            name, text = copy[3][-1]
            assert name == plan.flows[0].header
            assert decode_record_origin(text) == RecordOrigin(cluster_id, topic, number, offset, time_ms)
    return sum(map(len, here.values()))


def write(settings, topic: str, partitions: int = 2, *, codec: str = "lz4") -> None:
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic, partitions, 1, {"retention.ms": "-1"})
    sending = producer(settings["onprem"], **{"compression.type": codec})
    put(sending, topic, COUNT)
    assert sending.flush(60) == 0


@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_each_record_says_where_it_came_from_although_the_worker_dies(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, delivery: str
) -> None:
    settings = settings_of(kafka_pair)
    write(settings, topic_name)
    flow = {"header": "came-from", "delivery": delivery, "quota": 400_000}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, **flow))
    with workers(plan, "cloud", tmp_path) as start:
        first = start()
        wait_progress(settings, plan, topic_name, 2, 500)
        first.kill()
        start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_each_tells(settings, plan, topic_name, 2) == COUNT
    without = seal_plan(replace(plan, flows=(replace(plan.flows[0], header=None),)))
    with pytest.raises(CannotApply, match="Restore `header: came-from`"):
        apply_plan(without, settings.__getitem__)


def test_a_record_that_has_come_round_stands_still_until_a_person_decides(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    """Somebody wrote to the source what the target had got from it."""
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1, {})
        text = f"v1 {admin.cluster_id()} {topic_name} 0 0 1"
    sending = producer(settings["onprem"])
    sending.produce(topic_name, b"once", headers=[("came-from", text.encode())])
    assert sending.flush(60) == 0
    plan = applied(settings, plan_for(settings, topic_name, topic_name, header="came-from"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        deadline = time.monotonic() + 60
        while True:
            found = [each for each in read_statuses(settings["cloud"]) if each.topic == topic_name]
            if found and found[0].state == "source_foreign_write":
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
    assert text in (found[0].error or "")
    assert read_all(settings["cloud"], topic_name, 1)[0] == []
