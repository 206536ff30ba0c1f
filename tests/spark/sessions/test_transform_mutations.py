"""A proof finds what a wrong transformation has left at the target: its class, and how many records.

The flow is copied by a worker whose engine makes a mistake that the test chooses, one a partition. The offset map is
right for what was written, so that nothing but the records themselves tells.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from tests.spark.sessions.test_real_transform import read_records
from tests.spark.sessions.test_spark_replicate import run
from watershed.cli.explain_chunk import explain_chunk
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.records import RawRecord, build_raw_batch, decode_records, encode_key_and_value
from watershed.replicator.batch.records import decode_record_fields as decode_fields
from watershed.replicator.transport.transform_thread import TransformedPart, TransformRequest
from watershed.replicator.worker.worker import run_worker
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.transform.spark_engine import SparkTransformEngine
from watershed.spark.transform.topology_expressions import hash_spark_plans
from watershed.topology import compile_path
from watershed.topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    partitions: {{mapping: key}}
    transform:
      format: {{key: string, value: string}}
      where: "value not like '%drop%'"
      set: {{key: "md5(key)", value: "sha2(value, 256)"}}
"""
A_PARTITION = 40  # records; every fifth is not to travel

Records = list[RawRecord]
Mutation = Callable[[Records, Records, "Older"], Records]
Older = Callable[[], Records]


def change_value(record: RawRecord, change: Callable[[bytes], bytes]) -> RawRecord:
    key, value, _ = decode_fields(record.rest)
    return record._replace(rest=encode_key_and_value(key, change(value or b"")))


def change_key(record: RawRecord, change: Callable[[bytes], bytes]) -> RawRecord:
    key, value, _ = decode_fields(record.rest)
    return record._replace(rest=encode_key_and_value(change(key or b""), value))


def leave_as_it_is(right: Records, _source: Records, _older: Older) -> Records:
    return right


def mask_three_wrongly(right: Records, source: Records, _older: Older) -> Records:
    """Their values travel as they are."""
    plain = {record.offset: decode_fields(record.rest)[1] or b"" for record in source}
    return [
        change_value(record, lambda _, offset=record.offset: plain[offset]) if at in (3, 9, 20) else record
        for at, record in enumerate(right)
    ]


def leave_a_record_as_it_was(right: Records, source: Records, _older: Older) -> Records:
    """With its key and its value it is another record, in the place of one that is missing."""
    plain = {record.offset: record for record in source}
    return [plain[record.offset] if at == 3 else record for at, record in enumerate(right)]


def keep_two_that_should_be_dropped(right: Records, source: Records, _older: Older) -> Records:
    dropped = [record for record in source if record.offset not in {each.offset for each in right}]
    more = [change_value(record, lambda _: b"0" * 64) for record in dropped[:2]]
    return sorted([*right, *more])


def drop_four_wrongly(right: Records, _source: Records, _older: Older) -> Records:
    return [record for at, record in enumerate(right) if at not in (2, 3, 11, 25)]


def use_an_old_expression(_right: Records, _source: Records, older: Older) -> Records:
    return older()


def swap_a_pair(right: Records, _source: Records, _older: Older) -> Records:
    """Two records change places; the offsets that the map tells stay in order."""
    one, two = right[5], right[6]
    found = list(right)
    found[5] = RawRecord(one.offset, two.timestamp, two.rest)
    found[6] = RawRecord(two.offset, one.timestamp, one.rest)
    return found


def change_a_character(right: Records, _source: Records, _older: Older) -> Records:
    return [
        change_value(record, lambda value: value[:-1] + b"x") if at == 7 else record for at, record in enumerate(right)
    ]


def leave_two_keys_as_they_were(right: Records, source: Records, _older: Older) -> Records:
    """Their values are right."""
    plain = {record.offset: decode_fields(record.rest)[0] or b"" for record in source}
    return [
        change_key(record, lambda _, offset=record.offset: plain[offset]) if at in (0, 8) else record
        for at, record in enumerate(right)
    ]


def give_a_pair_each_others_keys(right: Records, _source: Records, _older: Older) -> Records:
    keys = [decode_fields(record.rest)[0] or b"" for record in right]
    keys[5], keys[6] = keys[6], keys[5]
    return [change_key(record, lambda _, key=key: key) for record, key in zip(right, keys, strict=True)]


KEPT = A_PARTITION - A_PARTITION // 5
# Each with what the proof says of its partition beside what is proven.
MUTATIONS: tuple[tuple[Mutation, dict[str, int]], ...] = (
    (leave_as_it_is, {}),
    (mask_three_wrongly, {"altered": 3}),
    (keep_two_that_should_be_dropped, {"foreign": 2}),
    (drop_four_wrongly, {"missing": 4}),
    (use_an_old_expression, {"altered": KEPT}),
    (swap_a_pair, {"reordered": 1}),
    (change_a_character, {"altered": 1}),
    (leave_two_keys_as_they_were, {"altered": 2}),
    (give_a_pair_each_others_keys, {"altered": 2}),
    (leave_a_record_as_it_was, {"missing": 1, "foreign": 1}),
)


