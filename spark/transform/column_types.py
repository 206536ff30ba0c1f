"""Types of the columns that expressions see of a key or value, as Spark names them and as Arrow keeps them."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from watershed.topology.record_transform import RegistryFormat

# Years 1 to 9999, which dates and timestamps of SQL have; beyond them functions fail in ways that name no record.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_MICROS: Final = 86_400_000_000
_NAMES: Final = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp", pa.timestamp("us"): "timestamp_ntz",
}  # fmt: skip
UINT64_COLUMN: Final = pa.decimal128(20, 0)
_NUMBERS: Final = frozenset({pa.int32(), pa.int64(), pa.float32(), pa.float64()})
_BOTH: Final = _NUMBERS | {pa.bool_(), pa.string(), pa.binary(), pa.timestamp("us", "UTC")}
_SCALARS: Final = {"avro": _BOTH | {pa.date32(), pa.timestamp("us")}, "protobuf": _BOTH | {UINT64_COLUMN}}


def name_column_type(column: pa.DataType) -> str:
    """As Spark's DDL has it."""
    if pt.is_decimal(column):
        return f"decimal({column.precision},{column.scale})"
    if pt.is_list(column):
        return f"array<{name_column_type(column.value_type)}>"
    if pt.is_map(column):
        return f"map<{name_column_type(column.key_type)},{name_column_type(column.item_type)}>"
    if pt.is_struct(column):
        return f"struct<{','.join(f'{each.name}:{name_column_type(each.type)}' for each in column)}>"
    return _NAMES.get(column, str(column))


def find_unfit_column(column: pa.DataType, form: RegistryFormat) -> str:
    """The first type within it that no field of the format has, or ""."""
    if pt.is_struct(column):
        inner = [each.type for each in column]
    elif pt.is_list(column):
        inner = [column.value_type]
    elif pt.is_map(column):
        inner = [column.key_type, column.item_type]
    else:
        fits = column in _SCALARS[form] or (form == "avro" and pt.is_decimal(column))
        return "" if fits else name_column_type(column)
    return next((found for each in inner if (found := find_unfit_column(each, form))), "")


def check_day(days: int) -> None:
    """Of days since 1970. Raises ValueError."""
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise ValueError("holds a day outside of the years 1 to 9999")


def check_time(micros: int) -> None:
    """Of microseconds since 1970. Raises ValueError."""
    if not _FIRST_DAY * _DAY_MICROS <= micros < (_LAST_DAY + 1) * _DAY_MICROS:
        raise ValueError("holds a time outside of the years 1 to 9999")


def build_number_type(column: pa.DataType) -> pa.DataType:
    """The same type with numbers in place of dates (days) and timestamps (microseconds)."""
    if pt.is_timestamp(column):
        return pa.int64()
    if pt.is_date32(column):
        return pa.int32()
    if pt.is_list(column):
        return pa.list_(build_number_type(column.value_type))
    if pt.is_map(column):
        return pa.map_(column.key_type, build_number_type(column.item_type))
    if pt.is_struct(column):
        return pa.struct([(each.name, build_number_type(each.type)) for each in column])
    return column


def build_column(values: list[Any], column: pa.DataType) -> pa.Array:
    """A column of values in which dates and timestamps are numbers."""
    found = pa.array(values, build_number_type(column))
    return found if found.type == column else found.cast(column)


def list_column(column: pa.Array) -> list[Any]:
    """The values of a column, with numbers for dates and timestamps, dicts for structs, pairs for maps."""
    numbers = build_number_type(column.type)
    found: list[Any] = (column if numbers == column.type else column.cast(numbers)).to_pylist()
    return found
