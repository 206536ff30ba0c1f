"""Values of Protobuf fields read into what Arrow takes, and written again. Messages name no value of a record."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from watershed.spark.transform.column_types import UINT64_COLUMN, check_time, name_column_type
from watershed.spark.transform.field_paths import join_path
from watershed.spark.transform.field_plan import FieldChange

ReadMessage = Callable[[Any], Any]  # a message, or a value of a field, → what the column takes
Encode = Callable[[Any], bytes]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_TIME_COLUMN: Final = pa.timestamp("us", "UTC")
_F: Final = FieldDescriptor
_COLUMNS: Final[dict[int, tuple[pa.DataType, ...]]] = {  # the first one may be set, too
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), (pa.int32(), pa.int64())),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), (pa.int64(),)),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), (pa.int64(),)),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), (UINT64_COLUMN,)),
    _F.TYPE_FLOAT: (pa.float32(), pa.float64()),
    _F.TYPE_DOUBLE: (pa.float64(),),
    _F.TYPE_BOOL: (pa.bool_(),),
    _F.TYPE_STRING: (pa.string(),),
    _F.TYPE_ENUM: (pa.string(),),
    _F.TYPE_BYTES: (pa.binary(),),
}
_KINDS: Final = {
    _F.TYPE_INT32: "int32", _F.TYPE_SINT32: "sint32", _F.TYPE_SFIXED32: "sfixed32", _F.TYPE_UINT32: "uint32",
    _F.TYPE_FIXED32: "fixed32", _F.TYPE_INT64: "int64", _F.TYPE_SINT64: "sint64", _F.TYPE_SFIXED64: "sfixed64",
    _F.TYPE_UINT64: "uint64", _F.TYPE_FIXED64: "fixed64", _F.TYPE_FLOAT: "float", _F.TYPE_DOUBLE: "double",
    _F.TYPE_BOOL: "bool", _F.TYPE_STRING: "string", _F.TYPE_BYTES: "bytes", _F.TYPE_GROUP: "a group",
}  # fmt: skip


def name_field_type(field: FieldDescriptor) -> str:
    """As a schema has it."""
    if is_map(field):
        key, value = get_map_parts(field)
        return f"map<{name_field_type(key)}, {name_field_type(value)}>"
    inner = field.message_type or field.enum_type
    name = str(inner.full_name) if inner is not None else _KINDS.get(field.type, "a type that is not known")
    return f"repeated {name}" if field.is_repeated else name


def is_map(field: FieldDescriptor) -> bool:
    """Whether it is a map, which is a repeated message of key and value."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def get_map_parts(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Key and value of a map."""
    parts = get_message_type(field).fields_by_name
    return parts["key"], parts["value"]


def get_message_type(field: FieldDescriptor) -> Descriptor:
    """Of a field that is a message, a group, or a map."""
    assert field.message_type is not None, "only asked for fields that have one"
    return field.message_type


