"""Records of a schema registry through Spark's SQL: every type that a column may have, there and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.test_avro_records import PARSED, SCHEMA, TYPES
from tests.spark.test_avro_records import write as write_avro
from tests.spark.test_protobuf_records import COLUMNS, SETTABLE, as_column, build, compile_orders
from tests.spark.test_protobuf_records import write as write_protobuf
from tests.spark.test_record_rows import encode
from watershed.clusters.fake_registry import FakeRegistry
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.record_schemas import RecordSchemas, SideSchemas, UnknownSchema, WriterSchema
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema
from watershed.replicator.batch.records import RawRecord, build_raw_batch, decode_record_fields, decode_records
from watershed.replicator.batch.untransformed_selection import UntransformedPart
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.transport.transform_thread import TransformedPart, TransformRequest
from watershed.spark.transform.compiled_transform import find_wrong_expressions
from watershed.spark.transform.spark_engine import SparkTransformEngine
from watershed.spark.transform.topology_expressions import add_expression_problems, hash_spark_plans
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.plan_builder import build_plan
from watershed.topology.record_transform import RecordTransform, RegistryFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.replicator.batch.record_batch import RawBatch

pytestmark = pytest.mark.spark

AVRO_ROW: dict[str, Any] = {
    "any": "x", "node": {"name": "a", "next": None}, "nulls": [None], "deep": {}, "b": True, "i": -5, "wide": 7,
    "n": -(1 << 63), "f": 1.5, "d": -2.25, "s": "Köln", "x": b"\xff\0", "h": b"abc", "e": "B", "o": None, "last": "z",
    "m": Decimal("-12345.678"), "p": Decimal("0.001"), "day": datetime(1969, 7, 20, tzinfo=UTC).date(),
    "ms": datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC), "us": datetime(1901, 1, 2, 3, 4, 5, 6_007, UTC), "a": [1, None],
    "map": {"k": "v"}, "r": {"c": "x", "z": 3},
}  # fmt: skip
AVRO_DDL = (
    "b boolean, i int, wide bigint, n bigint, f float, d double, s string, x binary, h binary, e string, o string, "
    "last string, m decimal(20,3), p decimal(20,3), day date, ms timestamp, us timestamp, a array<bigint>, "
    "map map<string,string>, r struct<c string, z int>"
)
PROTOBUF_ROW: dict[str, Any] = {
    "id": -7, "country": "DE", "email": None, "kind": "LARGE", "price": 0.5, "tags": ["a", "ü"], "counts": [3, -1],
    "stock": {"x": 1 << 40}, "at": 1_767_225_600_123_456, "big": (1 << 64) - 1, "raw": b"\0\xff", "paid": True,
    "small": (1 << 32) - 1, "ratio": 0.25,
}  # fmt: skip
PROTOBUF_DDL = (
    "id bigint, country string, email string, kind string, price double, address struct<city string, zip string>, tags "
    "array<string>, counts array<int>, stock map<string,bigint>, at timestamp, card string, cash int, "
    "big decimal(20,0), raw binary, paid boolean, small bigint, ratio float"
)


def build_transform(form: RegistryFormat, ddl: str, **more: Any) -> RecordTransform:
    return RecordTransform(value_format=form, schemas=(("value", ddl),), **more)


def transform(
    session: SparkSession,
    wanted: RecordTransform,
    values: list[bytes | None],
    writers: dict[int, WriterSchema],
    key: bytes = b"k",
) -> TransformedPart:
    """What the engine makes of records with these values, from offset 0 on."""
    raw = [RawRecord(at, 1_000, encode(key, value, [])) for at, value in enumerate(values)]
    batch = build_raw_batch(raw, 0, len(raw))
    part = UntransformedPart(0, 0)
    part.add(batch)
    part.advance(batch, None)
    side = SideSchemas(writers, {}, {id: id + 1_000 for id in writers})
    schemas = RecordSchemas(side, side) if wanted.key_format == "avro" else RecordSchemas(value=side)
    request = TransformRequest(PartitionKey("f", "t", "t", 0), part, {}, 100_000, schemas)
    [found] = SparkTransformEngine(session).transform(wanted, [request])
    return found


def list_values(batches: list[RawBatch]) -> list[bytes | None]:
    return [
        decode_record_fields(record.rest)[1]
        for batch in batches
        for record in decode_records(batch._replace(base=0, end=1 << 40))
    ]


def with_id(payload: bytes, id: int) -> bytes:
    return payload[:1] + id.to_bytes(4, "big") + payload[5:]


def test_avro_fields_of_all_types_pass_through_sql_unchanged(spark: SparkSession) -> None:
    """Each is set to itself: what comes back are the same bytes. A record whose id nobody knows is named."""
    names = [name for name in TYPES if name != "wide"]
    wanted = build_transform(
        "avro", AVRO_DDL, changes=tuple((f"value.{name}", f"value.{name}") for name in sorted(names)), where="true"
    )
    value = write_avro(PARSED, AVRO_ROW)
    writers = {7: WriterSchema(7, "AVRO", json.dumps(SCHEMA))}
    found = transform(spark, wanted, [value, None, value], writers)
    assert found.rejected == []
    assert list_values(found.batches) == [with_id(value, 1_007), None, with_id(value, 1_007)]
    lacking = transform(spark, wanted, [value, with_id(value, 8)], writers)
    assert lacking.unknown == {UnknownSchema("value", 8)}


def test_avro_records_are_judged_set_and_dropped_by_expressions(spark: SparkSession) -> None:
    wanted = build_transform(
        "avro",
        AVRO_DDL,
        where="value.i < 0 and value.r.z = 3 and element_at(value.a, 1) = 1 and value.day < date'1970-01-01'",
        changes=(
            ("value.e", "if(value.us < timestamp'1970-01-01 00:00:00', 'C', null)"),
            ("value.r.c", "upper(value.s)"),
        ),
        drops=("value.last",),
    )
    rows = [AVRO_ROW, AVRO_ROW | {"i": 5}, AVRO_ROW | {"us": AVRO_ROW["ms"]}]
    found = transform(
        spark, wanted, [write_avro(PARSED, row) for row in rows], {7: WriterSchema(7, "AVRO", json.dumps(SCHEMA))}
    )
    changed = AVRO_ROW | {"e": "C", "r": {"c": "KÖLN", "z": 3}, "last": None}
    assert list_values(found.batches) == [with_id(write_avro(PARSED, changed), 1_007)]
    assert [(each.source_offset, each.reason) for each in found.rejected] == [
        (2, "the value cannot be changed: `e` cannot be null in it")
    ]


def test_keys_are_opened_and_get_the_ids_of_the_target_too(spark: SparkSession) -> None:
    """A value that no expression looks at is not opened; it gets its id all the same."""
    wanted = RecordTransform("avro", "avro", schemas=(("key", "s string"),), where="key.s = 'Köln'")
    key, value = write_avro(PARSED, AVRO_ROW), with_id(b"\0\0\0\0\0 not opened", 7)
    found = transform(spark, wanted, [value], {7: WriterSchema(7, "AVRO", json.dumps(SCHEMA))}, key)
    assert found.rejected == []
    [record] = decode_records(found.batches[0]._replace(base=0, end=1))
    assert decode_record_fields(record.rest)[:2] == (with_id(key, 1_007), with_id(value, 1_007))


def test_protobuf_fields_of_all_types_pass_through_sql_unchanged(spark: SparkSession) -> None:
    names = sorted(SETTABLE)
    wanted = build_transform(
        "protobuf", PROTOBUF_DDL, changes=tuple((f"value.{name}", f"value.{name}") for name in names)
    )
    value = write_protobuf(PROTOBUF_ROW)
    found = transform(spark, wanted, [value, None], {7: compile_orders()})
    assert found.rejected == []
    # fields that are set keep their places, so that the message is what one after the other makes of it
    again = build(COLUMNS, names).change(value, [as_column(name, PROTOBUF_ROW[name]) for name in names])
    assert list_values(found.batches) == [with_id(again, 1_007), None]
    assert again == value


@pytest.mark.parametrize(
    ("changed", "path", "why"),
    [
        ({"changes": (("value.gone", "1"),)}, "set.value.gone", "`schema.value` has no field 'gone'"),
        ({"where": "value.i > 0 and"}, "where", "its last word is one that Spark takes for a name"),
        ({"where": "struct(value.i as a).a > 0"}, "", ""),
        ({"changes": (("value.i", "'x'"),)}, "set.value.i", "it gives string, and int is needed; write a cast"),
        ({"changes": (("value.i", "value.i + 1L"),)}, "set.value.i", "it gives bigint, and int is needed"),
        ({"where": "value.gone = 1"}, "where", "No such struct field `gone`"),
        ({"schemas": (("value", "i tinyint"),)}, "schema.value", "no field of avro is tinyint"),
        ({"schemas": (("value", "i nonsense"),)}, "schema.value", "NONSENSE"),
        ({"changes": (("value.o", "null"), ("value.r", "named_struct('c', 'x', 'z', 1)"))}, "", ""),
    ],
)
def test_lint_says_which_expression_does_not_keep_the_type(
    spark: SparkSession, changed: dict[str, Any], path: str, why: str
) -> None:
    wanted = replace(build_transform("avro", AVRO_DDL, where="value.i > 0"), **changed)
    found = list(find_wrong_expressions(spark, wanted))
    assert [(each.path, why in each.reason) for each in found] == ([(path, True)] if path else []), found


FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: lint, owner: tests}
clusters:
  a:
    bootstrap: ["127.0.0.1:9"]
    security: {protocol: PLAINTEXT}
    schema_registry: {url: "%s"}
  b: {bootstrap: ["127.0.0.1:10"], security: {protocol: PLAINTEXT}}
flows:
  - source: a
    target: b
    topics: {include: [orders]}
    transform:
      format: {value: avro}
      schema: {value: "country string, n bigint"}
      where: "value.country <> 'XX' and value.n > 0"
"""


