"""Protobuf messages are opened by their schemas and changed field by field; what is not named keeps its bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.clusters.errors import ClusterError
from watershed.clusters.registry import protobuf_compiler
from watershed.clusters.registry.protobuf_compiler import compile_protobuf
from watershed.clusters.registry.record_schemas import WriterSchema
from watershed.clusters.varints import encode_zigzag
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.protobuf_records import ProtobufRecords, build_protobuf_records

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "common/address.proto";
enum Kind { SMALL = 0; LARGE = 5; }
message Order {
  int64 id = 1;
  string country = 2;
  optional string email = 3;
  Kind kind = 4;
  double price = 5;
  common.Address address = 6;
  repeated string tags = 7;
  repeated int32 counts = 8;
  map<string, int64> stock = 9;
  google.protobuf.Timestamp at = 10;
  oneof how { string card = 11; int32 cash = 12; }
  uint64 big = 13;
  bytes raw = 14;
  bool paid = 15;
  uint32 small = 16;
  float ratio = 17;
  message Line { string sku = 1; message Deep { int32 n = 1; } }
}
message Other { string name = 1; message Inner { string name = 1; } }
"""
ADDRESS = 'syntax = "proto3"; package common; message Address { string city = 1; optional string zip = 2; }'
ID = b"\0\0\0\0\7"
FIRST = ID + b"\0"  # the first message of the file
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(), "country": pa.string(), "email": pa.string(), "kind": pa.string(), "price": pa.float64(),
    "address": pa.struct([("city", pa.string()), ("zip", pa.string())]), "tags": pa.list_(pa.string()),
    "counts": pa.list_(pa.int32()), "stock": pa.map_(pa.string(), pa.int64()), "at": pa.timestamp("us", "UTC"),
    "card": pa.string(), "cash": pa.int32(), "big": pa.decimal128(20, 0), "raw": pa.binary(), "paid": pa.bool_(),
    "small": pa.int64(), "ratio": pa.float32(),
}  # fmt: skip
SETTABLE = [name for name in COLUMNS if name not in ("address", "card", "cash")]
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": LONGS, "country": st.text(max_size=5), "email": st.none() | st.text(max_size=5),
    "kind": st.sampled_from(["SMALL", "LARGE"]), "price": st.floats(allow_nan=False),
    "tags": st.lists(st.text(max_size=3), max_size=3), "counts": st.lists(st.integers(-5, 300), max_size=3),
    "stock": st.dictionaries(st.text(max_size=2), LONGS, max_size=3), "at": st.none() | st.integers(-(10**16), 10**16),
    "big": st.integers(0, (1 << 64) - 1), "raw": st.binary(max_size=5), "paid": st.booleans(),
    "small": st.integers(0, (1 << 32) - 1), "ratio": st.floats(width=32, allow_nan=False),
}  # fmt: skip
ROWS = st.fixed_dictionaries(VALUES)


@cache
def compile_orders() -> WriterSchema:
    references = (("common/address.proto", ADDRESS),)
    return WriterSchema(7, "PROTOBUF", TEXT, references, compile_protobuf(TEXT, references))


