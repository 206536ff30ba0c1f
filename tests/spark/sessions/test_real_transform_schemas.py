"""Flows that change records of a schema registry, on real brokers and with real registries: what fastavro, or the class
of a message, works out from the source stands at the target, byte by byte, under the target's schema ids."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.spark.sessions.test_real_transform import (
    PARTITIONS,
    SECRET,
    Record,
    commit_positions,
    consume,
    is_caught_up,
    read_partitions,
    read_positions,
    transform_worker,
)
from tests.spark.sessions.test_spark_replicate import run, until
from watershed.clusters.admin import Admin
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.protobuf_compiler import compile_protobuf
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema, SchemaReference
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.quarantine import read_quarantine
from watershed.replicator.ledger.ledger import read_ledger
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab
    from watershed.lab.schema_registry import SchemaRegistryProcess

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1500)]

CLUSTERS = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}, schema_registry: {{url: "{here}"}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}, schema_registry: {{url: "{there}"}}}}
"""
AVRO = """
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    sync:
      groups: {{mode: continuous, include: ["{name}-group"], interval: 1s}}
      schemas: {{mode: continuous, ids: translate}}
    transform:
      format: {{value: avro}}
      schema:
        value: >-
          country string, email string, amount decimal(12,2), at timestamp, day date, kind string,
          address struct<city string>, tags array<string>
      where: "value is null or value.country <> 'XX'"
      set:
        value.email: "sha2(concat(value.email, secret('PEPPER')), 256)"
        value.amount: "cast(value.amount * 2 as decimal(12,2))"
        value.address.city: "upper(value.address.city)"
        value.at: "date_trunc('day', value.at)"
        value.kind: "if(value.amount > 50, 'LARGE', value.kind)"
        headers.origin: "'prod'"
      drop: [value.notes]
      secrets: {{PEPPER: {{env: WATERSHED_SECRET_PEPPER}}}}
"""
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "country", "type": "string"},
    {"name": "email", "type": ["null", "string"]},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    {"name": "notes", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SMALL", "LARGE"]}},
    {"name": "address", "type": {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}},
    {"name": "any", "type": ["null", "int", "string", "Address"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
OLDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
# Another order, a field more in front, and two fields that may be null: each record is opened by its own schema.
NEWER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "level", "type": "double", "default": 0.5},
        *FIELDS[:3][::-1],
        {"name": "amount", "type": ["null", FIELDS[3]["type"]], "default": None},
        *FIELDS[4:8],
        {"name": "address", "type": ["null", FIELDS[8]["type"]], "default": None},
        *FIELDS[9:],
    ],
}  # fmt: skip


def connect(process: SchemaRegistryProcess, alias: str) -> RegistryClient:
    return RegistryClient(RegistrySettings(alias, process.url))


def build_order(number: int, schema: dict[str, Any]) -> dict[str, Any]:
    found = {
        "id": number,
        "country": "XX" if number % 7 == 3 else "DE",
        "email": None if number % 11 == 5 else f"a{number}@b.example",
        "amount": Decimal(number).scaleb(-2) if number % 5 else Decimal("-0.01"),
        "notes": "n" * (number % 90) if number % 3 else None,
        "at": datetime(2026, 1, 1 + number % 28, number % 24, 30, 1, 250_000, UTC),
        "day": datetime(1969, 12, 1 + number % 28, tzinfo=UTC).date(),
        "kind": "SMALL",
        "address": {"city": f"Köln-{number % 50}"},
        "any": (None, number, "text", {"city": "x"})[number % 4],
        "tags": [f"t{each}" for each in range(number % 4)],
    }
    if schema is OLDER:
        return found
    return found | {"level": number / 3, "address": found["address"] if number % 4 else None}


def write_avro(schema: dict[str, Any], id: int, document: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), document)
    return b"\0" + id.to_bytes(4, "big") + out.getvalue()


def write_order(schema: dict[str, Any], id: int, number: int) -> bytes:
    return write_avro(schema, id, build_order(number, schema))


