"""A proof finds what a wrong transformation of Avro records has left at the target: an id of the source, a field that
was not set, bytes that another writer would have written."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from tests.spark.sessions.test_real_transform_schemas import OLDER, connect, write_order, write_topology
from tests.spark.sessions.test_spark_replicate import run
from tests.spark.sessions.test_transform_mutations import change_value, read_counts
from watershed.clusters.admin import Admin
from watershed.clusters.registry.schema import Schema
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.records import RawRecord, build_raw_batch, decode_records
from watershed.replicator.transport.transform_thread import TransformedPart, TransformRequest
from watershed.replicator.worker.worker import run_worker
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.transform.spark_engine import SparkTransformEngine
from watershed.topology import compile_path
from watershed.topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab
    from watershed.lab.schema_registry import SchemaRegistryProcess

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

FLOW = """
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    sync: {{schemas: {{mode: continuous, ids: translate}}}}
    transform:
      format: {{value: avro}}
      schema: {{value: "country string, email string"}}
      where: "value.country <> 'XX'"
      set: {{value.email: "sha2(value.email, 256)"}}
"""
A_PARTITION = 40
Records = list[RawRecord]


def leave_as_it_is(right: Records, _source: Records) -> Records:
    return right


def keep_two_ids_of_the_source(right: Records, source: Records) -> Records:
    """Everything else is right."""
    id = bytes(_value(source[0]))[1:5]
    return [
        change_value(each, lambda value: value[:1] + id + value[5:]) if at in (2, 7) else each
        for at, each in enumerate(right)
    ]


def leave_one_field_as_it_was(right: Records, source: Records) -> Records:
    """The whole record is the source's, under the target's id."""
    plain = {each.offset: each for each in source}
    id = bytes(_value(right[0]))[1:5]
    return [
        change_value(plain[each.offset], lambda value: value[:1] + id + value[5:]) if at == 5 else each
        for at, each in enumerate(right)
    ]


def write_an_array_otherwise(right: Records, _source: Records) -> Records:
    """The same values in other bytes: the end of the record, an empty array, as an empty block of its own size."""
    return [
        change_value(each, lambda value: value[:-1] + b"\x80\x00") if at == 0 else each for at, each in enumerate(right)
    ]


MUTATIONS: tuple[tuple[Callable[[Records, Records], Records], dict[str, int]], ...] = (
    (leave_as_it_is, {}),
    (keep_two_ids_of_the_source, {"altered": 2}),
    (leave_one_field_as_it_was, {"altered": 1}),
    (write_an_array_otherwise, {"altered": 1}),
)


def _value(record: RawRecord) -> bytes:
    found: list[bytes] = []
    change_value(record, lambda value: found.append(value) or value)  # type: ignore[func-returns-value]
    return found[0]


@dataclass
class MistakenEngine:
    """Transforms as Spark does, and then makes the mistake of the partition."""

    right: SparkTransformEngine

    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        results = self.right.transform(transform, requests)
        return [
            result if result.unknown else result._replace(batches=[self._mistake(request, result.batches)])
            for request, result in zip(requests, results, strict=True)
        ]

    def _mistake(self, request: TransformRequest, batches: Sequence[RawBatch]) -> RawBatch:
        from watershed.replicator.batch.record_batch import decode_batches

        source = [each for batch in decode_batches(memoryview(request.part.read())) for each in decode_records(batch)]
        right = [
            record._replace(offset=batch.source_offset(index))
            for batch in batches
            for index, record in enumerate(decode_records(batch._replace(base=0, end=1 << 40)))
        ]
        mutate, _ = MUTATIONS[request.key.partition]
        return build_raw_batch(mutate(right, source), 0, request.part.end)


def test_a_proof_names_each_mistake_with_records_of_a_registry(
    kafka_pair: Lab, registry_pair: list[SchemaRegistryProcess], topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    path = write_topology(kafka_pair, registry_pair, topic_name, tmp_path, FLOW)
    source = ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))
    with Admin(source) as admin:
        admin.create_topic(topic_name, len(MUTATIONS), 1, {})
    with connect(registry_pair[0], "onprem") as here, connect(registry_pair[1], "cloud") as there:
        for number in range(3):  # so that ids differ
            there.register(f"{topic_name}-taken-{number}", Schema(f'{{"type":"string","doc":"{topic_name}{number}"}}'))
        id = here.register(f"{topic_name}-value", Schema(json.dumps(OLDER)))
    producer = Producer(source.librdkafka({"linger.ms": 500}))
    for number in range(A_PARTITION):
        for partition in range(len(MUTATIONS)):
            producer.produce(topic_name, write_order(OLDER, id, 4 * number), f"{number}", partition)
    assert producer.flush(60) == 0
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    plan, stop = compile_path(path), threading.Event()
    worker = threading.Thread(
        target=run_worker,
        args=(
            resolve_connection_settings(plan.cluster("cloud")),
            lambda alias: resolve_connection_settings(plan.cluster(alias)),
        ),
        kwargs={
            "topology": plan.topology, "worker_id": topic_name, "stop": stop,
            "engine": MistakenEngine(SparkTransformEngine(spark)),
        },
    )  # fmt: skip
    worker.start()
    try:
        summary = prove_flows(plan, ProofRequest(wait=240.0), tmp_path / "out", session=lambda: spark)
    finally:
        stop.set()
        worker.join(60)
    assert summary["verdict"] == "different"
    rows = parquet.read_table(tmp_path / "out" / "partitions.parquet").to_pylist()
    assert {row["partition"]: read_counts(row) for row in rows} == {
        number: counts for number, (_, counts) in enumerate(MUTATIONS)
    }
