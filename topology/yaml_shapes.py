"""What a value may look like. One description serves three: it checks the file, converts scalars, and gives the JSON
Schema for editors. A shape never stops at the first problem; it reports and reads on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from watershed.topology.finding import FileSpan, Label
from watershed.topology.model import CheckedValue, build_mapping
from watershed.topology.problem_collector import ProblemCollector
from watershed.topology.scalar_shape import AMBIGUOUS_SCALAR, NULL_SCALARS, NUMERIC_SCALAR, ScalarShape, YamlShape
from watershed.topology.spelling import suggest_word
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.value_wording import (
    is_possible_secret,
)
from watershed.topology.yaml_syntax_help import find_invisible_letter
from watershed.topology.yaml_tree import YamlNode

_CREDENTIALS = (
    "credentials",
    "it names where `user:password` stand, for example `credentials: {env: KAFKA_LOGIN}`",
)
# Keys that people bring from Kafka clients and other tools, in small letters: the key that says it here, and how.
_OTHER_TOOLS_KEYS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("username", "user", "password", "passwd", "sasl_username", "sasl_password"), _CREDENTIALS),
    **dict.fromkeys(("sasl.username", "sasl.password", "sasl.jaas.config", "sasl_plain_username"), _CREDENTIALS),
    **dict.fromkeys(
        ("bootstrap.servers", "bootstrap_servers", "brokers", "servers", "hosts"),
        ("bootstrap", "a list of addresses, for example `bootstrap: [broker-1:9092]`"),
    ),
    **dict.fromkeys(("sasl.mechanism", "sasl_mechanism"), ("mechanism", "for example `mechanism: SCRAM-SHA-512`")),
    **dict.fromkeys(("security.protocol", "security_protocol"), ("protocol", "for example `protocol: SASL_SSL`")),
}


@dataclass(frozen=True, slots=True)
class ShapeKey:
    """A key of a record: its shape, what it means (one or two sentences for editors and the reference manual), and in
    words what holds when it is not said."""

    shape: YamlShape
    doc: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class ListShape(YamlShape):
    """An optional `empty` says why an empty list is refused."""

    item: YamlShape
    empty: str = ""
    expected: str = "a list"

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        if node.kind != "list":
            self.wrong(node, path, reader)
            return None
        if not node.items and self.empty:
            reader.add_problem("SYN010", f"`{path}` is empty: {self.empty}", node.span, path)
        items = [self.item.read(each, f"{path}[{index}]", reader) for index, each in enumerate(node.items)]
        return CheckedValue(node.span, items=tuple(item for item in items if item is not None))

    def instead(self, node: YamlNode, path: str) -> str:
        """See `YamlShape.instead`."""
        if node.kind == "map":
            return "begin each entry with `- `"
        if not node.text or is_possible_secret(node, path):
            return f"write `{self.example()}`"
        parts = [_scalar_text(part.strip()) for part in node.text.split(",") if part.strip()]
        return f"write `[{shorten_and_escape(', '.join(parts))}]`"

    def example(self) -> str:
        """See `YamlShape.example`."""
        return f"[{self.item.example()}]"

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        return {"type": "array", "items": self.item.schema(defs)} | ({"minItems": 1} if self.empty else {})


@dataclass(frozen=True, slots=True)
class MapShape(YamlShape):
    """Names of the user's choice → one shape. names: what `name` accepts, as JSON Schema."""

    value: YamlShape
    name: Callable[[str], Any] = str
    expected: str = "a mapping"
    names: Mapping[str, Any] = field(default_factory=dict)

    def instead(self, node: YamlNode, path: str) -> str:
        """See `YamlShape.instead`."""
        return "write each name as a key: `name: …`, without `- `" if node.kind == "list" else "write `{name: …}`"

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        fields: dict[str, CheckedValue] = {}
        for key, each in read_entries(self, node, path, reader):
            try:
                self.name(key.text)
            except ValueError as error:
                reader.add_problem("SYN011", f"`{_below(path, key)}`: {error}", key.span, path)
            value = self.value.read(each, _below(path, key), reader)
            if value is not None:
                fields[key.text] = CheckedValue(value.span, value.data, value.fields, value.items, key.span)
        return build_mapping(node.span, fields)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        names = {"propertyNames": dict(self.names)} if self.names else {}
        return {"type": "object", "additionalProperties": self.value.schema(defs)} | names


