"""Spark reads an aligned copy at the offsets of the source: same ranges, same sums, and the proof says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from tests.replicator.brokers.test_real_aligned import START, begins_at
from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.real import applied, plan_for, producer, put, settings_of, wait_copied, workers
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.source import FORMAT_NAME, register_format
from watershed.topology.plan import Plan, encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PARTITIONS, RANGE = 2, 97
SUMMED = ("n", "m_lo", "m_hi", "ordered", "kh", "vh", "hh", "ts", "bytes")


@pytest.mark.soak
def test_the_same_ranges_hold_the_same_records(kafka_pair, topic_name: str, tmp_path: Path, spark: SparkSession):
    settings = settings_of(kafka_pair)
    begins_at(settings["onprem"], topic_name, PARTITIONS, START)
    sending = producer(settings["onprem"], **{"compression.type": "zstd"})
    put(sending, topic_name, 1_000)
    sending.flush()
    committed = 1_000 + transactions(settings["onprem"], topic_name, 8)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, offsets="aligned"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
    read = reader(spark, plan, tmp_path, topic_name)
    here, there = read("onprem"), read("cloud")
    assert here == there
    assert sum(row["n"] for row in here.values()) == committed
    proof = prove_flows(plan, ProofRequest(wait=30.0, chunk=RANGE), tmp_path / "proof", session=lambda: spark)
    assert (proof["verdict"], proof["proven"]) == ("proven", committed), proof


def reader(spark: SparkSession, plan: Plan, directory: Path, topic: str) -> Callable[[str], dict[Any, dict[str, Any]]]:
    """Sums of the whole topic in ranges of RANGE offsets, from where the logs begin."""
    register_format(spark)
    path = directory / "plan.json"
    path.write_text(encode_plan(plan))

    def read(alias: str) -> dict[Any, dict[str, Any]]:
        options = {"topology": str(path), "cluster": alias, "topics": topic, "rows": "sums", "chunk": str(RANGE)}
        rows: list[Row] = spark.read.format(FORMAT_NAME).options(**options).load().collect()
        assert min(row.start_offset for row in rows) == START
        return {(row.partition, row.start_offset): {name: row[name] for name in SUMMED} for row in rows}

    return read