def expect(record: Record, ids: dict[int, tuple[int, dict[str, Any]]]) -> Record | None:
    """What the transform makes of a record, worked out by fastavro and Python. ids: at the source → (at the target,
    schema)."""
    key, value, headers, timestamp = record
    if value is None:
        return key, None, [*headers, ("origin", b"prod")], timestamp
    id, schema = ids[int.from_bytes(value[1:5], "big")]
    document: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)
    if document["country"] == "XX":
        return None
    if document["email"] is not None:
        document["email"] = hashlib.sha256((document["email"] + SECRET).encode()).hexdigest()
    document["kind"] = "LARGE" if document["amount"] > 50 else document["kind"]
    document["amount"] *= 2
    document["notes"] = None
    if document["address"] is not None:
        document["address"]["city"] = document["address"]["city"].upper()
    document["at"] = document["at"].replace(hour=0, minute=0, second=0, microsecond=0)
    return key, write_avro(schema, id, document), [*headers, ("origin", b"prod")], timestamp


def build_text_key(number: int) -> bytes:
    return b"k%d" % number


def produce(
    lab: Lab,
    topic: str,
    numbers: range,
    build: Callable[[int], bytes],
    build_key: Callable[[int], bytes | None] = build_text_key,
) -> None:
    """Every 13th record is a tombstone; every 500 records are a transaction, every fourth of which is aborted."""
    settings = ConnectionSettings("onprem", (lab.clusters["onprem"].bootstrap,))
    producer = Producer(settings.librdkafka({"linger.ms": 5, "transactional.id": f"{topic}-{numbers.start}"}))
    producer.init_transactions(30)
    for at, start in enumerate(range(numbers.start, numbers.stop, 500)):
        producer.begin_transaction()
        for number in range(start, min(start + 500, numbers.stop)):
            value = None if number % 13 == 6 else build(number)
            headers = [("n", b"%d" % number)]
            producer.produce(topic, value, build_key(number), number % PARTITIONS, headers=headers)
            producer.poll(0)
        if at % 4 == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def assert_transformed(lab: Lab, topic: str, flow: str, expected: dict[int, dict[int, Record]]) -> int:
    """Bytes, order, count, and the offset map; the number of records at the target. expected: by partition and source
    offset, of the records that travel."""
    before, after = consume(lab, "onprem", topic), consume(lab, "cloud", topic)
    ledger = read_ledger(ConnectionSettings("cloud", (lab.clusters["cloud"].bootstrap,)), flow=flow)
    for partition, kept in expected.items():
        seen = after[partition]
        assert len(seen) == len(kept)
        for (offset, wanted), (landed, got) in zip(kept.items(), seen.items(), strict=True):
            assert got == wanted, f"{partition}: source offset {offset}, target offset {landed}"
        offsets, targets, sources = ledger.map(flow, topic, partition), sorted(seen), list(kept)
        for offset in before[partition]:
            following = bisect_left(sources, offset)
            if following < len(sources):
                assert offsets.to_target(offset, targets[-1] + 1) == targets[following]
    return sum(map(len, after.values()))


def write_topology(
    lab: Lab, registries: list[SchemaRegistryProcess], name: str, folder: Path, flows: str = AVRO
) -> Path:
    path = folder / "t.yaml"
    onprem, cloud = (lab.clusters[alias].bootstrap for alias in ("onprem", "cloud"))
    here, there = (each.url for each in registries)
    text = CLUSTERS.format(name=name, onprem=onprem, cloud=cloud, here=here, there=there) + flows.format(name=name)
    path.write_text(text, encoding="utf-8")
    return path


