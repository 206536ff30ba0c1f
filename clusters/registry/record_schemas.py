"""The schemas that records were written with, as data for whoever opens records.

A record in Confluent's wire format begins with magic byte 0 and four bytes of schema id. What the id means is asked of
the source's registry once; whoever opens records is given texts and numbers, and neither an address nor a password.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.protobuf_compiler import compile_protobuf
from watershed.clusters.registry.schema import PROTOBUF, Schema
from watershed.clusters.registry.schema_id_translation import SCHEMA_ID_MAGIC, SCHEMA_ID_PREFIX_BYTES
from watershed.clusters.registry.subject_names import SubjectSide, build_subject

_MOST_REFERENCES = 1_000  # of one schema, all levels together


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema with all that it refers to. type: AVRO, JSON or PROTOBUF. references: (name, text), what is referred to
    before what refers to it; the name is an Avro full name or an import path. descriptors: of Protobuf, all of it
    compiled (a FileDescriptorSet)."""

    id: int
    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    descriptors: bytes = b""


@dataclass(frozen=True, slots=True)
class SideSchemas:
    """Of the keys, or of the values, of one topic. writers: by id at the source; absent: id → why its schema is not to
    be had. targets: id at the source → id that is written; None: ids stay."""

    writers: Mapping[int, WriterSchema] = field(default_factory=dict)
    absent: Mapping[int, str] = field(default_factory=dict)
    targets: Mapping[int, int] | None = None

    def is_known(self, id: int, *, opened: bool) -> bool:
        """Whether a record with this id can be judged. opened: whether its schema is needed, too."""
        has_target = self.targets is None or id in self.targets
        return id in self.absent or (has_target and (not opened or id in self.writers))


class RecordSchemas(NamedTuple):
    """What is known of one topic."""

    key: SideSchemas = SideSchemas()
    value: SideSchemas = SideSchemas()

    def side(self, side: SubjectSide) -> SideSchemas:
        """Returns what is known of keys, or of values."""
        return self.key if side == "key" else self.value


NO_RECORD_SCHEMAS = RecordSchemas()


class UnknownSchema(NamedTuple):
    """A schema id that stands in a record and that nobody has asked the registry for."""

    side: SubjectSide
    id: int


def read_schema_id(payload: bytes) -> int:
    """The id in front of a key or value. Raises ValueError where there is none."""
    if len(payload) < SCHEMA_ID_PREFIX_BYTES:
        raise ValueError(f"it has {len(payload)} bytes, too few for a magic byte and a schema id")
    if payload[0] != SCHEMA_ID_MAGIC:
        raise ValueError(f"it begins with byte {payload[0]}, where magic byte {SCHEMA_ID_MAGIC} and a schema id belong")
    return int.from_bytes(payload[1:SCHEMA_ID_PREFIX_BYTES], "big")


def read_writer_schema(registry: RegistryClient, id: int) -> WriterSchema | str:
    """A text says why there is none: the registry has no such id, or lacks what its schema refers to, or what it has is
    no schema. Raises what `RegistryClient` raises, CompilerFailed."""
    schema, alias = registry.schema(id), registry.settings.alias
    if schema is None:
        return f"schema id {id} is not in the schema registry of {alias}"
    found: dict[str, str] = {}
    if not _add(registry, schema, found):
        return f"schema id {id} refers to what is not in the schema registry of {alias}"
    references = tuple(found.items())
    if schema.type != PROTOBUF:
        return WriterSchema(id, schema.type, schema.text, references)
    try:
        descriptors = compile_protobuf(schema.text, references)
    except ValueError as error:
        return f"schema id {id} is no Protobuf: {error}"
    return WriterSchema(id, schema.type, schema.text, references, descriptors)


def list_subject_ids(registry: RegistryClient, topic: str, side: SubjectSide) -> Iterator[int]:
    """Of all versions of the topic's own subject, the softly deleted ones, too. Raises what `RegistryClient` raises."""
    for version in registry.history(build_subject(topic, side)):
        yield version.id


def _add(registry: RegistryClient, schema: Schema, found: dict[str, str]) -> bool:
    """Add what the schema refers to, deepest first. False where something lacks."""
    for each in schema.references:
        if each.name in found:
            continue
        referenced = registry.version(each.subject, each.version)
        if referenced is None or len(found) >= _MOST_REFERENCES or not _add(registry, referenced.schema, found):
            return False
        found[each.name] = referenced.schema.text
    return True
