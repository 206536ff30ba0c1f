"""One fingerprint, everywhere: Python, numpy on raw batches, a worker's own reading, and Spark SQL over the rows of
`kafka-batches` give what tests/cases/fingerprint/v1.json has frozen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.real import plan_for, producer, settings_of
from tests.spark.sessions.test_spark_fingerprint import batch_bytes
from watershed.clusters.admin import Admin
from watershed.clusters.record_fingerprint import FINGERPRINT_VERSION, encode_headers_bin, fingerprint_record
from watershed.replicator.batch.codecs import compress_payload
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.records import build_raw_batch, decode_record_fields, decode_records
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.copy.quarantine import encode_rejected_record
from watershed.replicator.partition_key import PartitionKey
from watershed.spark.fingerprint import (
    SPARK_SQL,
    ChunkSum,
    ConsumedRecord,
    RecordFingerprints,
    fingerprint_records,
    fingerprint_slices,
    sum_fingerprints,
)
from watershed.spark.reading.batch_decoding import locate_records, split_checked_batches
from watershed.spark.source import FORMAT_NAME, register_format
from watershed.topology.plan import encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FROZEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "cases" / "fingerprint" / "v1.json").read_text())
ROWS: list[dict[str, Any]] = FROZEN["records"]
HASHES = ("kh", "vh", "hh", "fp")


def raw(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


RECORDS = [
    ConsumedRecord(
        raw(r["key"]), raw(r["value"]), r["timestamp"], tuple((name, raw(value)) for name, value in r["headers"])
    )
    for r in ROWS
]


def test_record_by_record() -> None:
    assert FROZEN["version"] == FINGERPRINT_VERSION
    for record, row in zip(RECORDS, ROWS, strict=True):
        assert encode_headers_bin(record.headers).hex() == row["headers_bin"]
        told = fingerprint_record(record.key, record.value, encode_headers_bin(record.headers), record.timestamp)
        assert {name: f"{value:016x}" for name, value in told._asdict().items()} == {n: row[n] for n in HASHES}
    equal(fingerprint_records(RECORDS))


def test_numpy_over_stored_batches() -> None:
    equal(fingerprint_slices(locate_records(list(split_checked_batches(memoryview(batch_bytes(RECORDS, 0)))))))


@pytest.mark.parametrize("codec", range(5))
def test_the_worker_that_opens_batches_and_packs_new_ones(codec: int) -> None:
    """Its reading of records, of a batch as stored and of one that it packed itself."""
    plain = memoryview(batch_bytes(RECORDS, 0))
    payload = compress_payload(codec, bytes(plain[61:]))
    [stored] = decode_batches(memoryview(batch_bytes(RECORDS, 0, attributes=codec, payload=payload)))
    for batch in (stored, build_raw_batch(decode_records(stored), codec, stored.end)):
        for record, row in zip(decode_records(batch), ROWS, strict=True):
            key, value, headers = decode_record_fields(record.rest)
            told = fingerprint_record(key, value, encode_headers_bin(headers), record.timestamp)
            assert {name: f"{number:016x}" for name, number in told._asdict().items()} == {n: row[n] for n in HASHES}


def test_the_worker_names_what_it_sets_aside_by_it() -> None:
    key = PartitionKey("flow", "orders", "orders", 0)
    for record, row in zip(RECORDS, ROWS, strict=True):
        names = tuple((str(name).encode(), value) for name, value in record.headers)
        aside = RejectedRecord(7, record.timestamp, record.key, record.value, names, "INVALID_RECORD")
        for whole in (True, False):
            assert (
                dict(encode_rejected_record(key, aside, whole=whole)[1])["watershed.fingerprint"] == row["fp"].encode()
            )


@pytest.mark.kafka
@pytest.mark.spark
def test_spark_sql_over_the_data_source(kafka_pair, topic_name: str, tmp_path: Path, spark: SparkSession) -> None:
    settings = settings_of(kafka_pair)
    path = tmp_path / "plan.json"
    path.write_text(encode_plan(plan_for(settings, topic_name, topic_name)))
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, configs={"retention.ms": "-1"})  # their times are long ago
    sending = producer(settings["onprem"], **{"compression.type": "zstd"})
    timed = [(record, row) for record, row in zip(RECORDS, ROWS, strict=True) if record.timestamp > 0]
    for record, _ in timed:  # a client gives its own time to a record without one
        sending.produce(
            topic_name, record.value, record.key, 0, timestamp=record.timestamp, headers=list(record.headers)
        )
    sending.flush()
    register_format(spark)
    frame = spark.read.format(FORMAT_NAME).options(
        topology=str(path), cluster="onprem", topics=topic_name, rows="records"
    )
    rows = frame.load()
    for name, expression in SPARK_SQL.items():
        rows = rows.selectExpr("*", f"{expression} as {name}")
    for seen, (_, row) in zip(rows.orderBy("offset").collect(), timed, strict=True):
        assert {name: f"{seen[name] & (1 << 64) - 1:016x}" for name in HASHES} == {name: row[name] for name in HASHES}
        assert seen.headers_bin.hex() == row["headers_bin"]


def equal(prints: RecordFingerprints) -> None:
    for name in HASHES:
        assert [f"{value:016x}" for value in getattr(prints, name).tolist()] == [row[name] for row in ROWS], name
    told: ChunkSum = sum_fingerprints(prints)
    frozen = FROZEN["sum"]
    assert (told.n, told.m_lo, told.m_hi, told.ts) == tuple(frozen[name] for name in ("n", "m_lo", "m_hi", "ts"))
    for name, number in (("ordered", told.order), ("kh", told.kh), ("vh", told.vh), ("hh", told.hh)):
        assert f"{number:016x}" == frozen[name], name