def build_fields_reader(message: Descriptor, columns: pa.DataType) -> ReadMessage:
    """What reads the fields that the columns name out of a message. Raises ValueError where one does not fit."""
    steps: list[tuple[str, FieldDescriptor, ReadMessage]] = []
    for each in columns:
        field = message.fields_by_name.get(each.name)
        if field is None:
            raise ValueError(f"has no field `{each.name}`")
        try:
            steps.append((each.name, field, build_column_reader(field, each.type)))
        except ValueError as error:
            raise ValueError(join_path(each.name, error)) from None

    def read(found: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, field, convert in steps:
            if field.has_presence and not found.HasField(name):
                row[name] = None
                continue
            try:
                row[name] = convert(getattr(found, name))
            except ValueError as error:
                raise ValueError(join_path(name, error)) from None
        return row

    return read


def build_column_reader(field: FieldDescriptor, column: pa.DataType) -> ReadMessage:
    """What makes a value of the column of a field's value. Raises ValueError where they do not fit."""
    if is_map(field) and pt.is_map(column):
        parts = get_map_parts(field)
        key, value = _build_one(parts[0], column.key_type), _build_one(parts[1], column.item_type)
        return lambda found: [(key(each), value(found[each])) for each in found]
    if field.is_repeated and not is_map(field) and pt.is_list(column):
        item = _build_one(field, column.value_type)
        return lambda found: [item(each) for each in found]
    if field.is_repeated:
        raise ValueError(f"is {name_field_type(field)}, and the column is {name_column_type(column)}")
    return _build_one(field, column)


def _build_one(field: FieldDescriptor, column: pa.DataType) -> ReadMessage:
    """Of a single value, also of one of many."""
    if field.type == _F.TYPE_MESSAGE:
        if _is_time(field) and column == _TIME_COLUMN:
            return _read_time
        if pt.is_struct(column):
            return build_fields_reader(get_message_type(field), column)
    if column not in _COLUMNS.get(field.type, ()):
        raise ValueError(f"is {name_field_type(field)}, and the column is {name_column_type(column)}")
    if field.enum_type is not None:
        names = {each.number: str(each.name) for each in field.enum_type.values}
        return lambda found: _find_name(names, found)
    return Decimal if column == UINT64_COLUMN else lambda found: found


def _find_name(names: dict[int, str], number: int) -> str:
    if number not in names:
        raise ValueError("holds a number that its enum has no name for")
    return names[number]


def _read_time(found: Any) -> int:
    micros, rest = divmod(found.nanos, 1_000)
    if rest:
        raise ValueError("holds nanoseconds, and a timestamp has microseconds; read it as struct<seconds bigint>")
    time: int = found.seconds * 1_000_000 + micros
    check_time(time)
    return time


# -- writing -------------------------------------------------------------------------------------------------------


def build_encoder(field: FieldDescriptor, change: FieldChange) -> Encode:
    """What writes a field with its number in front; nothing where it is dropped. Raises ValueError where it cannot be
    dropped, or some value of the column has no place in it; the function raises ValueError where a value has none."""
    if change.is_drop and field.is_required:
        raise ValueError("is required, so it cannot be dropped; set it to a value instead")
    if change.is_drop:
        return lambda _value: b""
    _require_settable(field, change.column)
    assert field.containing_type is not None, "a field of a message"
    message = message_factory.GetMessageClass(field.containing_type)

    def encode(value: Any) -> bytes:
        if value is None:
            if not field.has_presence or field.is_required:
                raise ValueError("cannot be null in it")
            return b""
        found = message()
        try:
            _put(found, field, value)
        except (TypeError, ValueError, KeyError):  # the text of it may hold the value
            raise ValueError(
                f"is {name_field_type(field)}, and the expression gives a value that has no place"
            ) from None
        written: bytes = found.SerializePartialToString(deterministic=True)
        return written

    return encode


def _require_settable(field: FieldDescriptor, column: pa.DataType) -> None:
    group = field.containing_oneof
    if group is not None and not (len(group.fields) == 1 and group.name == f"_{field.name}"):
        raise ValueError(f"is one of several (oneof {group.name}), and cannot be set")
    pairs = [(field, column)]
    if is_map(field) and pt.is_map(column):
        key, item = get_map_parts(field)
        pairs = [(key, column.key_type), (item, column.item_type)]
    elif field.is_repeated and not is_map(field) and pt.is_list(column):
        pairs = [(field, column.value_type)]
    elif field.is_repeated:
        raise ValueError(f"is {name_field_type(field)}, and cannot be set to {name_column_type(column)}")
    for one, kind in pairs:
        if _is_time(one) and kind == _TIME_COLUMN and not field.is_repeated:
            continue
        if kind not in _COLUMNS.get(one.type, ())[:1]:
            raise ValueError(f"is {name_field_type(one)}, and cannot be set to {name_column_type(kind)}")


def _is_time(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == _TIMESTAMP


def _put(found: Any, field: FieldDescriptor, value: Any) -> None:
    """Set the field of a message. Raises TypeError, ValueError, KeyError."""
    if is_map(field):
        parts = get_map_parts(field)
        for key, each in value:
            getattr(found, field.name)[_convert(parts[0], key)] = _convert(parts[1], each)
    elif field.is_repeated:
        getattr(found, field.name).extend([_convert(field, each) for each in value])
    elif _is_time(field):
        seconds, micros = divmod(value, 1_000_000)
        time = getattr(found, field.name)
        time.seconds, time.nanos = seconds, micros * 1_000
        time.SetInParent()
    else:
        setattr(found, field.name, _convert(field, value))


def _convert(field: FieldDescriptor, value: Any) -> Any:
    if value is None:
        raise ValueError
    if field.enum_type is not None:
        return field.enum_type.values_by_name[value].number
    return int(value) if isinstance(value, Decimal) else value
