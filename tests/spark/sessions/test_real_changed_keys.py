"""Keys of a schema registry that a flow changes (`partitions: {mapping: key}`), on real brokers with real registries:
fastavro, or the class of a message, says what key and value each record should have, where, and in which order."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

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
from tests.spark.sessions.test_real_transform_schemas import (
    BROKEN,
    CITY,
    NEW_PROTO,
    NEWER,
    OLD_PROTO,
    OLDER,
    SECOND_MESSAGE,
    assert_transformed,
    connect,
    find_order,
    produce,
    write_avro,
    write_message,
    write_order,
    write_topology,
)
from tests.spark.sessions.test_spark_replicate import run, until
from watershed.clusters.admin import Admin
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.schema import Schema, SchemaReference
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.quarantine import read_quarantine
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab
    from watershed.lab.schema_registry import SchemaRegistryProcess

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1500)]

FLOW = """
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    partitions: {{mapping: key}}  # lint: ignore[SYC522] nobody writes at the target
    sync:
      groups: {{mode: continuous, include: ["{name}-group"], interval: 1s}}
      schemas: {{mode: continuous, ids: translate}}
    delivery: {{rejected: quarantine}}
    transform:
      secrets: {{PEPPER: {{env: WATERSHED_SECRET_PEPPER}}}}
"""
AVRO = (
    FLOW
    + """
      format: {{key: avro, value: avro}}
      schema: {{key: "customer string, region string", value: "country string, email string"}}
      where: "value is null or value.country <> 'XX'"
      set:
        key.customer: "sha2(concat(key.customer, secret('PEPPER')), 256)"
        key.region: "if(value is null, key.region, lower(value.country))"
        value.email: "concat('customer of ', key.region)"
      drop: [key.note]
"""
)
PROTOBUF = (
    FLOW
    + """
      format: {{key: protobuf, value: protobuf}}
      schema:
        key: "country string, email string, address struct<city string>"
        value: "country string, email string"
      where: "value is null or value.country <> 'XX'"
      set:
        key.email: "sha2(concat(key.email, secret('PEPPER')), 256)"
        key.address.city: "upper(key.address.city)"
        value.email: "substring(key.email, 1, 3)"
      drop: [key.notes]
