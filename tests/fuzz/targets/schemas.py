"""Records of a schema registry, and Avro schemas: opened, and changed, as flows with `transform` do.

The first byte of an input says what it is: 0 an Avro record, 1 a Protobuf message, 2 the text of an Avro schema.
Oracle: a record whose fields are set to what they are says the same.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.fuzz.target import OracleViolated, Target
from tests.spark import test_avro_records as avro
from tests.spark import test_protobuf_records as protobuf
from watershed.clusters.registry.record_schemas import WriterSchema
from watershed.spark.transform.avro_records import build_avro_records
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.field_records import FieldRecords

_ROW: dict[str, Any] = {
    "any": {"name": "x", "next": None}, "node": {"name": "a", "next": {"name": "b", "next": None}}, "nulls": [None],
    "deep": {"k": [{"name": "", "next": None}]}, "b": True, "i": -5, "wide": 7, "n": 1 << 40, "f": 1.5, "d": -2.25,
    "s": "Köln", "x": b"\xff\0", "h": b"abc", "e": "B", "o": None, "last": "z", "m": Decimal("-12345.678"),
    "p": Decimal("0.001"), "day": datetime(1969, 7, 20, tzinfo=UTC).date(), "ms": datetime(2026, 1, 2, tzinfo=UTC),
    "us": datetime(1901, 1, 2, 3, 4, 5, 6_007, UTC), "a": [1, None], "map": {"k": "v"}, "r": {"c": "x", "z": 3},
}  # fmt: skip
_MESSAGE: dict[str, Any] = {
    "id": -7, "country": "DE", "email": "a@b", "kind": "LARGE", "price": 0.5, "tags": ["a", "ü"], "counts": [3, -1],
    "stock": {"x": 1 << 40}, "at": 1_767_225_600_123_456, "big": (1 << 64) - 1, "raw": b"\0\xff", "paid": True,
    "small": (1 << 32) - 1, "ratio": 0.25,
}  # fmt: skip
_AVRO_SETS = avro.CHANGED
_PROTOBUF_SETS = [name for name in protobuf.SETTABLE if name != "stock"]  # a map has no order


def target() -> Target:
    messages = protobuf.build(protobuf.COLUMNS, _PROTOBUF_SETS)
    forms: list[tuple[FieldRecords, list[str]]] = [(avro.CHANGING, _AVRO_SETS), (messages, _PROTOBUF_SETS)]

    def attempt(data: bytes) -> str:
        kind = data[0] % 3 if data else 0
        if kind == 2:
            return _attempt_schema(data[1:])
        records, names = forms[kind]
        found = records.read(data[1:])
        again = records.read(records.change(data[1:], [found[name] for name in names]))
        if repr(again) != repr(found):  # as text: what is no number is not equal to itself
            raise OracleViolated("a record whose fields are set to what they are says something else")
        return f"{len(found)} fields"

    schemas = [avro.SCHEMA, avro.with_type("int"), avro.with_type(["null", avro.NODE]), avro.with_type(avro.DECIMAL)]
    seeds = [
        b"\0" + avro.write(avro.PARSED, _ROW),
        b"\1" + protobuf.write(_MESSAGE),
        *(b"\2" + json.dumps(each).encode() for each in schemas),
    ]
    words = [b'"type"', b'"record"', b'"fields"', b'"logicalType"', b'"decimal"', b'"Node"', b"\x80\x80\x80\x80\x01"]
    return Target("schemas", seeds, attempt, (ValueError,), words)


def _attempt_schema(text: bytes) -> str:
    plan = FieldPlan("value", "avro", pa.struct([("s", pa.string())]), (("s",),))
    records = build_avro_records(WriterSchema(avro.ID, "AVRO", text.decode()), plan)
    return f"{records.read(avro.FRONT + bytes(40))}"
