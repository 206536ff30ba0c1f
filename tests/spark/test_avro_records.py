"""Avro records are opened and changed as fastavro opens and writes them; hostile bytes are told, not obeyed."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.clusters.registry.record_schemas import WriterSchema
from watershed.clusters.varints import encode_zigzag
from watershed.spark.transform.avro_records import AvroRecords, build_avro_records
from watershed.spark.transform.field_plan import FieldPlan

ID = 7
FRONT = b"\0" + ID.to_bytes(4, "big")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}
NODE = {
    "type": "record", "name": "Node",
    "fields": [{"name": "name", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
}  # fmt: skip
# By name: the type in Avro, the column, and what values there are (as fastavro takes them).
TYPES: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "b": ("boolean", pa.bool_(), st.booleans()),
    "i": ("int", pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "wide": ("int", pa.int64(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "n": ("long", pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "f": ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    "d": ("double", pa.float64(), st.floats(allow_nan=False)),
    "s": ("string", pa.string(), st.text(max_size=80)),
    "x": ("bytes", pa.binary(), st.binary(max_size=80)),
    "h": ({"type": "fixed", "name": "H", "size": 3}, pa.binary(), st.binary(min_size=3, max_size=3)),
    "e": ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, pa.string(), st.sampled_from("ABC")),
    "o": (["null", "string"], pa.string(), st.none() | st.text(max_size=5)),
    "last": (["string", "null"], pa.string(), st.none() | st.text(max_size=5)),
    "m": (DECIMAL, pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    "p": (
        {"type": "fixed", "name": "P", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 3},
        pa.decimal128(20, 3),
        st.decimals(-(10**16), 10**16, places=3),
    ),
    "day": ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    "ms": (
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    "us": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)),
    ),
    "a": ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.int64()), st.lists(st.none() | st.integers(0, 9))),
    "map": (
        {"type": "map", "values": "string"},
        pa.map_(pa.string(), pa.string()),
        st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4),
    ),
    "r": (
        {"type": "record", "name": "R", "fields": [{"name": "c", "type": "string"}, {"name": "z", "type": "int"}]},
        pa.struct([("c", pa.string()), ("z", pa.int32())]),
        st.fixed_dictionaries({"c": st.text(max_size=5), "z": st.integers(0, 5)}),
    ),
}
# What nobody names may be anything.
OTHERS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "any": (["null", "int", "string", NODE], st.sampled_from([None, 3, "x", {"name": "a", "next": None}])),
    "node": ("Node", st.just({"name": "a", "next": {"name": "b", "next": {"name": "c", "next": None}}})),
    "nulls": ({"type": "array", "items": "null"}, st.just([None, None])),
    "deep": (
        {"type": "map", "values": {"type": "array", "items": "Node"}},
        st.just({"k": [{"name": "", "next": None}]}),
    ),
}
SCHEMA = {
    "type": "record", "name": "Row", "namespace": "t",
    "fields": [
        *({"name": name, "type": type} for name, (type, _) in OTHERS.items()),
        *({"name": name, "type": type} for name, (type, _, _) in TYPES.items()),
    ],
}  # fmt: skip
PARSED = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
ROWS = st.fixed_dictionaries(
    {name: values for name, (_, values) in OTHERS.items()} | {name: values for name, (_, _, values) in TYPES.items()}
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write(schema: Any, document: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, document)
    return FRONT + out.getvalue()


def build(
    schema: Any, columns: Mapping[str, pa.DataType], sets: Sequence[str] = (), drops: Sequence[str] = ()
) -> AvroRecords:
    paths = [tuple(tuple(each.split(".")) for each in some) for some in (sets, drops)]
    plan = FieldPlan("value", "avro", pa.struct(list(columns.items())), *paths)
    return build_avro_records(WriterSchema(ID, "AVRO", json.dumps(schema)), plan)


def as_column(value: Any) -> Any:
    """What a column holds: numbers for dates and times, pairs for maps."""
    if isinstance(value, datetime):
        since = value - EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return value


def as_read(name: str, value: Any) -> Any:
    return list(value.items()) if name == "map" else as_column(value)


ALL = build(SCHEMA, {name: column for name, (_, column, _) in TYPES.items()})
CHANGED = [name for name in TYPES if name != "wide"]  # read as bigint, it cannot be set
CHANGING = build(SCHEMA, {name: TYPES[name][1] for name in CHANGED}, CHANGED)


@settings(max_examples=choose_examples(60, 2_000), deadline=None)
@given(row=ROWS)
def test_fields_are_read_as_fastavro_writes_them(row: dict[str, Any]) -> None:
    assert ALL.read(write(PARSED, row)) == {name: as_read(name, row[name]) for name in TYPES}


@settings(max_examples=choose_examples(60, 2_000), deadline=None)
@given(row=ROWS, other=ROWS)
def test_changed_fields_are_written_as_fastavro_writes_them(row: dict[str, Any], other: dict[str, Any]) -> None:
    found = CHANGING.change(write(PARSED, row), [as_read(name, other[name]) for name in CHANGED])
    assert found == write(PARSED, row | {name: other[name] for name in CHANGED})


@settings(max_examples=choose_examples(60, 2_000), deadline=None)
@given(row=ROWS, data=st.data())
def test_damaged_bytes_are_told_and_never_read_as_something_else(row: dict[str, Any], data: st.DataObject) -> None:
    """Cut short, lengthened, or with other bytes: an error that names no value, or a record."""
    payload = write(PARSED, row)
    cut = data.draw(st.integers(len(FRONT), len(payload) - 1))
    for records in (lambda each: ALL.read(each), lambda each: CHANGING.change(each, [None] * len(CHANGED))):
        with pytest.raises(ValueError):
            records(payload[:cut])
        with pytest.raises(ValueError):
            records(payload + b"\0")
    garbled = bytearray(payload)
    for at in data.draw(st.lists(st.integers(len(FRONT), len(payload) - 1), min_size=1, max_size=4)):
        garbled[at] = data.draw(st.integers(0, 255))
    for harmless in (bytes(garbled), payload[:5] + data.draw(st.binary(max_size=60))):
        with contextlib.suppress(ValueError):
            ALL.read(harmless)


ONE = {"type": "record", "name": "One", "fields": [{"name": "a", "type": None}, {"name": "s", "type": "string"}]}


def with_type(type: Any) -> dict[str, Any]:
    return ONE | {"fields": [{"name": "a", "type": type}, {"name": "s", "type": "string"}]}


@pytest.mark.parametrize(
    ("type", "column", "sets", "why"),
    [
        (
            ["null", "int", "string"],
            pa.int32(),
            [],
            "`a` is a union of null, int, string; of unions only",
        ),
        ("int", pa.string(), [], "`a` is int, and the column is string"),
        ("long", pa.int32(), [], "`a` is long, and the column is int"),
        ("int", pa.int64(), ["a"], "`a` is int, and cannot be set to bigint"),
        (DECIMAL, pa.decimal128(20, 2), [], "`a` is decimal(20,3), and the column is decimal(20,2)"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.int64(), [], "`a` is timestamp-nanos, and the column"),
        ({"type": "array", "items": "null"}, pa.list_(pa.int32()), [], "whose items take no byte"),
        (NODE, pa.struct([("nam", pa.string())]), [], "`a` has no field `nam`"),
        (NODE, pa.struct([("next", pa.struct([("name", pa.int32())]))]), [], "`a.next.name` is string"),
        (NODE, pa.struct([("name", pa.string())]), ["a"], "`a` is record Node and is set as a whole"),
        ("Gone", pa.int32(), [], "it refers to `Gone`, which is not defined"),
        ({"type": "enum", "name": "F", "symbols": 5}, pa.string(), [], "the symbols of `F` are no list"),
        ({"type": "fixed", "name": "F", "size": "x"}, pa.binary(), [], "the size of `F` is no number"),
    ],
)
def test_a_schema_that_does_not_fit_is_told_with_the_field(
    type: Any, column: pa.DataType, sets: list[str], why: str
) -> None:
    with pytest.raises(ValueError) as told:
        build(with_type(type), {"a": column}, sets)
    assert why in str(told.value)


def test_what_a_version_lacks_does_not_fit_and_what_it_need_not_have_is_left_out() -> None:
    with pytest.raises(ValueError, match="has no field `gone`"):
        build(with_type("int"), {"gone": pa.string()})
    with pytest.raises(ValueError, match="`s` cannot be null in it, so it cannot be dropped"):
        build(with_type("int"), {}, drops=["s"])
    payload = FRONT + b"\x02\x02x"
    assert build(with_type("int"), {}, drops=["gone"]).change(payload, []) == payload
    dropped = build(with_type(["int", "null"]), {}, drops=["a"]).change(FRONT + b"\x00\x02\x02x", [])
    assert dropped == FRONT + b"\x02\x02x"


def test_fields_within_fields_are_changed_where_they_are() -> None:
    schema = with_type(["null", NODE])
    columns = {"a": pa.struct([("name", pa.string())])}
    records = build(schema, columns, ["a.name"])
    parsed = fastavro.parse_schema(schema)
    row = {"a": {"name": "x", "next": {"name": "y", "next": None}}, "s": "z"}
    assert records.change(write(parsed, row), ["new"]) == write(parsed, row | {"a": row["a"] | {"name": "new"}})  # type: ignore[operator]
    with pytest.raises(ValueError, match="`a` is null, so that no field in it can be set"):
        records.change(write(parsed, {"a": None, "s": "z"}), ["new"])
    assert records.change(write(parsed, {"a": None, "s": "z"}), [None]) == write(parsed, {"a": None, "s": "z"})
    dropping = build(schema, {}, drops=["a.next"])
    assert dropping.change(write(parsed, row), []) == write(parsed, {"a": {"name": "x", "next": None}, "s": "z"})
    assert dropping.change(write(parsed, {"a": None, "s": "z"}), []) == write(parsed, {"a": None, "s": "z"})


@pytest.mark.parametrize(
    ("type", "column", "value", "why"),
    [
        ("string", pa.string(), None, "`a` cannot be null in it"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "secret", "none of its symbols"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"secret", "has 2 bytes"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), 1, "keeps milliseconds"),
    ],
)
def test_a_value_that_has_no_place_in_the_field_is_told_without_it(
    type: Any, column: pa.DataType, value: Any, why: str
) -> None:
    schema = with_type(type)
    first = {"string": b"\0", "long": b"\0", "enum": b"\0", "fixed": b"xx"}[
        type if isinstance(type, str) else type["type"]
    ]
    with pytest.raises(ValueError) as told:
        build(schema, {"a": column}, ["a"]).change(FRONT + first + b"\0", [value])
    assert why in str(told.value)
    assert "secret" not in str(told.value)


def test_bytes_that_others_would_write_otherwise_are_kept() -> None:
    """An array in two blocks with sizes, a number in more bytes than it needs: only the named field is written anew."""
    array = encode_zigzag(-1) + encode_zigzag(1) + b"\x02" + encode_zigzag(1) + b"\x04" + b"\0"
    payload = FRONT + array + b"\x02x"
    schema = with_type({"type": "array", "items": "int"})
    assert build(schema, {"s": pa.string()}, ["s"]).change(payload, ["yy"]) == FRONT + array + b"\x04yy"
    assert build(schema, {"a": pa.list_(pa.int32())}).read(payload) == {"a": [1, 2]}
    long_way = FRONT + b"\x82\x00" + b"\x02x"
    assert build(with_type("int"), {"s": pa.string()}, ["s"]).change(long_way, ["yy"]) == FRONT + b"\x82\x00\x04yy"


def test_bombs_cost_no_more_than_their_bytes() -> None:
    """2⁶² items without a byte, 2⁴⁰ items in a few bytes, a record that contains itself a million times."""
    nulls = FRONT + encode_zigzag(1 << 61) + b"\0" + b"\x02x"
    many = FRONT + encode_zigzag(1 << 40) + b"\0"
    deep = FRONT + b"\x00\x02" * 1_000_000
    began = time.process_time()
    assert build(with_type({"type": "array", "items": "null"}), {"s": pa.string()}).read(nulls) == {"s": "x"}
    with pytest.raises(ValueError, match="in the middle"):
        build(with_type({"type": "array", "items": "int"}), {"s": pa.string()}).read(many)
    with pytest.raises(ValueError, match="nested too deeply"):
        build(with_type(NODE), {"s": pa.string()}).read(deep)
    twice = FRONT + encode_zigzag(2) + b"\x02k\x02k\0" + b"\x02x"
    with pytest.raises(ValueError, match="holds a key twice"):
        build(
            with_type({"type": "map", "values": {"type": "fixed", "name": "Z", "size": 0}}),
            {"a": pa.map_(pa.string(), pa.binary())},
        ).read(twice)
    assert time.process_time() - began < 5


def test_schemas_that_grow_without_bytes_cost_no_more_than_their_text() -> None:
    """Each record has the one before it twice: 2⁶⁰ fields, none of which takes a byte. A decimal of 10⁹ digits."""
    type: Any = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, 60):
        fields = [{"name": "a", "type": type}, {"name": "b", "type": f"R{level - 1}"}]
        type = {"type": "record", "name": f"R{level}", "fields": fields}
    began = time.process_time()
    assert build(with_type(type), {"s": pa.string()}, ["s"]).change(FRONT + b"\x02x", ["y"]) == FRONT + b"\x02y"
    wide = {"type": "fixed", "name": "F", "size": 1 << 60, "logicalType": "decimal", "precision": 1 << 60}
    with pytest.raises(ValueError, match="in the middle"):
        build(with_type(wide), {"s": pa.string()}).read(FRONT)
    assert time.process_time() - began < 5


def test_references_are_read_before_what_refers_to_them() -> None:
    schema = {"type": "record", "name": "O", "namespace": "x", "fields": [{"name": "a", "type": "Address"}]}
    address = {"type": "record", "name": "Address", "namespace": "x", "fields": [{"name": "city", "type": "string"}]}
    writer = WriterSchema(ID, "AVRO", json.dumps(schema), (("x.Address", json.dumps(address)),))
    plan = FieldPlan("value", "avro", pa.struct([("a", pa.struct([("city", pa.string())]))]))
    assert build_avro_records(writer, plan).read(FRONT + b"\x04Ab") == {"a": {"city": "Ab"}}
    with pytest.raises(ValueError, match=r"in x\.Address, which it refers to: it refers to `Gone`"):
        build_avro_records(WriterSchema(ID, "AVRO", "{}", (("x.Address", '"Gone"'),)), plan)


def test_decimals_beyond_their_type_and_times_beyond_a_timestamp_are_told() -> None:
    columns = {"a": pa.decimal128(20, 3)}
    raw = (10**20).to_bytes(10, "big", signed=True)
    with pytest.raises(ValueError, match="more digits"):
        build(with_type(DECIMAL), columns).read(FRONT + encode_zigzag(10) + raw + b"\0")
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    with pytest.raises(ValueError, match="a time outside of the years 1 to 9999"):
        build(with_type(millis), {"a": pa.timestamp("us", "UTC")}).read(FRONT + encode_zigzag(1 << 62) + b"\0")
    assert build(with_type(DECIMAL), columns).read(FRONT + b"\0\0")["a"] == Decimal(0)