def test_lint_asks_the_registry_for_the_newest_version(spark: SparkSession) -> None:
    fields = [{"name": "country", "type": "string"}, {"name": "n", "type": "string"}]
    with FakeRegistry() as fake, RegistryClient(RegistrySettings("a", fake.url)) as registry:
        loaded = parse_topology(FILE % fake.url)
        [judged] = add_expression_problems([loaded], ask_registries=True)
        [found] = [each for each in lint_topology(judged).findings if each.rule == "SYN015"]
        assert (found.severity, found.path) == ("warning", "flows[0].transform.schema.value")
        assert "a's registry has no subject for values of a topic of it (TOPIC-value)" in found.message
        id = registry.register("orders-value", Schema(json.dumps({"type": "record", "name": "O", "fields": fields})))
        [judged] = add_expression_problems([loaded], ask_registries=True)
        [found] = [each for each in lint_topology(judged).findings if each.rule == "SYN015"]
        assert (found.severity, found.path) == ("warning", "flows[0].transform.schema.value")
        assert found.message == (
            "flow a-to-b: records of the newest version of orders-value (1) would be rejected: "
            f"schema id {id}: `n` is string, and the column is bigint"
        )
        assert add_expression_problems([loaded])[0].problems == loaded.problems


PLAIN = FILE.replace("{value: avro}", "{value: json}")


