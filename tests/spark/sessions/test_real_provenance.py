"""The proof of a real copy with `provenance.header`, and what it says where the header is another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.brokers.test_real_provenance import COUNT, assert_each_tells, write
from tests.replicator.real import applied, plan_for, settings_of, wait_copied, workers
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import seal_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]


def test_the_proof_knows_the_header(kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> None:
    """It is proven with the header that the flow wrote, and different with any other."""
    settings = settings_of(kafka_pair)
    write(settings, topic_name)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, header="came-from"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_each_tells(settings, plan, topic_name, 2) == COUNT
    verdicts = {}
    for header in ("came-from", "comes-from", None):
        asked = seal_plan(replace(plan, flows=(replace(plan.flows[0], header=header),)))
        found = prove_flows(asked, ProofRequest(wait=30.0), tmp_path / f"{header}", session=lambda: spark)
        verdicts[header] = found["verdict"], found["proven"]
    assert verdicts["came-from"] == ("proven", COUNT)
    assert verdicts["comes-from"][0] == verdicts[None][0] == "different"
