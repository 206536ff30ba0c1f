"""Messages of one Protobuf schema: fields read out of them, and single fields replaced in their bytes.

Messages are opened by google.protobuf. Changes are made in the bytes, field by field, so that what is not named keeps
its bytes and its order, unknown fields, too. Source: Protocol Buffers, encoding; Confluent's wire format: behind the
schema id stand the indexes of the message within its file, as zigzag varints, their number first, 0 for the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from watershed.clusters.registry.protobuf_compiler import MAIN_PROTO
from watershed.clusters.registry.record_schemas import WriterSchema
from watershed.clusters.registry.schema_id_translation import SCHEMA_ID_PREFIX_BYTES
from watershed.clusters.varints import decode_uvarint, decode_zigzag, encode_uvarint
from watershed.spark.transform.field_paths import join_path
from watershed.spark.transform.field_plan import FieldChange, FieldPlan, build_change_tree
from watershed.spark.transform.protobuf_values import Encode, ReadMessage, build_encoder, build_fields_reader

_MOST_INDEXES: Final = 100  # messages are not nested deeper
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5  # wire types
_SIZES: Final = {_EIGHT: 8, _FOUR: 4}


@dataclass(frozen=True, slots=True)
class _MessageRecords:
    """Of one message type of the schema."""

    type: type[Message]
    read: ReadMessage
    change: _MessageChange


@dataclass(slots=True)
class ProtobufRecords:
    """Opens and changes values of one writer's schema, in Confluent's wire format. id: of the schema."""

    id: int
    plan: FieldPlan
    files: descriptor_pb2.FileDescriptorSet
    pool: descriptor_pool.DescriptorPool
    _types: dict[tuple[int, ...], _MessageRecords | str] = field(default_factory=dict)

    def read(self, payload: bytes) -> dict[str, Any]:
        """The fields that expressions see. Raises ValueError."""
        records, at = self._find(payload)
        try:
            message = records.type.FromString(payload[at:])
        except DecodeError:
            raise ValueError("it is no message of the type that its schema names") from None
        found: dict[str, Any] = records.read(message)
        return found

    def change(self, payload: bytes, values: Sequence[Any]) -> bytes:
        """The payload with these values in place of the fields that are set. Raises ValueError."""
        records, at = self._find(payload)
        return payload[:at] + records.change.apply(payload[at:], values)

    def explain_unfit(self) -> str:
        """Of the first message of the schema, which most schemas are for."""
        found = self._build((0,))
        return found if isinstance(found, str) else ""

    def _find(self, payload: bytes) -> tuple[_MessageRecords, int]:
        indexes, at = _read_indexes(payload)
        found = self._types.get(indexes)
        if found is None:
            found = self._types[indexes] = self._build(indexes)
        if isinstance(found, str):
            raise ValueError(found)
        return found, at

    def _build(self, indexes: tuple[int, ...]) -> _MessageRecords | str:
        """A text says why such messages cannot be used."""
        named = f"schema id {self.id}"
        try:
            name = _find_message_name(self.files, indexes)
            named += f", message {name}"
            descriptor = self.pool.FindMessageTypeByName(name)
            change = _build_change(descriptor, build_change_tree(self.plan))
            read = build_fields_reader(descriptor, self.plan.columns)
            return _MessageRecords(message_factory.GetMessageClass(descriptor), read, change)
        except ValueError as error:
            return f"{named}: {error}"


def build_protobuf_records(writer: WriterSchema, plan: FieldPlan) -> ProtobufRecords:
    """Raises ValueError: the schema has no descriptors that can be read."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(writer.descriptors)
        pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            pool.AddSerializedFile(each.SerializeToString())
    except (DecodeError, TypeError) as error:
        raise ValueError(f"its descriptors cannot be read ({type(error).__name__})") from None
    return ProtobufRecords(writer.id, plan, files, pool)


