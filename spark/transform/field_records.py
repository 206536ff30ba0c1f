"""Keys and values whose schemas stand in a registry: each opened and changed by its own writer's schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from watershed.clusters.registry.record_schemas import SideSchemas, UnknownSchema, WriterSchema, read_schema_id
from watershed.clusters.registry.schema import AVRO, PROTOBUF
from watershed.spark.transform.avro_records import build_avro_records
from watershed.spark.transform.column_types import build_column
from watershed.spark.transform.field_plan import FieldPlan

_UNKNOWN = "\0unknown schema"  # no reason of a record begins so
_FORMS = {"avro": AVRO, "protobuf": PROTOBUF}  # as registries call them


class FieldRecords(Protocol):
    """Opens and changes payloads of one writer's schema."""

    def read(self, payload: bytes) -> dict[str, Any]:
        """The fields that expressions see. Raises ValueError."""

    def change(self, payload: bytes, values: list[Any]) -> bytes:
        """The payload with these values in place of the fields that are set. Raises ValueError."""

    def explain_unfit(self) -> str:
        """Why no record of the schema can be opened; "" where one can, as far as the schema tells."""


def render_unknown_schema(unknown: UnknownSchema) -> str:
    """As a row carries it, where the reason of a rejected record stands."""
    return f"{_UNKNOWN} {unknown.side} {unknown.id}"


def parse_unknown_schema(reason: str) -> UnknownSchema | None:
    """None where it is the reason of a rejected record."""
    if not reason.startswith(_UNKNOWN):
        return None
    side, id = reason.removeprefix(_UNKNOWN).split()
    return UnknownSchema("key" if side == "key" else "value", int(id))


@dataclass(slots=True)
class SchemaReader:
    """Reads and changes the keys, or values, of one part by what is known of their schemas."""

    plan: FieldPlan
    schemas: SideSchemas
    _records: dict[int, FieldRecords | str] = field(default_factory=dict)

    def read_column(self, payloads: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """A column of structs, and what is wrong in which row; an id that nobody knows yet, too."""
        found: list[dict[str, Any] | None] = []
        problems: dict[int, str] = {}
        for row, payload in enumerate(payloads.to_pylist()):
            fields = None
            if payload is not None:
                try:
                    fields = self._find(payload).read(payload)
                except _SchemaUnknown as unknown:
                    problems[row] = str(unknown)
                except ValueError as error:
                    problems[row] = f"the {self.plan.side} does not fit: {error}"
            found.append(fields)
        return build_column(found, self.plan.columns), problems

    def change(self, payload: bytes, values: list[Any]) -> bytes:
        """Raises ValueError."""
        return self._find(payload).change(payload, values)

    def _find(self, payload: bytes) -> FieldRecords:
        id = read_schema_id(payload)
        found = self._records.get(id)
        if found is None:
            found = self._records[id] = self._build(id)
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _build(self, id: int) -> FieldRecords | str:
        if not self.schemas.is_known(id, opened=True):
            raise _SchemaUnknown(render_unknown_schema(UnknownSchema(self.plan.side, id)))
        return self.schemas.absent.get(id) or _build_records(self.schemas.writers[id], self.plan)


def explain_unfit_schema(writer: WriterSchema, plan: FieldPlan) -> str:
    """Why records of this schema would be rejected; "" where they would not. Of Protobuf its first message is looked
    at: which one a record is stands in the record."""
    found = _build_records(writer, plan)
    return found if isinstance(found, str) else found.explain_unfit()


class _SchemaUnknown(ValueError):
    """Somebody has to ask the registry for the id."""


@lru_cache(maxsize=1_024)
def _build_records(writer: WriterSchema, plan: FieldPlan) -> FieldRecords | str:
    """A text says why records of this schema cannot be used."""
    if writer.type != _FORMS[plan.form]:
        return f"schema id {writer.id} is of type {writer.type}, and `transform.format.{plan.side}` is {plan.form}"
    try:
        if plan.form == "avro":
            return build_avro_records(writer, plan)
        from watershed.spark.transform.protobuf_records import build_protobuf_records  # a library that only these need

        return build_protobuf_records(writer, plan)
    except ValueError as error:
        return f"schema id {writer.id}: {error}"