def test_avro_records_are_transformed_exactly_under_the_ids_of_the_target(
    kafka_pair: Lab, registry_pair: list[SchemaRegistryProcess], topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Two versions of a schema in each partition, tombstones, aborted transactions, a driver that is killed."""
    path, flow = write_topology(kafka_pair, registry_pair, topic_name, tmp_path), f"onprem-to-cloud-{topic_name}"
    with Admin(ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    subject, log = f"{topic_name}-value", tmp_path / "log"
    with connect(registry_pair[0], "onprem") as here, connect(registry_pair[1], "cloud") as there:
        for number in range(3):  # so that ids differ
            there.register(f"{topic_name}-taken-{number}", Schema(f'{{"type":"string","doc":"{topic_name}{number}"}}'))
        here.set_compatibility(subject, "NONE")
        older = here.register(subject, Schema(json.dumps(OLDER)))
        produce(kafka_pair, topic_name, range(6_000), partial(write_order, OLDER, older))
        run("-m", "watershed.cli.main", "apply", str(path), "--yes")
        with transform_worker(path, log) as worker:
            until(lambda: worker.poll() is None and any(each["target_end"] > 0 for each in read_partitions(path)), 300)
            newer = here.register(subject, Schema(json.dumps(NEWER)))  # the worker carries it, and its records wait
            produce(kafka_pair, topic_name, range(6_000, 12_000), partial(write_order, NEWER, newer))
            positions = [701, 2_500, 3_333]
            commit_positions(kafka_pair, topic_name, positions)
            os.kill(worker.pid, signal.SIGKILL)
        produce(kafka_pair, topic_name, range(12_000, 14_000), partial(write_order, OLDER, older))
        with transform_worker(path, log) as worker:
            until(lambda: worker.poll() is None and is_caught_up(path, kafka_pair, topic_name), 400)
            twins = [each.id for each in there.history(subject)]
            assert len(twins) == 2
            ids = {older: (twins[0], OLDER), newer: (twins[1], NEWER)}
            assert not set(ids) & set(twins)
            expected = {
                partition: {
                    offset: wanted for offset, record in records.items() if (wanted := expect(record, ids)) is not None
                }
                for partition, records in consume(kafka_pair, "onprem", topic_name).items()
            }
            assert assert_transformed(kafka_pair, topic_name, flow, expected) > 8_000
            after = consume(kafka_pair, "cloud", topic_name)
            wanted = [
                sorted(after[number])[bisect_left(list(expected[number]), position)]
                for number, position in enumerate(positions)
            ]
            until(lambda: read_positions(kafka_pair, topic_name) == wanted, 60)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
    assert SECRET not in log.read_text(encoding="utf-8")
    spark.sparkContext.environment["WATERSHED_SECRET_PEPPER"] = SECRET
    summary = prove_flows(compile_path(path), ProofRequest(wait=30.0), tmp_path / "out", session=lambda: spark)
    assert (summary["verdict"], summary["unproven"], summary["level"]) == ("proven", 0, "L3"), summary
    assert summary["groups"]["landings"] == {"exact": PARTITIONS}
    assert summary["proven"] > 8_000


PROTOBUF = """
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    delivery: {{rejected: quarantine}}
    transform:
      format: {{value: protobuf}}
      schema: {{value: "country string, email string, at timestamp, address struct<city string>, counts array<int>"}}
      where: "value is null or (value.country <> 'XX' and coalesce(size(value.counts), 0) < 4)"
      set:
        value.email: "sha2(value.email, 256)"
        value.address.city: "upper(value.address.city)"
        value.at: "date_trunc('hour', value.at)"
      drop: [value.notes]
"""
CITY = 'syntax = "proto3"; package shop; message Address { string city = 1; int32 floor = 2; }'
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "shop/address.proto";
message Unused { string name = 1; }
message Order {
  int64 id = 1;
  string country = 2;
  optional string email = 3;
  string notes = 4;
  google.protobuf.Timestamp at = 5;
  Address address = 6;
  repeated int32 counts = 7;
  map<string, double> prices = 8;
%s}
"""
OLD_PROTO, NEW_PROTO = PROTO % "", PROTO % "  bytes more = 9;\n"
SECOND_MESSAGE = b"\x02\x02"  # one index, which is 1
BROKEN = b"\x12\x05D"  # a text that is shorter than it says


def find_order(text: str) -> Any:
    """The class of shop.Order."""
    pool = descriptor_pool.DescriptorPool()
    compiled = compile_protobuf(text, (("shop/address.proto", CITY),))
    for each in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.AddSerializedFile(each.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def write_message(order: Any, id: int, number: int) -> bytes:
    found = order(id=number, country="XX" if number % 7 == 3 else "DE", notes="n" * (number % 90))
    if number % 11:
        found.email = f"a{number}@b.example"
    found.at.seconds, found.at.nanos = 1_767_225_600 + 61 * number, 5_000
    found.address.city, found.address.floor = f"Köln-{number % 50}", number % 9
    found.counts.extend(range(number % 5))
    found.prices["x"] = number / 3
    if "more" in order.DESCRIPTOR.fields_by_name:
        found.more = b"\0\xff"
    rest = BROKEN if number % 101 == 50 else found.SerializeToString(deterministic=True)
    return b"\0" + id.to_bytes(4, "big") + SECOND_MESSAGE + rest


def expect_message(record: Record, orders: dict[int, Any]) -> Record | None:
    """What the transform makes of a record, worked out by the message's own class."""
    key, value, headers, timestamp = record
    if value is None:
        return record
    if value.endswith(BROKEN):
        return None
    found = orders[int.from_bytes(value[1:5], "big")].FromString(value[7:])
    if found.country == "XX" or len(found.counts) >= 4:
        return None
    if found.HasField("email"):
        found.email = hashlib.sha256(found.email.encode()).hexdigest()
    found.notes = ""
    found.address.city = found.address.city.upper()
    found.at.seconds, found.at.nanos = found.at.seconds // 3_600 * 3_600, 0
    return key, value[:7] + found.SerializeToString(deterministic=True), headers, timestamp


def test_protobuf_records_are_transformed_exactly_where_both_clusters_share_a_registry(
    kafka_pair: Lab, registry_pair: list[SchemaRegistryProcess], topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Two versions with an import, the second message of its file, tombstones, records that are no such message."""
    one = [registry_pair[0], registry_pair[0]]
    path, flow = write_topology(kafka_pair, one, topic_name, tmp_path, PROTOBUF), f"onprem-to-cloud-{topic_name}"
    with Admin(ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    with connect(registry_pair[0], "onprem") as registry:
        registry.register(f"{topic_name}-address", Schema(CITY, "PROTOBUF"))
        at = (SchemaReference("shop/address.proto", f"{topic_name}-address", 1),)
        orders = {
            registry.register(f"{topic_name}-value", Schema(text, "PROTOBUF", at)): find_order(text)
            for text in (OLD_PROTO, NEW_PROTO)
        }
    assert len(orders) == 2
    for (id, order), first in zip(orders.items(), (0, 3_000), strict=True):
        produce(kafka_pair, topic_name, range(first, first + 3_000), partial(write_message, order, id))
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    with transform_worker(path, tmp_path / "log") as worker:
        until(lambda: worker.poll() is None and is_caught_up(path, kafka_pair, topic_name), 400)
        expected = {
            partition: {
                offset: wanted
                for offset, record in records.items()
                if (wanted := expect_message(record, orders)) is not None
            }
            for partition, records in consume(kafka_pair, "onprem", topic_name).items()
        }
        assert assert_transformed(kafka_pair, topic_name, flow, expected) > 2_000
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    summary = prove_flows(compile_path(path), ProofRequest(wait=30.0), tmp_path / "out", session=lambda: spark)
    assert (summary["verdict"], summary["unproven"]) == ("incomplete", 0), summary  # for what is in quarantine
    assert summary["proven"] > 2_000
    broken = read_quarantine(ConnectionSettings("cloud", (kafka_pair.clusters["cloud"].bootstrap,)), flow)
    assert len(broken) > 20
    assert summary["quarantine"] == {"entries": len(broken), "alone": len(broken), "others": [], "copied_too": 0}
    assert {each.reason for each in broken} == {
        "the value does not fit: it is no message of the type that its schema names"
    }
