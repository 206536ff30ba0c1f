"""A record under a flow's producer id that this flow never wrote is somebody's, and a proof does not leave it out."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.brokers.test_real_forged import forged
from tests.replicator.real import applied, plan_for, settings_of, workers
from tests.spark.logs import Packed, a_log, append
from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import read_flows
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import seal_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.clusters.settings import ConnectionSettings
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_record_under_the_id_of_a_flow_that_never_wrote_is_not_hidden(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The flow back is declared and paused, so its producer id is registered at the source, and small."""
    settings = settings_of(kafka_pair)
    for alias in ("onprem", "cloud"):
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic_name, 1, 1, {"retention.ms": "-1"})
    there = plan_for(settings, topic_name, topic_name)
    back = plan_for(
        settings, topic_name, topic_name, routes=(("cloud", "onprem"),), state="paused", delivery="transactions"
    )
    plan = applied(settings, seal_plan(replace(there, flows=(there.flows[0], back.flows[0]))))
    theirs = read_flows(settings["onprem"])[back.flows[0].id].producer_id
    assert theirs is not None
    append(settings["onprem"], topic_name, {0: (Packed(tuple(a_log(1, 5))),)})
    forged(settings["onprem"], topic_name, (theirs, 0, 0))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_end(settings["cloud"], topic_name, 5)
        request = ProofRequest(flows=(there.flows[0].id,), topics=(topic_name,), wait=5.0)
        proof = prove_flows(plan, request, tmp_path / "proof", session=lambda: spark)
    assert proof["verdict"] in ("different", "incomplete"), proof
    assert (proof["proven"], proof["missing"] + proof["pending"]) == (5, 1), proof
    assert any("not claimed by that flow's ledger" in note for note in proof["not_compared"])


def wait_end(settings: ConnectionSettings, topic: str, end: int) -> None:
    place, deadline = TopicPartition(topic, 0), time.monotonic() + 120
    with Admin(settings) as admin:
        while (found := admin.offsets([place])[place].end) < end:
            assert time.monotonic() < deadline, f"{topic} ends at {found}"
            time.sleep(0.1)
