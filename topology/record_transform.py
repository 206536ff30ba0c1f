"""`transform` of a flow: which of its records travel, and what is changed in them (docs/transform.md).

Nothing here knows Spark. What an expression means, and whether it may be used, is judged by `spark.transform`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from watershed.topology.secret_ref import SecretRef

RegistryFormat = Literal["avro", "protobuf"]
RecordFormat = Literal["bytes", "string", "json"] | RegistryFormat
REGISTRY_FORMATS: Final[tuple[RegistryFormat, ...]] = ("avro", "protobuf")  # records with the id of a schema in front
RECORD_FORMATS: Final[tuple[RecordFormat, ...]] = ("bytes", "string", "json", *REGISTRY_FORMATS)
_SECRET = re.compile(r"\bsecret\s*\(\s*'([^']*)'\s*\)", re.IGNORECASE)
_TEXT = re.compile(r"'[^'\\]+'")  # of Spark SQL
_SECRET_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_SIDES: Final = ("key", "value")
_HEADERS = "headers"


class ChangedPart(NamedTuple):
    """What an entry of `set` or `drop` is about: the key or the value as a whole (no names), a field of it (the names
    that lead to it), or a header (its name)."""

    part: Literal["key", "value", "headers"]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.part, *self.names))


@dataclass(frozen=True, slots=True)
class RecordTransform:
    """where: None keeps all records. changes: what is set, with the SQL expression; drops: what is taken away.
    schemas: `key` or `value` → the fields that expressions use, as Spark's DDL. secrets: by the name that expressions
    call them. An expression is a text in Spark SQL over key, value, headers, timestamp, topic, partition and offset."""

    key_format: RecordFormat = "bytes"
    value_format: RecordFormat = "bytes"
    schemas: tuple[tuple[str, str], ...] = ()
    where: str | None = None
    changes: tuple[tuple[str, str], ...] = ()
    drops: tuple[str, ...] = ()
    secrets: tuple[tuple[str, SecretRef], ...] = ()

    @property
    def hash(self) -> str:
        """Of everything in it. Two equal ones do the same to a record, in the same release of Spark."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @property
    def registry_sides(self) -> tuple[str, ...]:
        """`key`, `value`: those whose schemas stand in a registry."""
        forms = (("key", self.key_format), ("value", self.value_format))
        return tuple(name for name, form in forms if form in REGISTRY_FORMATS)

    @property
    def key_changes(self) -> tuple[str, ...]:
        """Where the file changes keys, such as `set.key` or `drop.key.email`."""
        told = [*(f"set.{path}" for path, _ in self.changes), *(f"drop.{path}" for path in self.drops)]
        return tuple(place for place in told if parse_changed_part(place.partition(".")[2]).part == "key")

    def find_format(self, side: str) -> RecordFormat:
        """Of `key`, or of `value`."""
        return self.key_format if side == "key" else self.value_format

    @property
    def expressions(self) -> tuple[tuple[str, str], ...]:
        """Where it stands in the file, such as `where` or `set.value.email`, and the text."""
        condition = () if self.where is None else (("where", self.where),)
        return (*condition, *((f"set.{path}", text) for path, text in self.changes))

    def list_constant_headers(self) -> tuple[str, ...]:
        """Headers that every record gets: those that are set to a text, not to what an expression makes of a record."""
        parts = ((parse_changed_part(path), text) for path, text in self.changes)
        return tuple(part.names[0] for part, text in parts if part.part == _HEADERS and _TEXT.fullmatch(text.strip()))

    def list_uncertain_headers(self) -> tuple[str, ...]:
        """Headers that a record may have lost on its way: those that are dropped, or set to an expression."""
        changed = (parse_changed_part(path) for path in (*self.drops, *(path for path, _ in self.changes)))
        named = {part.names[0] for part in changed if part.part == _HEADERS}
        return tuple(sorted(named - set(self.list_constant_headers())))

    def to_json(self) -> dict[str, Any]:
        """The JSON form of the plan."""
        return {
            "engine": "spark",
            "format": {"key": self.key_format, "value": self.value_format},
            "schema": dict(self.schemas),
            "where": self.where,
            "set": dict(self.changes),
            "drop": list(self.drops),
            "secrets": {name: {"kind": ref.kind, "name": ref.name} for name, ref in self.secrets},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> RecordTransform | None:
        """Reads the JSON form of the plan. Raises KeyError, TypeError for another one."""
        if value is None:
            return None
        return cls(
            value["format"]["key"],
            value["format"]["value"],
            tuple(sorted(value["schema"].items())),
            value["where"],
            tuple(sorted(value["set"].items())),
            tuple(sorted(value["drop"])),
            tuple((name, SecretRef(ref["kind"], ref["name"])) for name, ref in sorted(value["secrets"].items())),
        )

    def describe(self) -> str:
        """One line for plans and for people."""
        what = []
        if self.where is not None:
            what.append(f"keeps records where {self.where}")
        if self.changes:
            what.append(f"sets {', '.join(path for path, _ in self.changes)}")
        if self.drops:
            what.append(f"drops {', '.join(self.drops)}")
        return "; ".join(what)


def parse_changed_part(path: str) -> ChangedPart:
    """Raises ValueError with what may stand there instead."""
    part, dot, rest = path.partition(".")
    names = tuple(rest.split(".")) if dot else ()
    if part in _SIDES and all(names):
        return ChangedPart("key" if part == "key" else "value", names)
    if part == _HEADERS and rest:
        return ChangedPart("headers", (rest,))
    raise ValueError(f"`{path}`: say `value`, `value.FIELD`, `key`, `key.FIELD` or `headers.NAME`")


def find_secret_names(expressions: Iterable[str]) -> set[str]:
    """The names in all `secret('NAME')`."""
    return {name for text in expressions for name in _SECRET.findall(text)}


def replace_secrets(expression: str, build_column: Mapping[str, str]) -> str:
    """The expression with each `secret('NAME')` replaced by what stands for it. Raises KeyError."""
    return _SECRET.sub(lambda found: build_column[found[1]], expression)


def check_transform(transform: RecordTransform) -> None:
    """What can be said without Spark. Raises ValueError with the sentence for whoever wrote the file."""
    if not transform.expressions and not transform.drops:
        raise ValueError("it changes nothing; say `where`, `set` or `drop`, or leave `transform` out")
    parts = [parse_changed_part(path) for path in (*dict(transform.changes), *transform.drops)]
    for part in parts:
        _check_part(part, transform)
    _check_apart(parts)
    for name in dict(transform.schemas):
        form = transform.find_format(name)
        if not _has_fields(form):
            raise ValueError(f"`schema.{name}` is for formats json, avro and protobuf, and `format.{name}` is {form}")
    for name in _SIDES:
        form = transform.find_format(name)
        if _has_fields(form) and name not in dict(transform.schemas) and _needs_schema(transform, name, form):
            raise ValueError(
                f'format {form} needs `schema: {{{name}: "FIELD TYPE, …"}}` with the fields that expressions use'
                + (" and those that are set" if form in REGISTRY_FORMATS else "")
            )
        if form in REGISTRY_FORMATS:
            _check_set_fields(transform, name)
    _check_secrets(find_secret_names(text for _, text in transform.expressions), dict(transform.secrets))


def _has_fields(form: RecordFormat) -> bool:
    return form == "json" or form in REGISTRY_FORMATS


def _needs_schema(transform: RecordTransform, name: str, form: RecordFormat) -> bool:
    """Whether an expression reads it, or a field is set whose type has to be kept."""
    is_set = any(path.startswith(f"{name}.") for path, _ in transform.changes)
    is_read = any(re.search(rf"\b{name}\b", text) for _, text in transform.expressions)
    return is_read or (is_set and form in REGISTRY_FORMATS)


def _check_set_fields(transform: RecordTransform, side: str) -> None:
    """Their types have to be said. (That the types are kept is Spark's to say.)"""
    for path, _ in transform.changes:
        part = parse_changed_part(path)
        lacking = [name for name in part.names if name not in dict(transform.schemas).get(side, "")]
        if part.part == side and lacking:
            raise ValueError(
                f"`set.{path}`: `schema.{side}` does not name `{lacking[0]}`; a field that is set keeps its type, so "
                "say it there"
            )


def _check_part(part: ChangedPart, transform: RecordTransform) -> None:
    side = part.part
    if side == "headers":
        return
    form = transform.find_format(side)
    if part.names and not _has_fields(form):
        raise ValueError(f"`{part}` needs `format: {{{side}: json}}`, avro or protobuf; the {side}s are {form}")
    if not part.names and form == "json":
        raise ValueError(f"a JSON {side} is changed by field; say `{side}.FIELD`, or `format: {{{side}: string}}`")
    if not part.names and form in REGISTRY_FORMATS:
        raise ValueError(f"a {side} of format {form} is changed by field, under its own schema; say `{side}.FIELD`")
    if not part.names and str(part) in transform.drops:
        null = f"cast(null as {'binary' if form == 'bytes' else 'string'})"
        raise ValueError(f'`drop: [{part}]` would drop nothing: fields are dropped; say `set: {{{part}: "{null}"}}`')


def _check_apart(parts: list[ChangedPart]) -> None:
    for at, one in enumerate(parts):
        for two in parts[at + 1 :]:
            short = min(len(one.names), len(two.names))
            if one.part == two.part and one.names[:short] == two.names[:short]:
                raise ValueError(f"`{one}` and `{two}` are about the same; say one of them")


def _check_secrets(used: Collection[str], known: Mapping[str, SecretRef]) -> None:
    for name in sorted(used | known.keys()):
        if not _SECRET_NAME.fullmatch(name):
            raise ValueError(f"a secret cannot be called `{name}`; letters, digits and `_` make a name")
        if name not in known:
            raise ValueError(f"secret('{name}') is used, and `secrets` has no {name}; say where it stands")
        if name not in used:
            raise ValueError(f"`secrets.{name}` is not used; an expression says secret('{name}')")