def _read_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of the file it is, and where the message begins."""
    try:
        count, at = decode_zigzag(payload, SCHEMA_ID_PREFIX_BYTES)
        if not 0 <= count <= _MOST_INDEXES:
            raise ValueError("it names no message of its schema")
        indexes = []
        for _ in range(count):
            index, at = decode_zigzag(payload, at)
            indexes.append(index)
    except IndexError:
        raise ValueError("it ends in front of the message") from None
    return tuple(indexes) or (0,), at


def _find_message_name(files: descriptor_pb2.FileDescriptorSet, indexes: tuple[int, ...]) -> str:
    """Raises ValueError where the schema has no such message, or clients count it differently: some count the entries
    of maps, others do not."""
    main = next(each for each in files.file if each.name == MAIN_PROTO)
    names, messages = [main.package] if main.package else [], main.message_type
    for index in indexes:
        if any(each.options.map_entry for each in messages):
            raise ValueError("is of a message within one that has maps; clients do not agree on its index")
        if not 0 <= index < len(messages):
            raise ValueError("has no message with the index that a record names")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


@dataclass(frozen=True, slots=True)
class _FieldEdit:
    """name: of the field, for people. encode: what is written for a value; within: what changes in a message."""

    name: str
    change: FieldChange
    encode: Encode | None = None
    within: _MessageChange | None = None


@dataclass(frozen=True, slots=True)
class _MessageChange:
    """By the numbers of the fields."""

    edits: Mapping[int, _FieldEdit]

    def apply(self, data: bytes, values: Sequence[Any]) -> bytes:
        """The message with these changes. Raises ValueError."""
        pieces: list[bytes] = []
        seen: set[int] = set()
        for number, start, at, end in _list_fields(data) if self.edits else ((0, 0, 0, len(data)),):
            edit = self.edits.get(number)
            if edit is None:
                pieces.append(data[start:end])
            elif edit.within is not None:
                if number in seen:
                    raise ValueError(f"`{edit.name}` stands in it twice")
                pieces.append(_change_within(edit.name, edit.within, data, start, at, end, values))
            elif number not in seen:
                pieces.append(_encode(edit, values))
            seen.add(number)
        for number, edit in sorted(self.edits.items()):
            if number not in seen and edit.within is None:
                pieces.append(_encode(edit, values))
            elif number not in seen and edit.change.has_value(values):
                raise ValueError(f"`{edit.name}` is null, so that no field in it can be set")
        return b"".join(pieces)


def _change_within(
    name: str, within: _MessageChange, data: bytes, start: int, at: int, end: int, values: Sequence[Any]
) -> bytes:
    """The field that begins at `start`, with the message from `at` to `end` in it changed."""
    tag, sized = decode_uvarint(data, start)
    if tag & 7 != _SIZED or sized > at:
        raise ValueError(f"`{name}` is no message in it")
    try:
        changed = within.apply(data[at:end], values)
    except ValueError as error:
        raise ValueError(join_path(name, error)) from None
    return data[start:sized] + encode_uvarint(len(changed)) + changed


def _encode(edit: _FieldEdit, values: Sequence[Any]) -> bytes:
    assert edit.encode is not None, "a field is set, dropped, or changed within"
    try:
        return edit.encode(None if edit.change.is_drop else values[edit.change.number])
    except ValueError as error:
        raise ValueError(join_path(edit.name, error)) from None


def _list_fields(data: bytes) -> list[tuple[int, int, int, int]]:
    """(number, where the field begins, where its content does, where it ends). Raises ValueError."""
    found = []
    at = 0
    try:
        while at < len(data):
            start = at
            tag, at = decode_uvarint(data, at)
            content = at
            kind = tag & 7
            if kind == _VARINT:
                _, at = decode_uvarint(data, at)
            elif kind == _SIZED:
                size, content = decode_uvarint(data, at)
                at = content + size
            elif kind in _SIZES:
                at += _SIZES[kind]
            else:
                raise ValueError("it holds a group, which cannot be changed")
            if at > len(data):
                raise IndexError(at)
            found.append((tag >> 3, start, content, at))
    except IndexError:
        raise ValueError("it ends in the middle of a field") from None
    return found


def _build_change(message: Descriptor, changes: Mapping[str, FieldChange]) -> _MessageChange:
    edits: dict[int, _FieldEdit] = {}
    for name, change in changes.items():
        found = message.fields_by_name.get(name)
        if found is None and not change.is_setting:
            continue  # there is nothing to drop
        if found is None:
            raise ValueError(f"has no field `{name}`")
        try:
            edits[found.number] = _build_edit(found, change)
        except ValueError as error:
            raise ValueError(join_path(name, error)) from None
    return _MessageChange(edits)


def _build_edit(found: Any, change: FieldChange) -> _FieldEdit:
    if not change.within:
        return _FieldEdit(found.name, change, encode=build_encoder(found, change))
    if found.message_type is None or found.is_repeated or found.type == found.TYPE_GROUP:
        raise ValueError("is no single message, and has no fields")
    return _FieldEdit(found.name, change, within=_build_change(found.message_type, change.within))
