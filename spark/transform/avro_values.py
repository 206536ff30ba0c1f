"""Values of Avro fields read into what Arrow takes, and written again.

A column and a field fit where no value is lost: types are equal, and an int may be read as bigint, a float as double.
Dates and timestamps are numbers here (days, microseconds), as Arrow keeps them. Messages name no value of a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from watershed.clusters.varints import encode_zigzag
from watershed.spark.transform.avro_schemas import MAX_DIGITS, AvroSchema, AvroType, split_nullable
from watershed.spark.transform.avro_skipping import (
    SkipBuilder,
    check_bits,
    check_count,
    read_block,
    read_length,
    read_long,
)
from watershed.spark.transform.column_types import check_day, check_time, name_column_type
from watershed.spark.transform.field_paths import join_path

Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[Any], bytes]

_EXACT: Final = Context(prec=80)
_BITS: Final = {"int": 32, "long": 64}
_MICROS: Final = {"timestamp-millis": 1_000, "local-timestamp-millis": 1_000}
# Of a kind with a logical type: the column that it may be read as, beside those of the kind alone.
_TIMES: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_KINDS: Final[dict[str, tuple[pa.DataType, ...]]] = {  # the first one may be set, too
    "boolean": (pa.bool_(),),
    "int": (pa.int32(), pa.int64()),
    "long": (pa.int64(),),
    "float": (pa.float32(), pa.float64()),
    "double": (pa.float64(),),
    "string": (pa.string(),),
    "enum": (pa.string(),),
    "bytes": (pa.binary(),),
    "fixed": (pa.binary(),),
}


def list_column_types(type: AvroType) -> tuple[pa.DataType, ...]:
    """The columns that a type without fields or items may be read as; the first is the one that may be set."""
    if type.logical == "decimal":
        return (pa.decimal128(type.precision, type.scale),) if type.precision <= MAX_DIGITS else ()
    if type.logical in _TIMES:
        return (_TIMES[type.logical],)
    return () if type.logical.endswith("-nanos") else _KINDS.get(type.kind, ())


def build_reader(schema: AvroSchema, type: AvroType, column: pa.DataType) -> Read:
    """What reads a field into a column. Raises ValueError where they do not fit; the function raises IndexError and
    ValueError."""
    inner, null, branch = split_nullable(schema, type)
    read = _build_plain_reader(schema, inner, column)
    if schema.resolve(type).kind != "union":
        return read

    def read_nullable(data: bytes, at: int) -> tuple[Any, int]:
        found, at = read_long(data, at)
        if found == branch:
            return read(data, at)
        if found != null:
            raise ValueError("holds a branch that its union does not have")
        return None, at

    return read_nullable


def _build_plain_reader(schema: AvroSchema, type: AvroType, column: pa.DataType) -> Read:
    if type.kind == "record" and pt.is_struct(column):
        return build_record_reader(schema, type, column)
    if type.kind in ("array", "map") and (pt.is_list(column) if type.kind == "array" else pt.is_map(column)):
        item = type.inner[0]
        if type.kind == "array":
            if schema.is_without_bytes(item):  # as many as somebody says
                raise ValueError(f"is {type}, whose items take no byte")
            return _build_array_reader(build_reader(schema, item, column.value_type))
        if column.key_type != pa.string():
            raise ValueError(f"is {type}, whose keys are strings, and the column is {name_column_type(column)}")
        return _build_map_reader(build_reader(schema, item, column.item_type))
    if column not in list_column_types(type):
        raise ValueError(f"is {type}, and the column is {name_column_type(column)}")
    return _build_scalar_reader(type)


def build_record_reader(schema: AvroSchema, type: AvroType, column: pa.DataType) -> Read:
    """Reads the fields that the column has, and passes over the others. Raises ValueError where one is not there."""
    wanted = {each.name: each.type for each in column}
    there = [name for name, _ in type.fields]
    for name in wanted:
        if there.count(name) != 1:
            raise ValueError(f"has no field `{name}`")
    skips = SkipBuilder(schema)
    steps: list[tuple[str, Read | None, Callable[[bytes, int], int]]] = []
    for name, each in type.fields:
        reader = None
        if name in wanted:
            try:
                reader = build_reader(schema, each, wanted[name])
            except ValueError as error:
                raise ValueError(join_path(name, error)) from None
        steps.append((name, reader, skips.build(each)))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, reader, skip in steps:
            if reader is None:
                at = skip(data, at)
            else:
                try:
                    found[name], at = reader(data, at)
                except ValueError as error:
                    raise ValueError(join_path(name, error)) from None
        return found, at

    return read


def _build_array_reader(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at, end = read_block(data, at)
            if not count:
                return found, at
            check_count(count, data, at)
            for _ in range(count):
                each, at = item(data, at)
                found.append(each)
            _check_block(at, end)

    return read


def _build_map_reader(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        found: dict[str, Any] = {}
        while True:
            count, at, end = read_block(data, at)
            if not count:
                return list(found.items()), at
            check_count(count, data, at)
            for _ in range(count):
                key, at = _read_string(data, at)
                if key in found:
                    raise ValueError("holds a key twice")
                found[key], at = item(data, at)
            _check_block(at, end)

    return read


def _check_block(at: int, end: int) -> None:
    if end not in (-1, at):
        raise ValueError("holds a block with a wrong size")


def _build_scalar_reader(type: AvroType) -> Read:
    if type.logical == "decimal":
        return _build_decimal_reader(type)
    if type.kind in _BITS:
        return _build_number_reader(_BITS[type.kind], type.logical if type.logical in _TIMES else "")
    if type.kind in ("float", "double"):
        return _build_float_reader("<f" if type.kind == "float" else "<d")
    if type.kind == "enum":
        return _build_enum_reader(type.symbols)
    return {"boolean": _read_boolean, "string": _read_string, "bytes": _read_bytes}.get(type.kind) or _build_fixed(
        type.size
    )


def _build_number_reader(bits: int, logical: str) -> Read:
    factor, is_day = _MICROS.get(logical, 1), logical == "date"

    def read(data: bytes, at: int) -> tuple[int, int]:
        number, at = read_long(data, at)
        check_bits(number, bits)
        if is_day:
            check_day(number)
        elif logical:
            number *= factor
            check_time(number)
        return number, at

    return read


def _build_float_reader(form: str) -> Read:
    unpack = struct.Struct(form)

    def read(data: bytes, at: int) -> tuple[float, int]:
        if at + unpack.size > len(data):
            raise IndexError(at)
        number: float = unpack.unpack_from(data, at)[0]
        return number, at + unpack.size

    return read


def _build_enum_reader(symbols: tuple[str, ...]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(data, at)
        if not 0 <= number < len(symbols):
            raise ValueError("holds a symbol that its enum does not have")
        return symbols[number], at

    return read


def _build_fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise IndexError(at)
        return data[at : at + size], at + size

    return read


def _build_decimal_reader(type: AvroType) -> Read:
    inner = _read_bytes if type.kind == "bytes" else _build_fixed(type.size)
    limit, scale = 10**type.precision, type.scale

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        raw, at = inner(data, at)
        number = int.from_bytes(raw, "big", signed=True)
        if not -limit < number < limit:
            raise ValueError("holds more digits than its decimal type")
        return Decimal(number).scaleb(-scale, _EXACT), at

    return read


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError("holds a boolean that is neither 0 nor 1")
    return data[at] == 1, at + 1


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_length(data, at)
    return data[at : at + length], at + length


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _read_bytes(data, at)
    try:
        return raw.decode(), at
    except UnicodeDecodeError:
        raise ValueError("holds a string that is no UTF-8") from None


# -- writing -------------------------------------------------------------------------------------------------------


def build_writer(schema: AvroSchema, type: AvroType, column: pa.DataType) -> Write:
    """What writes a value of the column as a field. Raises ValueError where some value of the column has no place in
    the type; the function raises ValueError for the single value that has none (a null, a symbol, a size)."""
    inner, null, branch = split_nullable(schema, type)
    write = _build_plain_writer(schema, inner, column)
    is_union = schema.resolve(type).kind == "union"
    front = encode_zigzag(branch) if is_union else b""
    no_value = None if null is None else encode_zigzag(null)

    def write_nullable(value: Any) -> bytes:
        if value is not None:
            return front + write(value)
        if no_value is None:
            raise ValueError("cannot be null in it")
        return no_value

    return write_nullable


def _build_plain_writer(schema: AvroSchema, type: AvroType, column: pa.DataType) -> Write:
    if type.kind == "record" and pt.is_struct(column):
        return _build_record_writer(schema, type, column)
    if type.kind == "array" and pt.is_list(column):
        item = build_writer(schema, type.inner[0], column.value_type)
        return lambda value: _write_block([item(each) for each in value])
    if type.kind == "map" and pt.is_map(column) and column.key_type == pa.string():
        item = build_writer(schema, type.inner[0], column.item_type)
        return lambda value: _write_block([_write_string(key) + item(each) for key, each in value])
    if column not in list_column_types(type)[:1]:
        raise ValueError(f"is {type}, and cannot be set to {name_column_type(column)}")
    return _build_scalar_writer(type)


def _build_record_writer(schema: AvroSchema, type: AvroType, column: pa.DataType) -> Write:
    wanted = {each.name: each.type for each in column}
    if {name for name, _ in type.fields} != set(wanted):
        raise ValueError(f"is {type} and is set as a whole; the column needs all of its fields, and no others")
    steps: list[tuple[str, Write]] = []
    for name, each in type.fields:
        try:
            steps.append((name, build_writer(schema, each, wanted[name])))
        except ValueError as error:
            raise ValueError(join_path(name, error)) from None
    return lambda value: b"".join(write(value[name]) for name, write in steps)


def _build_scalar_writer(type: AvroType) -> Write:
    if type.logical == "decimal":
        return _build_decimal_writer(type)
    if type.kind in _BITS:
        return _build_number_writer(_MICROS.get(type.logical, 1))
    if type.kind in ("float", "double"):
        return struct.Struct("<f" if type.kind == "float" else "<d").pack
    if type.kind == "enum":
        places = {symbol: encode_zigzag(at) for at, symbol in enumerate(type.symbols)}
        return lambda value: _find_symbol(places, value)
    writers: dict[str, Write] = {"boolean": _write_boolean, "string": _write_string, "bytes": _write_bytes}
    return writers.get(type.kind) or (lambda value: _write_fixed(value, type.size))


def _build_number_writer(factor: int) -> Write:
    def write(value: int) -> bytes:
        if value % factor:
            raise ValueError("keeps milliseconds, and the expression gives microseconds; use date_trunc")
        return encode_zigzag(value // factor)

    return write


def _build_decimal_writer(type: AvroType) -> Write:
    def write(value: Decimal) -> bytes:
        number = int(value.scaleb(type.scale, _EXACT))
        if type.kind == "fixed":
            return number.to_bytes(type.size, "big", signed=True)
        return _write_bytes(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))

    return write


def _find_symbol(places: dict[str, bytes], value: str) -> bytes:
    if value not in places:
        raise ValueError("is an enum, and the expression gives a text that is none of its symbols")
    return places[value]


def _write_boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _write_bytes(value: bytes) -> bytes:
    return encode_zigzag(len(value)) + value


def _write_string(value: str) -> bytes:
    return _write_bytes(value.encode())


def _write_fixed(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"has {size} bytes, and the expression gives another number")
    return value


def _write_block(items: list[bytes]) -> bytes:
    return encode_zigzag(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"