def test_lint_warns_of_a_subject_beside_plain_json(spark: SparkSession) -> None:
    with FakeRegistry() as fake, RegistryClient(RegistrySettings("a", fake.url)) as registry:
        loaded = parse_topology(PLAIN % fake.url)
        assert add_expression_problems([loaded], ask_registries=True)[0].problems == loaded.problems
        registry.register("orders-value", Schema('{"type": "object"}', "JSON"))
        assert add_expression_problems([loaded])[0].problems == loaded.problems
        [judged] = add_expression_problems([loaded], ask_registries=True)
        [found] = [each for each in lint_topology(judged).findings if each.rule == "SYN015"]
        assert (found.severity, found.path) == ("warning", "flows[0].transform.schema.value")
        assert found.message.startswith("flow a-to-b: records of orders-value (1) would be rejected: clients that")
        # what it advises can be written
        advised = PLAIN.replace("{value: json}", "{value: bytes}").replace(
            "value.country <> 'XX' and value.n > 0",
            "get_json_object(decode(substring(value, 6), 'UTF-8'), '$.country') <> 'XX'",
        )
        told = parse_topology("\n".join(line for line in advised.splitlines() if "schema:" not in line) % fake.url)
        assert told.problems == ()
        assert add_expression_problems([told], ask_registries=True)[0].problems == ()


def test_a_plan_of_spark_has_a_hash_that_follows_from_what_it_does(spark: SparkSession) -> None:
    plan = build_plan(parse_topology(FILE % "http://127.0.0.1:9").topology, {})  # type: ignore[arg-type]
    [hash] = hash_spark_plans(plan).values()
    [flow] = plan.flows
    assert flow.transform is not None
    assert hash_spark_plans(plan) == {"a-to-b": hash}
    other = replace(flow, transform=replace(flow.transform, where="value.n > 1"))
    assert hash_spark_plans(replace(plan, flows=(other,))) not in ({"a-to-b": hash}, {})
    wrong = replace(flow, transform=replace(flow.transform, where="value.gone > 1"))
    assert hash_spark_plans(replace(plan, flows=(wrong,))) == {}
