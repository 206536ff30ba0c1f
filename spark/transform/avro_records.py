"""Records of one Avro schema: fields read out of their bytes, and single fields replaced in them.

What is not named keeps its bytes, also where another writer would have written the same values otherwise (the blocks of
an array, say). Fields that nobody names may be of any type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watershed.clusters.registry.record_schemas import WriterSchema
from watershed.clusters.registry.schema_id_translation import SCHEMA_ID_PREFIX_BYTES
from watershed.clusters.varints import encode_zigzag
from watershed.spark.transform.avro_schemas import AvroSchema, AvroType, parse_avro_schema, split_nullable
from watershed.spark.transform.avro_skipping import Skip, SkipBuilder, build_record_skip, read_long
from watershed.spark.transform.avro_values import Read, Write, build_record_reader, build_writer
from watershed.spark.transform.field_paths import join_path
from watershed.spark.transform.field_plan import FieldChange, FieldPlan, build_change_tree

_Pieces = list[bytes]
# (data, where it begins, values of the changes, pieces of the new bytes) → where it ends
_Change = Callable[[bytes, int, Sequence[Any], _Pieces], int]


@dataclass(frozen=True, slots=True)
class AvroRecords:
    """Opens and changes values of one writer's schema, in Confluent's wire format."""

    _read: Read
    _change: _Change

    def read(self, payload: bytes) -> dict[str, Any]:
        """The fields that expressions see. Raises ValueError."""
        try:
            found, end = self._read(payload, SCHEMA_ID_PREFIX_BYTES)
        except IndexError:
            raise ValueError("it ends in the middle of a field") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if end != len(payload):
            raise ValueError(f"{_tell_end(len(payload) - end)}")
        fields: dict[str, Any] = found
        return fields

    def change(self, payload: bytes, values: Sequence[Any]) -> bytes:
        """The payload with these values in place of the fields that are set. Raises ValueError."""
        pieces = [payload[:SCHEMA_ID_PREFIX_BYTES]]
        try:
            end = self._change(payload, SCHEMA_ID_PREFIX_BYTES, values, pieces)
        except IndexError:
            raise ValueError("it ends in the middle of a field") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if end != len(payload):
            raise ValueError(f"{_tell_end(len(payload) - end)}")
        return b"".join(pieces)

    def explain_unfit(self) -> str:
        """Always "": a schema that does not fit has no `AvroRecords`."""
        return ""


def build_avro_records(writer: WriterSchema, plan: FieldPlan) -> AvroRecords:
    """Raises ValueError: the schema is none, or lacks what the plan names, or has it in a type that does not fit."""
    schema = parse_avro_schema(writer.text, writer.references)
    root = schema.resolve(schema.root)
    if root.kind != "record":
        raise ValueError(f"is {root}, and a record is needed")
    builder = _ChangeBuilder(schema, plan, SkipBuilder(schema))
    return AvroRecords(build_record_reader(schema, root, plan.columns), builder.build(root, build_change_tree(plan)))


def _tell_end(behind: int) -> str:
    return f"there are {behind} bytes behind the record" if behind > 0 else "it ends in the middle of a field"


@dataclass(frozen=True, slots=True)
class _ChangeBuilder:
    schema: AvroSchema
    plan: FieldPlan
    skips: SkipBuilder

    def build(self, record: AvroType, changes: Mapping[str, FieldChange]) -> _Change:
        """What changes these fields of a record."""
        there = {name for name, _ in record.fields}
        for name, change in changes.items():
            if name not in there and change.is_setting:
                raise ValueError(f"has no field `{name}`")
        steps: list[_Change] = []
        kept: list[Skip] = []  # fields that follow one another and stay
        for name, type in record.fields:
            if name not in changes:
                kept.append(self.skips.build(type))
                continue
            try:
                steps += [*_build_kept(kept), self._build_field(name, type, changes[name])]
            except ValueError as error:
                raise ValueError(join_path(name, error)) from None
            kept = []
        steps += _build_kept(kept)

        def change_fields(data: bytes, at: int, values: Sequence[Any], pieces: _Pieces) -> int:
            for step in steps:
                at = step(data, at, values, pieces)
            return at

        return change_fields

    def _build_field(self, name: str, type: AvroType, change: FieldChange) -> _Change:
        if change.within:
            return self._build_within(name, type, change)
        skip = self.skips.build(type)
        write = self._build_null(type) if change.is_drop else build_writer(self.schema, type, change.column)

        def replace_field(data: bytes, at: int, values: Sequence[Any], pieces: _Pieces) -> int:
            try:
                pieces.append(write(None if change.is_drop else values[change.number]))
            except ValueError as error:
                raise ValueError(join_path(name, error)) from None
            return skip(data, at)

        return replace_field

    def _build_null(self, type: AvroType) -> Write:
        """A field that is dropped becomes null: under the same schema it cannot be left out."""
        type = self.schema.resolve(type)
        nulls = [at for at, each in enumerate(type.inner) if each.kind == "null"] if type.kind == "union" else []
        if not nulls:
            raise ValueError("cannot be null in it, so it cannot be dropped; set it to a value instead")
        branch = encode_zigzag(nulls[0])
        return lambda _value: branch

    def _build_within(self, name: str, type: AvroType, change: FieldChange) -> _Change:
        inner, null, branch = split_nullable(self.schema, type)
        if inner.kind != "record":
            raise ValueError(f"is {inner}, and has no fields")
        change_fields = self.build(inner, change.within)
        if self.schema.resolve(type).kind != "union":
            return change_fields

        def change_nullable(data: bytes, at: int, values: Sequence[Any], pieces: _Pieces) -> int:
            found, end = read_long(data, at)
            at = _keep(data, at, end, pieces)
            if found == branch:
                return change_fields(data, at, values, pieces)
            if found != null:
                raise ValueError(f"`{name}` holds a branch that its union does not have")
            if change.has_value(values):
                raise ValueError(f"`{name}` is null, so that no field in it can be set")
            return at

        return change_nullable


def _build_kept(skips: list[Skip]) -> list[_Change]:
    """What keeps the bytes of these fields, in one piece."""
    if not skips:
        return []
    skip = skips[0] if len(skips) == 1 else build_record_skip(skips)
    return [lambda data, at, _values, pieces: _keep(data, at, skip(data, at), pieces)]


def _keep(data: bytes, at: int, end: int, pieces: _Pieces) -> int:
    pieces.append(data[at:end])
    return end