@dataclass
class MistakenEngine:
    """Transforms as Spark does, and then makes the mistake of the partition."""

    right: SparkTransformEngine

    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        results = self.right.transform(transform, requests)
        older = replace(transform, changes=(transform.changes[0], ("value", "sha2(concat(value, '-'), 256)")))
        return [
            TransformedPart(self._mistake(request, result, older), result.rejected)
            for request, result in zip(requests, results, strict=True)
        ]

    def _mistake(self, request: TransformRequest, result: TransformedPart, older: RecordTransform) -> list[RawBatch]:
        mutate, _ = MUTATIONS[request.key.partition]
        source = [
            RawRecord(record.offset, record.timestamp, record.rest)
            for piece in request.part.pieces
            for batch in _split(piece)
            for record in decode_records(batch)
        ]

        def apply_older() -> Records:
            [found] = self.right.transform(older, [request])
            return _list(found.batches)

        mutated = mutate(_list(result.batches), source, apply_older)
        return [build_raw_batch(mutated, 0, request.part.end)]


def _split(piece: memoryview) -> list[RawBatch]:
    from watershed.replicator.batch.record_batch import decode_batches

    return list(decode_batches(piece))


def _list(batches: Sequence[RawBatch]) -> Records:
    """The records of transformed batches at their source offsets."""
    return [
        record._replace(offset=batch.source_offset(index))
        for batch in batches
        for index, record in enumerate(decode_records(batch._replace(base=0, end=1 << 40)))
    ]


def test_a_proof_names_each_mistake_of_a_transformation(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.yaml"
    onprem, cloud = (kafka_pair.clusters[alias].bootstrap for alias in ("onprem", "cloud"))
    path.write_text(TOPOLOGY.format(name=topic_name, onprem=onprem, cloud=cloud), encoding="utf-8")
    settings = ConnectionSettings("onprem", (onprem,))
    with Admin(settings) as admin:
        admin.create_topic(topic_name, len(MUTATIONS), 1, {})
    producer = Producer(settings.librdkafka({"linger.ms": 500}))
    for number in range(A_PARTITION):
        for partition in range(len(MUTATIONS)):
            word = "drop" if number % 5 == 1 else "keep"
            producer.produce(topic_name, f"{word} {partition} {number}", f"{number}", partition)
    assert producer.flush(60) == 0
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    plan = compile_path(path)
    target, stop = resolve_connection_settings(plan.cluster("cloud")), threading.Event()
    worker = threading.Thread(
        target=run_worker,
        args=(target, lambda alias: resolve_connection_settings(plan.cluster(alias))),
        kwargs={
            "topology": plan.topology, "worker_id": topic_name, "stop": stop,
            "engine": MistakenEngine(SparkTransformEngine(spark)),
        },
    )  # fmt: skip
    worker.start()
    try:
        summary = prove_flows(plan, ProofRequest(wait=120.0), tmp_path / "out", session=lambda: spark)
    finally:
        stop.set()
        worker.join(60)
    assert summary["verdict"] == "different"
    rows = parquet.read_table(tmp_path / "out" / "partitions.parquet").to_pylist()
    assert {row["partition"]: read_counts(row) for row in rows} == {
        number: counts for number, (_, counts) in enumerate(MUTATIONS)
    }
    [flow] = summary["flows"]
    assert flow["spark_plan"] == hash_spark_plans(plan)[flow["id"]]

    def explain(partition: int) -> list[dict[str, Any]]:
        capsys.readouterr()
        explain_chunk(path, f"{topic_name}-{partition}@0", tmp_path / "out", "json", reveal=True)
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["differences"]
        return found

    masked = MUTATIONS.index((mask_three_wrongly, {"altered": 3}))
    for each in explain(masked):
        number = each["origin"]["key"].strip('"')
        assert (each["kind"], each["components"]) == ("altered", ["value"])
        assert each["origin"]["value"] == each["target"]["record"]["value"] == f'"keep {masked} {number}"'
        assert each["expected"]["record"]["key"] == each["target"]["record"]["key"]
        assert each["expected"]["record"]["value"] == f'"{hash_text("sha256", f"keep {masked} {number}")}"'
        assert each["expected"]["record"]["key"] == f'"{hash_text("md5", number)}"'
        assert (each["expected"]["then"], each["target"]["then"]) == ("as it was", "as it was")
    kept = MUTATIONS.index((keep_two_that_should_be_dropped, {"foreign": 2}))
    assert [each["origin"]["value"] for each in explain(kept)] == [f'"drop {kept} 1"', f'"drop {kept} 6"']
    assert all(each["expected"]["record"] is None for each in explain(kept))
    dropped = MUTATIONS.index((drop_four_wrongly, {"missing": 4}))
    missing = explain(dropped)
    assert [each["origin"]["key"] for each in missing] == ['"3"', '"4"', '"14"', '"32"']
    assert [each["target"]["record"] for each in missing] == [None] * 4
    arrived = [record for _, record in read_records(kafka_pair, "cloud", topic_name, 0)]
    assert [(key, value) for key, value, _, _ in arrived] == [
        (hash_text("md5", f"{number}").encode(), hash_text("sha256", f"keep 0 {number}").encode())
        for number in range(A_PARTITION)
        if number % 5 != 1
    ]


def hash_text(function: str, text: str) -> str:
    """In hexadecimal, as SQL gives it."""
    return hashlib.new(function, text.encode()).hexdigest()


def read_counts(row: dict[str, Any]) -> dict[str, int]:
    """The classes of which there are some."""
    classes = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "pending", "repeated")
    return {name: row[name] for name in classes if row[name]}
