"""A copy that begins and ends in the middle, made by a worker and proven by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.brokers.test_real_bounds import BEGAN, PARTITIONS, fill, wait_states
from tests.replicator.real import applied, plan_for, producer, settings_of, workers
from watershed.clusters.admin import Admin
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.copy_bounds import CopyBound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("delivery", ["sequence", pytest.param("transactions", marks=pytest.mark.soak)])
def test_a_bounded_copy_is_proven(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession, delivery: str
) -> None:
    """One partition has records between start and end, the other has none: its worker copies nothing, and says so."""
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    sending = producer(settings["onprem"])
    fill(sending, topic_name, 0, 1_000)
    sending.produce(topic_name, b"old", partition=1, timestamp=BEGAN)
    sending.produce(topic_name, b"new", partition=0, timestamp=BEGAN + 1_001)
    sending.flush()
    start = CopyBound(timestamp_ms=BEGAN + 1_000)
    plan = plan_for(settings, topic_name, topic_name, start=start, end="latest", delivery=delivery)
    with workers(applied(settings, plan), "cloud", tmp_path) as spawn:
        spawn()
        wait_states(settings["cloud"], topic_name, "complete", "complete")
    fill(sending, topic_name, 1_000, 1_500)  # behind the end
    summary = prove_flows(plan, ProofRequest(wait=0.0), tmp_path / "out", session=lambda: spark)
    assert (summary["verdict"], summary["proven"], summary["pending"]) == ("proven", 1, 0), summary
