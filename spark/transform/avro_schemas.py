"""Avro schemas as registries hold them, read into types.

Source: Apache Avro 1.11, specification: names, and logical types (an invalid one is
ignored, and its type is the plain one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from watershed.topology.bounded_json import parse_json

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_DEEPEST: Final = 200
MAX_DIGITS: Final = 38  # of a decimal of Spark
_DECIMAL_BYTES: Final = 16  # they hold so many digits
_LOGICAL_OF: Final = {
    "date": "int", "time-millis": "int", "time-micros": "long", "timestamp-millis": "long", "timestamp-micros": "long",
    "timestamp-nanos": "long", "local-timestamp-millis": "long", "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long", "uuid": "string",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AvroType:
    """kind: a primitive type, array, map, union, record, enum, fixed, or `named`: the type with this full name. inner:
    of arrays and maps one, of unions the branches. size: bytes of a fixed. precision and scale: of decimals."""

    kind: str
    name: str = ""
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    inner: tuple[AvroType, ...] = ()
    fields: tuple[tuple[str, AvroType], ...] = ()

    def __str__(self) -> str:
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "union":
            return f"a union of {', '.join(map(str, self.inner))}"
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.inner[0]}"
        return self.logical or (self.name if self.kind == "named" else f"{self.kind} {self.name}".strip())


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A type, and those that it refers to by their full names. without_bytes: the names of those whose values take no
    byte, so that any number of them does not either."""

    root: AvroType
    names: Mapping[str, AvroType]
    without_bytes: frozenset[str] = frozenset()

    def is_without_bytes(self, type: AvroType) -> bool:
        """Whether all values of the type take no byte."""
        return type.kind == "null" or type.name in self.without_bytes

    def resolve(self, type: AvroType) -> AvroType:
        """The type itself, where only its name is said."""
        return self.names[type.name] if type.kind == "named" else type


def parse_avro_schema(text: str, references: Sequence[tuple[str, str]] = ()) -> AvroSchema:
    """references: (name, text), what is referred to first. Raises ValueError with what is wrong in the schema."""
    parser = _Parser()
    for name, each in references:
        try:
            parser.parse(_read_json(each), "")
        except ValueError as error:
            raise ValueError(f"in {name}, which it refers to: {error}") from None
    root = parser.parse(_read_json(text), "")
    return AvroSchema(root, parser.names, frozenset(parser.without_bytes))


def split_nullable(schema: AvroSchema, type: AvroType) -> tuple[AvroType, int | None, int]:
    """(the type beside null, the branch of null or None, the branch of the type). Raises ValueError for a union of
    anything else."""
    type = schema.resolve(type)
    if type.kind != "union":
        return type, None, 0
    nulls = [at for at, each in enumerate(type.inner) if each.kind == "null"]
    others = [at for at, each in enumerate(type.inner) if each.kind != "null"]
    if len(others) != 1 or len(nulls) > 1:
        raise ValueError(f"is {type}; of unions only those of null and one type can be used")
    return schema.resolve(type.inner[others[0]]), nulls[0] if nulls else None, others[0]


def _read_json(text: str) -> Any:
    try:
        return parse_json(text, deepest=_DEEPEST)
    except ValueError:
        if text.strip() in _PRIMITIVES:  # the bare name of a type
            return text.strip()
        raise


@dataclass(slots=True)
class _Parser:
    names: dict[str, AvroType] = field(default_factory=dict)
    without_bytes: set[str] = field(default_factory=set)

    def parse(self, value: Any, namespace: str) -> AvroType:
        if isinstance(value, str):
            return AvroType(value) if value in _PRIMITIVES else self._refer(value, namespace)
        if isinstance(value, list):
            return AvroType("union", inner=tuple(self.parse(each, namespace) for each in value))
        if not isinstance(value, dict) or "type" not in value:
            raise ValueError("it holds something that is no Avro type")
        kind = value["type"]
        if isinstance(kind, dict | list):
            return self.parse(kind, namespace)
        if kind in _NAMED:
            return self._define(kind, value, namespace)
        if kind in ("array", "map"):
            inner = self.parse(value.get("items" if kind == "array" else "values"), namespace)
            return AvroType(kind, inner=(inner,))
        if not isinstance(kind, str):
            raise ValueError("it holds something that is no Avro type")
        return _add_logical(self.parse(kind, namespace), value)

    def _refer(self, name: str, namespace: str) -> AvroType:
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self.names:
                return AvroType("named", full)
        raise ValueError(f"it refers to `{name}`, which is not defined")

    def _define(self, kind: str, value: dict[str, Any], namespace: str) -> AvroType:
        name, own = str(value.get("name", "")), value.get("namespace")
        if "." in name:
            own = name.rpartition(".")[0]
        own = namespace if own is None else str(own)
        full = name if "." in name or not own else f"{own}.{name}"
        if full in self.names:
            raise ValueError(f"it defines `{full}` twice")
        if kind == "fixed":
            size = value.get("size")
            if not isinstance(size, int) or size < 0:
                raise ValueError(f"the size of `{full}` is no number")
            found = _add_logical(AvroType("fixed", full, size=size), value)
        elif kind == "enum":
            symbols = value.get("symbols")
            if not isinstance(symbols, list):
                raise ValueError(f"the symbols of `{full}` are no list")
            found = AvroType("enum", full, symbols=tuple(map(str, symbols)))
        else:
            self.names[full] = AvroType("record", full)  # its fields may refer to it
            found = AvroType("record", full, fields=tuple(self._list_fields(full, value.get("fields"), own)))
        self.names[full] = found
        inner = [type for _, type in found.fields]
        if found.kind != "enum" and not found.size and all(self._takes_no_byte(each) for each in inner):
            self.without_bytes.add(full)
        return found

    def _takes_no_byte(self, type: AvroType) -> bool:
        return type.kind == "null" or type.name in self.without_bytes

    def _list_fields(self, record: str, fields: Any, namespace: str) -> list[tuple[str, AvroType]]:
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise ValueError(f"the fields of `{record}` are no list")
        return [(str(each.get("name")), self.parse(each.get("type"), namespace)) for each in fields]


def _add_logical(type: AvroType, value: Mapping[str, Any]) -> AvroType:
    logical = value.get("logicalType")
    if logical == "decimal" and type.kind in ("bytes", "fixed"):
        precision, scale = value.get("precision"), value.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return type
        if 0 <= scale <= precision and precision > 0 and _fits(precision, type):
            return replace(type, logical="decimal", precision=precision, scale=scale)
    elif isinstance(logical, str) and _LOGICAL_OF.get(logical) == type.kind:
        return replace(type, logical=logical)
    return type


def _fits(precision: int, type: AvroType) -> bool:
    """Whether the bytes of a fixed hold so many digits. (More than 38 no column holds.)"""
    is_small = type.kind == "fixed" and type.size <= _DECIMAL_BYTES
    return not is_small or (precision <= MAX_DIGITS and 10**precision - 1 < 1 << max(8 * type.size - 1, 0))