@cache
def find_message() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(compile_orders().descriptors).file:
        pool.AddSerializedFile(each.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def build(columns: dict[str, pa.DataType], sets: Sequence[str] = (), drops: Sequence[str] = ()) -> ProtobufRecords:
    paths = [tuple(tuple(each.split(".")) for each in some) for some in (sets, drops)]
    return build_protobuf_records(
        compile_orders(), FieldPlan("value", "protobuf", pa.struct(list(columns.items())), *paths)
    )


def write(row: dict[str, Any], front: bytes = FIRST) -> bytes:
    """As a producer does: by the message's class."""
    message = find_message()()
    for name, value in row.items():
        if value is None:
            continue
        if name == "at":
            message.at.seconds, message.at.nanos = value // 1_000_000, value % 1_000_000 * 1_000
            message.at.SetInParent()
        elif name == "stock":
            message.stock.update(value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return front + bytes(message.SerializeToString(deterministic=True))


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row, "big": Decimal(row["big"]), "stock": sorted(row["stock"].items()), "address": None, "card": None,
        "cash": None,
    }  # fmt: skip


def sort_map(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"stock": sorted(found["stock"])}


def as_column(name: str, value: Any) -> Any:
    return list(value.items()) if name == "stock" else Decimal(value) if name == "big" else value


@settings(max_examples=choose_examples(40, 2_000), deadline=None)
@given(row=ROWS)
def test_fields_are_read_as_a_producer_writes_them(row: dict[str, Any]) -> None:
    assert sort_map(build(COLUMNS).read(write(row))) == as_read(row)


@settings(max_examples=choose_examples(40, 2_000), deadline=None)
@given(row=ROWS, other=ROWS)
def test_changed_fields_are_read_as_they_were_set_and_the_others_as_they_were(
    row: dict[str, Any], other: dict[str, Any]
) -> None:
    changed = ["id", "email", "kind", "tags", "stock", "at", "big", "small", "ratio"]
    records = build(COLUMNS, changed)
    found = records.change(write(row), [as_column(name, other[name]) for name in changed])
    wanted = row | {name: other[name] for name in changed}
    assert sort_map(records.read(found)) == as_read(wanted)
    everything = build(COLUMNS, SETTABLE).change(write(row), [as_column(name, other[name]) for name in SETTABLE])
    assert sort_map(records.read(everything)) == as_read(other)
    assert len(everything) == len(write(other)), "nothing is left of what was there"


@settings(max_examples=choose_examples(60, 2_000), deadline=None)
@given(row=ROWS, data=st.data())
def test_damaged_bytes_are_told(row: dict[str, Any], data: st.DataObject) -> None:
    payload = write(row)
    reading, changing = build(COLUMNS), build(COLUMNS, ["country"])
    garbled = bytearray(payload)
    for at in data.draw(st.lists(st.integers(5, len(payload) - 1), min_size=1, max_size=4)):
        garbled[at] = data.draw(st.integers(0, 255))
    for harmless in (bytes(garbled), ID + data.draw(st.binary(max_size=40)), payload[: data.draw(st.integers(5, 60))]):
        with contextlib.suppress(ValueError):
            reading.read(harmless)
        with contextlib.suppress(ValueError):
            changing.change(harmless, ["x"])


def test_what_is_not_named_keeps_its_bytes_and_its_order() -> None:
    """Fields in another order, an unknown one, one that stands twice, a number in more bytes than it needs."""
    unknown, country, again, long_way = b"\xfa\x3e\x03abc", b"\x12\x02DE", b"\x12\x02AT", b"\x08\x85\x00"
    payload = FIRST + unknown + country + long_way + again + b"\x78\x01"
    assert build(COLUMNS).read(payload)["country"] == "AT"
    assert build(COLUMNS, ["country"]).change(payload, ["X"]) == FIRST + unknown + b"\x12\x01X" + long_way + b"\x78\x01"
    assert build(COLUMNS, [], ["country"]).change(payload, []) == FIRST + unknown + long_way + b"\x78\x01"
    assert build(COLUMNS, ["kind"]).change(payload, ["LARGE"]) == payload + b"\x20\x05"
    assert build(COLUMNS, [], ["gone"]).change(payload, []) == payload


def test_fields_of_a_message_are_changed_where_it_stands() -> None:
    address = b"\x0a\x04Rome\x12\x02zz"
    payload = FIRST + b"\x32" + bytes((len(address),)) + address + b"\x12\x02DE"
    records = build(COLUMNS, ["address.city"], ["address.zip"])
    assert records.change(payload, ["Oslo!"]) == FIRST + b"\x32\x07\x0a\x05Oslo!" + b"\x12\x02DE"
    with pytest.raises(ValueError, match="`address` is null, so that no field in it can be set"):
        records.change(FIRST + b"\x12\x02DE", ["x"])
    assert records.change(FIRST + b"\x12\x02DE", [None]) == FIRST + b"\x12\x02DE"
    with pytest.raises(ValueError, match="`address` stands in it twice"):
        records.change(payload + b"\x32\x00", ["x"])
    assert build(COLUMNS, [], ["address.zip"]).change(FIRST, []) == FIRST


@pytest.mark.parametrize(
    ("columns", "sets", "drops", "why"),
    [
        ({"gone": pa.string()}, [], [], "has no field `gone`"),
        ({"id": pa.int32()}, [], [], "`id` is int64, and the column is int"),
        ({"counts": pa.list_(pa.int64())}, ["counts"], [], "`counts` is repeated int32, and cannot be set to bigint"),
        ({"tags": pa.string()}, [], [], "`tags` is repeated string, and the column is string"),
        ({"address": pa.struct([("town", pa.string())])}, [], [], "`address` has no field `town`"),
        ({"address": COLUMNS["address"]}, ["address"], [], "`address` is common.Address, and cannot be set to struct"),
        ({"card": pa.string()}, ["card"], [], "`card` is one of several (oneof how), and cannot be set"),
        ({"stock": pa.map_(pa.string(), pa.string())}, [], [], "is int64, and the column is string"),
    ],
)
def test_a_schema_that_does_not_fit_is_told_with_the_field(
    columns: dict[str, pa.DataType], sets: list[str], drops: list[str], why: str
) -> None:
    with pytest.raises(ValueError) as told:
        build(columns, sets, drops).read(FIRST)
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("country", None, "`country` cannot be null in it"),
        ("kind", "secret", "`kind` is shop.Kind, and the expression gives a value that has no place"),
        ("small", -77_001, "`small` is uint32, and the expression gives"),
        ("tags", ["secret", None], "`tags` is repeated string, and the expression gives"),
    ],
)
def test_a_value_that_has_no_place_in_the_field_is_told_without_it(name: str, value: Any, why: str) -> None:
    with pytest.raises(ValueError) as told:
        build(COLUMNS, [name]).change(FIRST, [value])
    assert why in str(told.value)
    assert "secret" not in str(told.value)
    assert "77" not in str(told.value)


