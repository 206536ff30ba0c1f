"""The columns of each kind of row, in order, and what becomes of a schema that somebody asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from watershed.spark.datasource.options import RowKind
from watershed.spark.errors import WrongUse

_TEXT, _INT, _LONG, _BOOL, _BYTES = StringType(), IntegerType(), LongType(), BooleanType(), BinaryType()
_PLACE: Final[dict[str, DataType]] = {"cluster": _TEXT, "topic": _TEXT, "topic_id": _TEXT, "partition": _INT}
_HEADERS = ArrayType(StructType([StructField("key", _TEXT), StructField("value", _BYTES)]))

BATCH_COLUMNS: Final[Mapping[str, DataType]] = _PLACE | {
    "base_offset": _LONG,
    "last_offset": _LONG,
    "count": _INT,
    "codec": _TEXT,
    "timestamp_type": _TEXT,
    "first_timestamp_ms": _LONG,
    "max_timestamp_ms": _LONG,
    "producer_id": _LONG,
    "producer_epoch": _INT,
    "sequence": _INT,
    "leader_epoch": _INT,
    "transactional": _BOOL,
    "control": _BOOL,
    "attributes": _INT,
    "crc": _LONG,
    "size": _INT,
    "payload": _BYTES,
}
_RECORDS: Final[Mapping[str, DataType]] = _PLACE | {
    "offset": _LONG,
    "timestamp_type": _TEXT,
    "timestamp_ms": _LONG,
    "key": _BYTES,
    "value": _BYTES,
    "headers": _HEADERS,
    "headers_bin": _BYTES,
}
_SUMS: Final[Mapping[str, DataType]] = _PLACE | {
    "start_offset": _LONG,
    "end_offset": _LONG,
    "summed": _TEXT,
    "n": _LONG,
    "bytes": _LONG,
    "first_timestamp_ms": _LONG,
    "max_timestamp_ms": _LONG,
    "m_lo": _LONG,
    "m_hi": _LONG,
    "ordered": _TEXT,
    "kh": _TEXT,
    "vh": _TEXT,
    "hh": _TEXT,
    "ts": DecimalType(38, 0),
    "straddled": _BOOL,
}
_BY_ROWS: Final[Mapping[RowKind, Mapping[str, DataType]]] = {
    "batches": BATCH_COLUMNS,
    "records": _RECORDS,
    "sums": _SUMS,
}


def build_row_schema(rows: RowKind, names: Sequence[str]) -> StructType:
    """All columns, or those that are named, in that order. Raises WrongUse."""
    known = _BY_ROWS[rows]
    _check(rows, names)
    return StructType([StructField(name, known[name]) for name in names or known])


def require_known_columns(rows: RowKind, schema: StructType) -> None:
    """Raises WrongUse for a column that rows of this kind do not have, or have as another type."""
    known = _BY_ROWS[rows]
    _check(rows, schema.names)
    for field in schema.fields:
        if field.dataType != known[field.name]:
            raise WrongUse(
                f"column {field.name} of rows={rows} is {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it after reading"
            )


def _check(rows: RowKind, names: Sequence[str]) -> None:
    known = _BY_ROWS[rows]
    if unknown := [name for name in names if name not in known]:
        raise WrongUse(f"rows={rows} has no column {', '.join(unknown)}; it has {', '.join(known)}")
    if len(set(names)) < len(names):
        raise WrongUse(f"a column is named twice: {', '.join(names)}")
