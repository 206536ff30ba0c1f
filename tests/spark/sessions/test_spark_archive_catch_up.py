"""A flow goes on behind a restored archive, and Spark proves the whole of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.brokers.test_real_adoption import QUICK, Scene, transactions
from tests.replicator.real import applied, producer, put, read_all, wait_copied, workers
from tests.spark.brokers.test_archive_restore import run
from watershed.clusters.admin import Admin
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

PARTITIONS = 2


@pytest.mark.parametrize("offsets", ["equal", "mapped"])
def test_what_was_restored_and_what_followed_is_proven_as_one(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession, offsets: str
) -> None:
    topic, folder = f"{topic_name}.carried", tmp_path / "archive"
    scene = Scene(kafka_pair, f"a{topic_name[-8:]}", tmp_path, topic)
    there = scene.there(topic)
    with Admin(scene.source) as admin:
        admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": "-1"})
    put(into := producer(scene.source), topic, 900)
    into.flush(60)
    transactions(scene, topic, 9, 0)
    assert run("archive", scene.path, "--cluster", scene.alias, "--topics", topic, "--to", folder) == 0
    transactions(scene, topic, 4, 100)
    put(into, topic, 400, start=5_000)
    into.flush(60)
    restoring = ["restore", scene.path, "--cluster", "cloud", "--from", folder, "--rename", f"{topic}={there}"]
    assert run(*restoring, "--offsets", offsets) == 0
    applied(scene.settings, scene.plan)
    with workers(scene.plan, "cloud", tmp_path, QUICK) as start:
        start()
        assert scene.adopt("--from", "archive", "--archive", str(folder), "--yes", "--wait", "180") == 0
        wait_copied(scene.settings, scene.plan, topic, PARTITIONS)
        request = ProofRequest(flows=(scene.flow,), topics=(topic,), final=True, wait=30.0)
        proof = prove_flows(scene.plan, request, tmp_path / "proof", session=lambda: spark)
    records = sum(len(rows) for rows in read_all(scene.source, topic, PARTITIONS).values())
    assert (proof["verdict"], proof["unproven"], proof["proven"]) == ("proven", 0, records), proof