@dataclass(frozen=True, slots=True)
class RecordShape(YamlShape):
    """Known keys; `required` must be there. one_of: exactly one of the keys (a union, chosen by presence). usual: an
    example as it is written. bare_list: the key that a list without a key is meant for."""

    fields: Mapping[str, ShapeKey]
    required: tuple[str, ...] = ()
    one_of: bool = False
    expected: str = "a mapping"
    usual: str = ""
    bare_list: str = ""

    def instead(self, node: YamlNode, path: str) -> str:
        """See `YamlShape.instead`."""
        text = "" if is_possible_secret(node, path) else node.text
        if self.bare_list and (node.kind == "list" or text):
            plain = [text] if text else [each.text for each in node.items]
            globs = [f'{{glob: "{each}"}}' if {"*", "?"} & set(each) else _scalar_text(each) for each in plain]
            said = ", ".join(globs) if all(plain) else "…"
            return f"write `{{{self.bare_list}: [{shorten_and_escape(said)}]}}`"
        if node.kind == "list":
            return f"write its keys without `- `: `{self.example()}`"
        return f"write `{self.example(text)}`"

    def example(self, text: str = "") -> str:
        """The required keys, or the first; `text` stands at the first of them that takes it."""
        if self.usual:
            return self.usual
        said = []
        for name in self.required or tuple(self.fields)[:1]:
            shape = self.fields[name].shape
            scalar = shape.inner if isinstance(shape, NamedShape) else shape
            takes = text and isinstance(scalar, ScalarShape) and scalar.accepts(text)
            said.append(f"{name}: {_scalar_text(text) if takes else shape.example()}")
            text = "" if takes else text
        return f"{{{', '.join(said)}}}"

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        if node.kind != "map":
            self.wrong(node, path, reader)
            return None
        found: dict[str, CheckedValue] = {}
        seen: dict[str, FileSpan] = {}
        meant: set[str] = set()
        for key, each in read_entries(self, node, path, reader):
            known = self.fields.get(key.text)
            below = f"{path}.{key.text}" if path else key.text
            if known is None:
                if key.text != "<<" or not each.refused:  # a merge key's alias was refused already
                    meant.add(self._unknown(key, path, reader))
                continue
            seen[key.text] = key.span
            value = known.shape.read(each, below, reader)
            if value is not None:
                found[key.text] = CheckedValue(value.span, value.data, value.fields, value.items, key.span)
        self._complete(node, path, seen, meant, reader)
        return build_mapping(node.span, found)

    def _unknown(self, key: YamlNode, path: str, reader: ProblemCollector) -> str:
        """The key that was probably meant, or ""."""
        if reader.is_full():
            reader.count_dropped()
            return ""
        other = _OTHER_TOOLS_KEYS.get(key.text.casefold())
        meant = other is not None and other[0] in self.fields
        near = other[0] if other is not None and meant else suggest_word(key.text, self.fields)
        hidden = find_invisible_letter(key.text)
        reader.add_problem(
            "SYN003",
            f"unknown key `{shorten_and_escape(key.text)}`" + (f" in `{path}`" if path else ""),
            key.span,
            _below(path, key),
            help_=(f"it holds {hidden}; write blanks. " if hidden else "")
            + (f"did you mean `{near}`? " if near else "")
            + (f"{other[1]}. " if other is not None and meant else "")
            + f"known here: {', '.join(sorted(self.fields))}",
        )
        return near or ""

    def _complete(
        self, node: YamlNode, path: str, seen: Mapping[str, FileSpan], meant: set[str], reader: ProblemCollector
    ) -> None:
        """meant: what unknown keys probably were, or "" for one that is like none; each was reported with what is
        known here, and is not missing as well."""
        missing = [name for name in self.required if name not in seen and name not in meant]
        if not missing and (not self.one_of or len(seen) == 1 or (meant and not seen)):
            return
        if reader.is_full():
            reader.count_dropped()
            return
        where = f"`{path}`" if path else "the file"
        head = FileSpan(node.span.file, node.span.line, node.span.column, node.span.line, node.span.column + 1)
        if self.one_of and len(seen) != 1:
            names = " | ".join(self.fields)
            if not seen:
                reader.add_problem("SYN012", f"{where} needs one of: {names}", head, path)
            else:
                first, *others = sorted(seen, key=lambda name: seen[name])
                more = tuple(Label(seen[name], f"and `{name}`") for name in others)
                message = f"{where} takes exactly one of: {names}"
                reader.add_problem("SYN009", message, seen[first], path, help_="keep one of them", more=more)
        if missing:
            reader.add_problem("SYN012", f"{where} needs {', '.join(f'`{name}`' for name in missing)}", head, path)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        result: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: _described(key, defs) for name, key in self.fields.items()},
        }
        if self.required:
            result["required"] = list(self.required)
        if self.one_of:
            result |= {"minProperties": 1, "maxProperties": 1}
        return result