"""
)
_KEY_FIELDS: list[dict[str, Any]] = [
    {"name": "customer", "type": "string"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "region", "type": "string"},
]
OLDER_KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": _KEY_FIELDS}
NEWER_KEY = {**OLDER_KEY, "fields": [{"name": "tenant", "type": "long", "default": 0}, *_KEY_FIELDS[::-1]]}
Ids = dict[int, tuple[int, Any]]  # at the source → (at the target, schema or class)


def hide(text: str) -> str:
    return hashlib.sha256((text + SECRET).encode()).hexdigest()


def write_avro_key(schema: dict[str, Any], id: int, number: int) -> bytes:
    """As many customers as make several of them meet in a partition."""
    document = {"customer": f"c{number % 40}@b.example", "region": "EU", "tenant": number}
    return write_avro(schema, id, document | {"note": f"n{number}" if number % 3 else None})


def read_avro(ids: Ids, data: bytes) -> tuple[int, Any, dict[str, Any]]:
    id, schema = ids[int.from_bytes(data[1:5], "big")]
    document: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(schema), None)
    return id, schema, document


def expect_avro(record: Record, keys: Ids, values: Ids) -> Record | None:
    """What AVRO makes of a record."""
    key, value, headers, timestamp = record
    assert key is not None
    id, schema, document = read_avro(keys, key)
    changed = {**document, "customer": hide(document["customer"]), "note": None}
    if value is None:
        return write_avro(schema, id, changed), None, headers, timestamp
    value_id, value_schema, order = read_avro(values, value)
    if order["country"] == "XX":
        return None
    changed["region"] = order["country"].lower()
    order["email"] = f"customer of {document['region']}"
    return write_avro(schema, id, changed), write_avro(value_schema, value_id, order), headers, timestamp


def expect_protobuf(record: Record, keys: Ids, values: Ids) -> Record | None:
    """What PROTOBUF makes of a record."""
    key, value, headers, timestamp = record
    assert key is not None
    if key.endswith(BROKEN) or (value is not None and value.endswith(BROKEN)):
        return None
    id, order = keys[int.from_bytes(key[1:5], "big")]
    found = order.FromString(key[7:])
    email = found.email if found.HasField("email") else None
    if email is not None:
        found.email = hide(email)
    found.notes, found.address.city = "", found.address.city.upper()
    changed = write_prefix(id) + found.SerializeToString(deterministic=True)
    if value is None:
        return changed, None, headers, timestamp
    id, order = values[int.from_bytes(value[1:5], "big")]
    found = order.FromString(value[7:])
    if found.country == "XX":
        return None
    added = b""
    if email is None:
        found.ClearField("email")
    elif found.HasField("email"):
        found.email = email[:3]
    else:  # a field that was not there comes after the others
        added = order(email=email[:3]).SerializeToString()
    rest = found.SerializeToString(deterministic=True) + added
    return changed, write_prefix(id) + rest, headers, timestamp


def write_prefix(id: int) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + SECOND_MESSAGE


def expect_all(
    lab: Lab, topic: str, expect: Callable[[Record, Ids, Ids], Record | None], keys: Ids, values: Ids
) -> dict[int, dict[int, Record]]:
    """By partition and source offset, of the records that travel."""
    return {
        partition: {
            offset: wanted for offset, record in records.items() if (wanted := expect(record, keys, values)) is not None
        }
        for partition, records in consume(lab, "onprem", topic).items()
    }


@contextmanager
def registries(pair: list[SchemaRegistryProcess], topic: str) -> Iterator[tuple[RegistryClient, RegistryClient]]:
    """Those of both sides; ids differ, and keys and values may be of schemas that do not go together."""
    with connect(pair[0], "onprem") as here, connect(pair[1], "cloud") as there:
        for number in range(3):
            there.register(f"{topic}-taken-{number}", Schema(f'{{"type":"string","doc":"{topic}{number}"}}'))
        for side in ("key", "value"):
            here.set_compatibility(f"{topic}-{side}", "NONE")
        yield here, there


def find_twins(here: RegistryClient, there: RegistryClient, subject: str, known: list[Any]) -> Ids:
    """known: schema or class of each version, in the order in which they were registered."""
    ours, twins = ([each.id for each in registry.history(subject)] for registry in (here, there))
    assert len(ours) == len(twins) == len(known)
    assert not set(ours) & set(twins)
    return dict(zip(ours, zip(twins, known, strict=True), strict=True))


def create_topic(lab: Lab, topic: str) -> None:
    with Admin(ConnectionSettings("onprem", (lab.clusters["onprem"].bootstrap,))) as admin:
        admin.create_topic(topic, PARTITIONS, 1, {})


def assert_group_lands(lab: Lab, topic: str, expected: dict[int, dict[int, Record]], positions: list[int]) -> None:
    after = consume(lab, "cloud", topic)
    wanted = [
        sorted(after[number])[bisect_left(list(expected[number]), position)]
        for number, position in enumerate(positions)
    ]
    until(lambda: read_positions(lab, topic) == wanted, 60)


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def prove(path: Path, folder: Path, spark: SparkSession) -> dict[str, Any]:
    spark.sparkContext.environment["WATERSHED_SECRET_PEPPER"] = SECRET
    return prove_flows(compile_path(path), ProofRequest(wait=30.0), folder / "out", session=lambda: spark)


def test_avro_keys_are_changed_exactly_under_the_ids_of_the_target(
    kafka_pair: Lab, registry_pair: list[SchemaRegistryProcess], topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Two versions of both schemas in each partition, tombstones, aborted transactions, a driver that is killed."""
    path = write_topology(kafka_pair, registry_pair, topic_name, tmp_path, AVRO)
    create_topic(kafka_pair, topic_name)
    log, positions = tmp_path / "log", [701, 1_500, 1_999]
    with registries(registry_pair, topic_name) as (here, there):
        schemas = ((OLDER_KEY, OLDER), (NEWER_KEY, NEWER))

        def register(key: dict[str, Any], value: dict[str, Any]) -> list[int]:
            sides = (("key", key), ("value", value))
            return [here.register(f"{topic_name}-{side}", Schema(json.dumps(each))) for side, each in sides]

        def write(numbers: range, version: int, ids: list[int]) -> None:
            key, value = schemas[version]
            build, build_key = partial(write_order, value, ids[1]), partial(write_avro_key, key, ids[0])
            produce(kafka_pair, topic_name, numbers, build, build_key)

        older = register(*schemas[0])
        write(range(4_000), 0, older)
        run("-m", "watershed.cli.main", "apply", str(path), "--yes")
        with transform_worker(path, log) as worker:
            until(lambda: worker.poll() is None and any(each["target_end"] > 0 for each in read_partitions(path)), 300)
            write(range(4_000, 8_000), 1, register(*schemas[1]))
            commit_positions(kafka_pair, topic_name, positions)
            os.kill(worker.pid, signal.SIGKILL)
        write(range(8_000, 9_000), 0, older)
        with transform_worker(path, log) as worker:
            until(lambda: worker.poll() is None and is_caught_up(path, kafka_pair, topic_name), 400)
            keys, values = (
                find_twins(here, there, f"{topic_name}-{side}", [each[at] for each in schemas])
                for at, side in enumerate(("key", "value"))
            )
            expected = expect_all(kafka_pair, topic_name, expect_avro, keys, values)
            count = assert_transformed(kafka_pair, topic_name, f"onprem-to-cloud-{topic_name}", expected)
            assert count > 5_000
            assert_group_lands(kafka_pair, topic_name, expected, positions)
            end_worker(worker)
    assert SECRET not in log.read_text(encoding="utf-8")
    summary = prove(path, tmp_path, spark)
    assert (summary["verdict"], summary["unproven"], summary["level"]) == ("proven", 0, "L3"), summary
    assert (summary["proven"], summary["groups"]["landings"]) == (count, {"exact": PARTITIONS})


