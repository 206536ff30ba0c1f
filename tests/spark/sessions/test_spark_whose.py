"""Where others write, too: merged topics and two-way pairs on real brokers. Only a flow's own records count for it, and
what is wrong with those is found all the same."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.real import applied, plan_for, settings_of, workers
from tests.spark.logs import Log, a_log, append, packed
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.ledger import read_ledger
from watershed.spark.judging.record_ownership import NO_KNOWN_PRODUCER, read_target_writers
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, seal_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SHARED: dict[str, Any] = {"delivery": "transactions", "delivery_reason": "others write there, too"}


def create(settings: dict[str, ConnectionSettings], **topics: tuple[str, ...]) -> None:
    for alias, names in topics.items():
        with Admin(settings[alias]) as admin:
            for name in names:
                admin.create_topic(name, 1, 1, {"retention.ms": "-1"})


def wait_read(settings: dict[str, ConnectionSettings], plan: Plan, ends: dict[str, int]) -> None:
    """Until each flow has come to this offset of its source."""
    deadline = time.monotonic() + 180
    for flow in plan.flows:
        while True:
            maps = read_ledger(settings[flow.target], flow.id).copies().values()
            if any(found.source_position(1 << 40) >= ends[flow.id] for found, _ in maps):
                break
            assert time.monotonic() < deadline, f"{flow.id} does not come on"
            time.sleep(0.2)


def proof(plan: Plan, spark: SparkSession, directory: Path, **request: Any) -> dict[str, dict[str, Any]]:
    """The document, and its flows by id."""
    out = directory / f"{time.monotonic_ns()}"
    document = prove_flows(plan, ProofRequest(**({"wait": 20.0, "chunk": 50} | request)), out, session=lambda: spark)
    return {"": document} | {flow["id"]: flow for flow in document["flows"]}


def strange(producer_id: int, epoch: int) -> Log:
    [batch] = packed(a_log(99, 1), (1,))
    return (replace(batch, producer=(producer_id, epoch, 0)),)


def test_flows_that_merge_are_proven_each_for_itself(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = settings_of(kafka_pair)
    old, new, merged = f"{topic_name}-old", f"{topic_name}-new", f"{topic_name}-merged"
    create(settings, onprem=(old, new), cloud=(merged,))
    plans = [
        plan_for(settings, topic, topic, naming=Naming("map", map=((topic, merged),)), merge=True, **SHARED)
        for topic in (old, new)
    ]
    flows = tuple(flow for plan in plans for flow in plan.flows)
    plan = applied(settings, seal_plan(replace(plans[0], topology=merged, flows=flows)))
    ids = [flow.id for flow in flows]
    assert read_target_writers(replace(flows[0], id="nobody's"), settings["cloud"]).ours == (NO_KNOWN_PRODUCER,)
    with workers(plan, "cloud", tmp_path) as start:
        start()
        for half in range(2):
            append(settings["onprem"], old, {0: packed(a_log(1, 200)[half * 100 : half * 100 + 100])})
            append(settings["cloud"], merged, {0: packed(a_log(3, 30)[half * 15 : half * 15 + 15])})
            append(settings["onprem"], new, {0: packed(a_log(2, 150)[half * 75 : half * 75 + 75])})
            wait_read(settings, plan, {ids[0]: 100 + 100 * half, ids[1]: 75 + 75 * half})
    for final in (False, True):
        found = proof(plan, spark, tmp_path, final=final)
        assert (found[""]["verdict"], found[""]["unproven"]) == ("proven", 0), found[""]
        assert [found[id_]["proven"] for id_ in ids] == [200, 150]
        [note] = [note for note in found[""]["not_compared"] if "application" in note and ids[0] in note]
        assert re.match(rf"{merged}-0 on cloud: (15|30) records of applications", note)  # of 30, some are older
    ours = read_target_writers(flows[0], settings["cloud"]).ours
    append(settings["cloud"], merged, {0: strange(max(ours), 30_000)})
    found = proof(plan, spark, tmp_path, final=True)
    assert (found[""]["verdict"], found[ids[0]]["foreign"], found[ids[1]]["unproven"]) == ("different", 1, 0)


@pytest.mark.soak
def test_a_two_way_pair_is_proven_both_ways(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = settings_of(kafka_pair)
    create(settings, onprem=(topic_name,), cloud=(topic_name,))
    routes = (("onprem", "cloud"), ("cloud", "onprem"))
    plan = applied(settings, plan_for(settings, topic_name, topic_name, routes=routes, **SHARED))
    there, back = plan.flows
    with workers(plan, "cloud", tmp_path) as one, workers(plan, "onprem", tmp_path) as two:
        one()
        append(settings["onprem"], topic_name, {0: packed(a_log(1, 120))})
        append(settings["cloud"], topic_name, {0: packed(a_log(2, 80))})
        two()
        wait_read(settings, plan, {there.id: 120, back.id: 80})
        append(settings["onprem"], topic_name, {0: packed(a_log(1, 150)[120:])})
        found = proof(plan, spark, tmp_path)
    assert (found[""]["verdict"], found[""]["unproven"]) == ("proven", 0), found[""]
    assert [found[flow.id]["proven"] for flow in plan.flows] == [150, 80]
    append(
        settings["onprem"], topic_name, {0: strange(max(read_target_writers(back, settings["onprem"]).ours), 30_000)}
    )
    found = proof(plan, spark, tmp_path)
    assert found[back.id]["foreign"] == 1