def test_the_message_is_the_one_that_the_record_names() -> None:
    names = {"name": pa.string()}
    assert build(names).read(ID + encode_zigzag(1) + encode_zigzag(1) + b"\x0a\x01x") == {"name": "x"}
    inner = ID + encode_zigzag(2) + encode_zigzag(1) + encode_zigzag(0)
    assert build(names, ["name"]).change(inner + b"\x0a\x01x", ["yy"]) == inner + b"\x0a\x02yy"
    for front, why in (
        (encode_zigzag(1) + encode_zigzag(9), "has no message with the index"),
        (encode_zigzag(2) + encode_zigzag(0) + encode_zigzag(0), "clients do not agree on its index"),
        (encode_zigzag(-1), "names no message"),
        (encode_zigzag(3), "ends in front of the message"),
        (b"", "ends in front of the message"),
    ):
        with pytest.raises(ValueError, match=why):
            build(names).read(ID + front)


def test_enum_numbers_without_a_name_and_nanoseconds_are_told() -> None:
    with pytest.raises(ValueError, match="`kind` holds a number that its enum has no name for"):
        build({"kind": pa.string()}).read(FIRST + b"\x20\x03")
    with pytest.raises(ValueError, match="`at` holds nanoseconds"):
        build({"at": pa.timestamp("us", "UTC")}).read(FIRST + b"\x52\x02\x10\x01")
    with pytest.raises(ValueError, match="holds a group"):
        build(COLUMNS, ["country"]).change(FIRST + b"\x0b\x0c", ["x"])


def test_a_schema_is_compiled_with_what_it_imports_and_reads_nothing_else() -> None:
    with pytest.raises(ValueError, match=r"common/address\.proto"):
        compile_protobuf(TEXT)
    with pytest.raises(ValueError, match="no relative path"):
        compile_protobuf(TEXT, (("../escaped.proto", ADDRESS),))
    with pytest.raises(ValueError, match="etc/passwd"):
        compile_protobuf('syntax = "proto3"; import "/etc/passwd";')
    with pytest.raises(ValueError, match="watershed_record"):
        compile_protobuf("no schema at all")


def test_a_compiler_that_does_not_run_says_nothing_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records wait then; they are not rejected."""
    monkeypatch.setattr(protobuf_compiler, "_LONGEST_S", 0.001)
    with pytest.raises(ClusterError, match="did not end within"):
        compile_protobuf(ADDRESS)
    monkeypatch.setattr(protobuf_compiler, "find_spec", lambda _name: None)
    with pytest.raises(ClusterError, match="grpcio-tools is not installed"):
        compile_protobuf(ADDRESS)