@dataclass(frozen=True, slots=True)
class ScalarOrShape(YamlShape):
    """A scalar of one shape, or a mapping of another."""

    scalar: YamlShape
    other: YamlShape
    expected: str = "a value"

    def example(self) -> str:
        """See `YamlShape.example`."""
        return self.other.example()

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        return (self.scalar if node.kind == "scalar" else self.other).read(node, path, reader)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        return {"oneOf": [self.scalar.schema(defs), self.other.schema(defs)]}


@dataclass(frozen=True, slots=True)
class ConvertedShape(YamlShape):
    """A shape whose whole value becomes one datum; convert raises ValueError with the sentence."""

    inner: YamlShape
    convert: Callable[[CheckedValue], Any]
    code: str = "SYN011"

    def example(self) -> str:
        """See `YamlShape.example`."""
        return self.inner.example()

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        count = reader.found
        value = self.inner.read(node, path, reader)
        if value is None or reader.found > count:
            return None
        try:
            return CheckedValue(value.span, self.convert(value), value.fields, value.items)
        except ValueError as error:
            reader.add_problem(self.code, f"`{path}`: {error}", node.span, path)
            return None

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        return self.inner.schema(defs)


@dataclass(frozen=True, slots=True)
class NamedShape(YamlShape):
    """A shape that the schema and the manual describe once, under this name."""

    name: str
    inner: YamlShape

    @property
    def expected(self) -> str:  # type: ignore[override]
        """As the inner shape."""
        return self.inner.expected

    def example(self) -> str:
        """See `YamlShape.example`."""
        return self.inner.example()

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        return self.inner.read(node, path, reader)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        if self.name not in defs:
            defs[self.name] = {}  # a place, before what it refers to
            defs[self.name] = self.inner.schema(defs)
        return {"$ref": f"#/$defs/{self.name}"}


def _described(key: ShapeKey, defs: dict[str, Any]) -> dict[str, Any]:
    text = f"{key.doc} Default: {key.default}." if key.default else key.doc
    return {"description": text, **key.shape.schema(defs)}


def _below(path: str, key: YamlNode) -> str:
    """The path of a value; a key that no file should have stays readable in it."""
    name = shorten_and_escape(key.text)
    return f"{path}.{name}" if path else name


def _scalar_text(text: str) -> str:
    """As it is written in brackets: in quotes when it is more than a word."""
    plain = re.fullmatch(r"[\w.%/-]+", text) is not None and NUMERIC_SCALAR.fullmatch(text) is None
    return text if plain or re.fullmatch("[0-9]+", text) else f'"{text}"'


def read_entries(
    shape: YamlShape, node: YamlNode, path: str, reader: ProblemCollector
) -> list[tuple[YamlNode, YamlNode]]:
    """A mapping's entries, each key once; what is not a mapping, a name or unique is reported."""
    if node.kind != "map":
        shape.wrong(node, path, reader)
        return []
    first: dict[str, YamlNode] = {}
    kept = []
    for key, value in node.entries:
        if key.kind != "scalar":
            reader.add_problem("SYN011", f"a key in `{path}` is {key.what}; expected a name", key.span, path)
        elif key.plain and (AMBIGUOUS_SCALAR.fullmatch(key.text) or key.text in NULL_SCALARS):
            message = f"key `{shorten_and_escape(key.text)}` is read differently by different YAML readers"
            reader.add_problem(
                "SYN004", message, key.span, path, help_=f'put it in quotes: "{shorten_and_escape(key.text)}"'
            )
        elif key.text in first:
            more = (Label(first[key.text].span, "first here"),)
            reader.add_problem(
                "SYN002",
                f"key `{shorten_and_escape(key.text)}` twice",
                key.span,
                _below(path, key),
                help_="keep one of them",
                more=more,
            )
        else:
            first[key.text] = key
            kept.append((key, value))
    return kept