def test_protobuf_keys_are_changed_exactly_and_one_that_is_no_message_is_quarantined(
    kafka_pair: Lab, registry_pair: list[SchemaRegistryProcess], topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Keys of another version than the values, with an import; keys and values that are no such message."""
    path = write_topology(kafka_pair, registry_pair, topic_name, tmp_path, PROTOBUF)
    flow, positions = f"onprem-to-cloud-{topic_name}", [501, 1_000, 1_333]
    create_topic(kafka_pair, topic_name)
    texts = {"key": NEW_PROTO, "value": OLD_PROTO}
    orders = {side: find_order(text) for side, text in texts.items()}
    with registries(registry_pair, topic_name) as (here, there):
        here.register(f"{topic_name}-address", Schema(CITY, "PROTOBUF"))
        at = (SchemaReference("shop/address.proto", f"{topic_name}-address", 1),)
        ids = {
            side: here.register(f"{topic_name}-{side}", Schema(text, "PROTOBUF", at)) for side, text in texts.items()
        }
        build, build_key = (partial(write_message, orders[side], ids[side]) for side in ("value", "key"))
        produce(kafka_pair, topic_name, range(6_000), build, lambda number: build_key(number + 7))
        run("-m", "watershed.cli.main", "apply", str(path), "--yes")
        with transform_worker(path, tmp_path / "log") as worker:
            until(lambda: worker.poll() is None and is_caught_up(path, kafka_pair, topic_name), 400)
            keys, values = (
                find_twins(here, there, f"{topic_name}-{side}", [orders[side]]) for side in ("key", "value")
            )
            expected = expect_all(kafka_pair, topic_name, expect_protobuf, keys, values)
            count = assert_transformed(kafka_pair, topic_name, flow, expected)
            assert count > 3_000
            commit_positions(kafka_pair, topic_name, positions)
            assert_group_lands(kafka_pair, topic_name, expected, positions)
            end_worker(worker)
    assert SECRET not in (tmp_path / "log").read_text(encoding="utf-8")
    summary = prove(path, tmp_path, spark)
    assert (summary["verdict"], summary["unproven"]) == ("incomplete", 0), summary  # for what is in quarantine
    assert summary["proven"] == count
    broken = read_quarantine(ConnectionSettings("cloud", (kafka_pair.clusters["cloud"].bootstrap,)), flow)
    assert summary["quarantine"] == {"entries": len(broken), "alone": len(broken), "others": [], "copied_too": 0}
    reasons = {each.reason for each in broken}
    assert reasons == {
        f"the {side} does not fit: it is no message of the type that its schema names" for side in ("key", "value")
    }
