"""What a schema registry holds, and when two schemas are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watershed.topology.bounded_json import parse_json

AVRO = "AVRO"
PROTOBUF = "PROTOBUF"
_NAMED = ("record", "enum", "fixed", "error")
_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """name: how the schema calls it (an Avro full name, an import path); where it stands is subject and version."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """type is AVRO, JSON or PROTOBUF."""

    text: str
    type: str = AVRO
    references: tuple[SchemaReference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a registry takes it; AVRO is not said, so that the oldest registries understand it."""
        value: dict[str, Any] = {"schema": self.text}
        if self.type != AVRO:
            value["schemaType"] = self.type
        if self.references:
            value["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in self.references
            ]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        """Raises KeyError, TypeError."""
        references = tuple(
            SchemaReference(each["name"], each["subject"], int(each["version"]))
            for each in value.get("references") or ()
        )
        return cls(value["schema"], value.get("schemaType") or _type_of(value["schema"]), references)


_DEEPEST = 200  # schemas nest deeper than records of ours


def _type_of(text: str) -> str:
    """Where a registry does not say it: Confluent's leaves out AVRO only, Apicurio's any type."""
    try:
        value = parse_json(text, deepest=_DEEPEST)
    except ValueError:
        json_like = text.lstrip().startswith(("{", "["))  # beyond the limits, but no Protobuf
        return AVRO if json_like or text.strip() in _PRIMITIVE else PROTOBUF
    if isinstance(value, bool) or (isinstance(value, dict) and not _is_avro(value.get("type"))):
        return "JSON"
    return AVRO


def _is_avro(type: Any) -> bool:
    return isinstance(type, list | dict) or type in _PRIMITIVE or type in (*_NAMED, "array", "map")


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a subject. deleted: softly, so that its id still leads to it."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False


def is_same_schema(one: Schema, other: Schema) -> bool:
    """Whether both say the same, whatever their layout. What they refer to is compared by name only: `where it stands`
    differs between registries."""
    return (
        one.type == other.type
        and {each.name for each in one.references} == {each.name for each in other.references}
        and render_canonical_schema(one) == render_canonical_schema(other)
    )


def render_canonical_schema(schema: Schema) -> str:
    """The text without what carries no meaning: order of JSON keys, white space, comments of Protobuf."""
    if schema.type == PROTOBUF:
        return _protobuf(schema.text)
    try:
        value = parse_json(schema.text, deepest=_DEEPEST)
    except ValueError:  # Avro takes the bare name of a primitive type
        value = schema.text.strip()
    if schema.type == AVRO:
        value = _avro(value, "")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _avro(value: Any, namespace: str) -> Any:
    """Full names throughout, and primitive types without braces: registries rewrite both (Avro 1.11, Parsing Canonical
    Form, of which this keeps the attributes: a default or an alias is part of what is said)."""
    if isinstance(value, str):
        return value if value in _PRIMITIVE or "." in value or not namespace else f"{namespace}.{value}"
    if isinstance(value, list):
        return [_avro(each, namespace) for each in value]
    if not isinstance(value, dict):
        return value
    return _named(value, namespace) if value.get("type") in _NAMED else _unnamed(value, namespace)


def _named(value: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A record, enum or fixed type under its full name; its fields' types are read in its own namespace."""
    found = dict(value)
    name, own = str(found.get("name", "")), found.pop("namespace", None)
    if "." in name:
        own = name.rpartition(".")[0]
    elif own is None:
        own = namespace
    found["name"] = name if "." in name or not own else f"{own}.{name}"
    if isinstance(found.get("fields"), list):
        found["fields"] = [
            each | {"type": _avro(each.get("type"), own)} if isinstance(each, dict) else each
            for each in found["fields"]
        ]
    return found


def _unnamed(value: dict[str, Any], namespace: str) -> Any:
    """An array, a map, or a primitive type with attributes; without attributes the bare name of the type."""
    found = {
        key: _avro(inner, namespace) if key in ("type", "items", "values") else inner for key, inner in value.items()
    }
    return found["type"] if set(found) == {"type"} and isinstance(found["type"], str) else found


_TOKENS = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//[^\n]*|/\*.*?\*/|[\w.]+|\S', re.DOTALL)


def _protobuf(text: str) -> str:
    return " ".join(token for token in _TOKENS.findall(text) if not token.startswith(("//", "/*")))
