"""What a value may look like. One description serves three: it checks the file, converts scalars, and gives the JSON
Schema for editors. A shape never stops at the first problem; it reports and reads on."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topology import quantities
from topology.finding import Label, Problem, Span
from topology.model import Value, mapping
from topology.nearest import nearest
from topology.nodes import MAX_PROBLEMS, Node
from topology.quoting import shown
from topology.unparsed import unseen
from topology.wording import maybe_secret, reading, readings, text_of, what

AMBIGUOUS = re.compile(
    r"(?:y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|True|TRUE|False|FALSE)|[-+]?0[0-9_]+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+"
)
NUMERIC = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|0[xob][0-9a-fA-F_]+|\.inf|\.nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?|true|false",
)
NULL = {"", "~", "null", "Null", "NULL"}


class Reader:
    """Collects problems while shapes read. After MAX_PROBLEMS it is `full`: it says so once and keeps no more.
    `said` counts them all."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.said = 0

    def full(self) -> bool:
        """Whether another problem would not be kept; it is counted then, and needs no message."""
        full = self.said > MAX_PROBLEMS
        self.said += full
        return full

    def say(
        self, code: str, message: str, span: Span, path: str, *, help_: str = "", more: tuple[Label, ...] = ()
    ) -> None:
        if self.full():
            return
        if self.said == MAX_PROBLEMS:
            code, message, more = "SYN001", f"more than {MAX_PROBLEMS} problems up to here", ()
            help_ = "mend those above first; what follows is not listed"
        self.said += 1
        self.problems.append(Problem(code, message, (Label(span), *more), path=path, help=help_))


class Shape(ABC):
    """`expected` completes the sentence `expected …`."""

    expected: str

    @abstractmethod
    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        """The value of `node`, or None when it was wrong, which the reader was then told."""

    @abstractmethod
    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """The same shape as JSON Schema; named shapes are put into `defs` and referred to."""

    def wrong(self, node: Node, path: str, reader: Reader) -> None:
        if not node.refused and not reader.full():
            message = f"`{path}` is {what(node, path)}; expected {self.expected}"
            reader.say("SYN011", message, node.span, path, help_=self.instead(node, path))

    def instead(self, node: Node, path: str) -> str:
        """What to write in place of a node of the wrong kind, with the value that is there where it fits; or ""."""
        return ""

    def example(self) -> str:
        """A value in the language's own words, or `…`."""
        return "…"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a record: its shape, what it means (one or two sentences for editors and the reference manual), and in
    words what holds when it is not said."""

    shape: Shape
    doc: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Scalar(Shape):
    """Any scalar that `convert` accepts; it raises ValueError with the rest of the sentence, `MissingUnit` for a bare
    number. quoted: YAML would read some of these values as numbers, so those must be in quotes; bare: a number or a
    truth value, which is none in quotes. old: spellings of earlier versions that are still read, and how they are said
    now. mend: what a text that YAML readers make something else of should be, as it is written, or ""."""

    convert: Callable[[str], Any]
    expected: str
    json: Mapping[str, Any]
    quoted: bool = False
    old: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    mend: Callable[[str], str] = str

    def example(self) -> str:
        said = [*self.json.get("examples", ()), *self.json.get("enum", ()), *map(str, [self.json.get("minimum", "…")])]
        return str(said[0])

    def accepts(self, text: str) -> bool:
        try:
            self.convert(text)
        except ValueError:
            return False
        return True

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        if node.kind != "scalar" or (node.plain and node.text in NULL):
            self.wrong(node, path, reader)
            return None
        if node.refused:
            return None
        if node.plain and (AMBIGUOUS.fullmatch(node.text) or (self.quoted and NUMERIC.fullmatch(node.text))):
            if not reader.full():
                self._ambiguous(node, path, reader)
            return None
        if self.bare and not node.plain and self.accepts(node.text):
            message = f"`{path}` is a text in quotes; expected {self.expected}"
            reader.say("SYN011", message, node.span, path, help_=f"write it without quotes: `{text_of(node, path)}`")
            return None
        said = self.old.get(node.text, node.text)
        if said != node.text:
            message = f"`{path}: {node.text}` is an old spelling"
            reader.say("SYN008", message, node.span, path, help_=f"write `{said}`")
        try:
            return Value(node.span, self.convert(said))
        except quantities.MissingUnit as error:
            reader.say("SYN005", f"`{path}: {text_of(node, path)}` {error}", node.span, path)
        except ValueError as error:
            reader.say("SYN011", f"`{path}` is {what(node, path)}; {error}", node.span, path)
        return None

    def _ambiguous(self, node: Node, path: str, reader: Reader) -> None:
        text, mended = text_of(node, path), self.mend(node.text)
        if mended != node.text:
            help_ = f"write `{mended}`" if mended else f"expected {self.expected}"
        elif not self.bare and self.accepts(node.text):
            help_ = f'put it in quotes: "{text}"'
        else:
            help_ = f"expected {self.expected}"
        if AMBIGUOUS.fullmatch(node.text):
            message = f"is read differently by different YAML readers: as {readings(node.text)}"
        else:
            message = f"is {reading(node.text)} to YAML; expected {self.expected}"
        reader.say("SYN004", f"`{path}: {text}` {message}", node.span, path, help_=help_)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return dict(self.json)


@dataclass(frozen=True, slots=True)
class ListOf(Shape):
    """An optional `empty` says why an empty list is refused."""

    item: Shape
    empty: str = ""
    expected: str = "a list"

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        if node.kind != "list":
            self.wrong(node, path, reader)
            return None
        if not node.items and self.empty:
            reader.say("SYN010", f"`{path}` is empty: {self.empty}", node.span, path)
        items = [self.item.read(each, f"{path}[{index}]", reader) for index, each in enumerate(node.items)]
        return Value(node.span, items=tuple(item for item in items if item is not None))

    def instead(self, node: Node, path: str) -> str:
        if node.kind == "map":
            return "begin each entry with `- `"
        if not node.text or maybe_secret(node, path):
            return f"write `{self.example()}`"
        parts = [_scalar_text(part.strip()) for part in node.text.split(",") if part.strip()]
        return f"write `[{shown(', '.join(parts))}]`"

    def example(self) -> str:
        return f"[{self.item.example()}]"

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema(defs)} | ({"minItems": 1} if self.empty else {})


@dataclass(frozen=True, slots=True)
class MapOf(Shape):
    """Names of the user's choice → one shape. names: what `name` accepts, as JSON Schema."""

    value: Shape
    name: Callable[[str], Any] = str
    expected: str = "a mapping"
    names: Mapping[str, Any] = field(default_factory=dict)

    def instead(self, node: Node, path: str) -> str:
        return "write each name as a key: `name: …`, without `- `" if node.kind == "list" else "write `{name: …}`"

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        fields: dict[str, Value] = {}
        for key, each in entries(self, node, path, reader):
            try:
                self.name(key.text)
            except ValueError as error:
                reader.say("SYN011", f"`{_below(path, key)}`: {error}", key.span, path)
            value = self.value.read(each, _below(path, key), reader)
            if value is not None:
                fields[key.text] = Value(value.span, value.data, value.fields, value.items, key.span)
        return mapping(node.span, fields)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        names = {"propertyNames": dict(self.names)} if self.names else {}
        return {"type": "object", "additionalProperties": self.value.schema(defs)} | names


@dataclass(frozen=True, slots=True)
class Record(Shape):
    """Known keys; `required` must be there. one_of: exactly one of the keys (a union, chosen by presence). usual: an
    example as it is written. bare_list: the key that a list without a key is meant for."""

    fields: Mapping[str, Key]
    required: tuple[str, ...] = ()
    one_of: bool = False
    expected: str = "a mapping"
    usual: str = ""
    bare_list: str = ""

    def instead(self, node: Node, path: str) -> str:
        text = "" if maybe_secret(node, path) else node.text
        if self.bare_list and (node.kind == "list" or text):
            plain = [text] if text else [each.text for each in node.items]
            globs = [f'{{glob: "{each}"}}' if {"*", "?"} & set(each) else _scalar_text(each) for each in plain]
            said = ", ".join(globs) if all(plain) else "…"
            return f"write `{{{self.bare_list}: [{shown(said)}]}}`"
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
            scalar = shape.inner if isinstance(shape, Named) else shape
            takes = text and isinstance(scalar, Scalar) and scalar.accepts(text)
            said.append(f"{name}: {_scalar_text(text) if takes else shape.example()}")
            text = "" if takes else text
        return f"{{{', '.join(said)}}}"

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        if node.kind != "map":
            self.wrong(node, path, reader)
            return None
        found: dict[str, Value] = {}
        seen: dict[str, Span] = {}
        meant: set[str] = set()
        for key, each in entries(self, node, path, reader):
            known = self.fields.get(key.text)
            below = f"{path}.{key.text}" if path else key.text
            if known is None:
                if key.text != "<<" or not each.refused:  # a merge key's alias was refused already
                    meant.add(self._unknown(key, path, reader))
                continue
            seen[key.text] = key.span
            value = known.shape.read(each, below, reader)
            if value is not None:
                found[key.text] = Value(value.span, value.data, value.fields, value.items, key.span)
        self._complete(node, path, seen, meant, reader)
        return mapping(node.span, found)

    def _unknown(self, key: Node, path: str, reader: Reader) -> str:
        """The key that was probably meant, or ""."""
        if reader.full():
            return ""
        near = nearest(key.text, self.fields)
        hidden = unseen(key.text)
        reader.say(
            "SYN003",
            f"unknown key `{shown(key.text)}`" + (f" in `{path}`" if path else ""),
            key.span,
            _below(path, key),
            help_=(f"it holds {hidden}; write blanks. " if hidden else "")
            + (f"did you mean `{near}`? " if near else "")
            + f"known here: {', '.join(sorted(self.fields))}",
        )
        return near or ""

    def _complete(self, node: Node, path: str, seen: Mapping[str, Span], meant: set[str], reader: Reader) -> None:
        """meant: what unknown keys probably were, or "" for one that is like none; each was reported with what is
        known here, and is not missing as well."""
        missing = [name for name in self.required if name not in seen and name not in meant]
        if not missing and (not self.one_of or len(seen) == 1 or (meant and not seen)):
            return
        if reader.full():
            return
        where = f"`{path}`" if path else "the file"
        head = Span(node.span.file, node.span.line, node.span.column, node.span.line, node.span.column + 1)
        if self.one_of and len(seen) != 1:
            names = " | ".join(self.fields)
            if not seen:
                reader.say("SYN012", f"{where} needs one of: {names}", head, path)
            else:
                first, *others = sorted(seen, key=lambda name: seen[name])
                more = tuple(Label(seen[name], f"and `{name}`") for name in others)
                message = f"{where} takes exactly one of: {names}"
                reader.say("SYN009", message, seen[first], path, help_="keep one of them", more=more)
        if missing:
            reader.say("SYN012", f"{where} needs {', '.join(f'`{name}`' for name in missing)}", head, path)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
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
class ScalarOr(Shape):
    """A scalar of one shape, or a mapping of another."""

    scalar: Shape
    other: Shape
    expected: str = "a value"

    def example(self) -> str:
        return self.other.example()

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        return (self.scalar if node.kind == "scalar" else self.other).read(node, path, reader)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"oneOf": [self.scalar.schema(defs), self.other.schema(defs)]}


@dataclass(frozen=True, slots=True)
class Converted(Shape):
    """A shape whose whole value becomes one datum; convert raises ValueError with the sentence."""

    inner: Shape
    convert: Callable[[Value], Any]
    code: str = "SYN011"

    def example(self) -> str:
        return self.inner.example()

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        count = reader.said
        value = self.inner.read(node, path, reader)
        if value is None or reader.said > count:
            return None
        try:
            return Value(value.span, self.convert(value), value.fields, value.items)
        except ValueError as error:
            reader.say(self.code, f"`{path}`: {error}", node.span, path)
            return None

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return self.inner.schema(defs)


@dataclass(frozen=True, slots=True)
class Named(Shape):
    """A shape that the schema and the manual describe once, under this name."""

    name: str
    inner: Shape

    @property
    def expected(self) -> str:  # type: ignore[override]
        return self.inner.expected

    def example(self) -> str:
        return self.inner.example()

    def read(self, node: Node, path: str, reader: Reader) -> Value | None:
        return self.inner.read(node, path, reader)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        if self.name not in defs:
            defs[self.name] = {}  # a place, before what it refers to
            defs[self.name] = self.inner.schema(defs)
        return {"$ref": f"#/$defs/{self.name}"}


def _described(key: Key, defs: dict[str, Any]) -> dict[str, Any]:
    text = f"{key.doc} Default: {key.default}." if key.default else key.doc
    return {"description": text, **key.shape.schema(defs)}


def _below(path: str, key: Node) -> str:
    """The path of a value; a key that no file should have stays readable in it."""
    name = shown(key.text)
    return f"{path}.{name}" if path else name


def _scalar_text(text: str) -> str:
    """As it is written in brackets: in quotes when it is more than a word."""
    plain = re.fullmatch(r"[\w.%/-]+", text) is not None and NUMERIC.fullmatch(text) is None
    return text if plain or re.fullmatch("[0-9]+", text) else f'"{text}"'


def entries(shape: Shape, node: Node, path: str, reader: Reader) -> list[tuple[Node, Node]]:
    """A mapping's entries, each key once; what is not a mapping, a name or unique is reported."""
    if node.kind != "map":
        shape.wrong(node, path, reader)
        return []
    first: dict[str, Node] = {}
    kept = []
    for key, value in node.entries:
        if key.kind != "scalar":
            reader.say("SYN011", f"a key in `{path}` is {key.what}; expected a name", key.span, path)
        elif key.plain and (AMBIGUOUS.fullmatch(key.text) or key.text in NULL):
            message = f"key `{shown(key.text)}` is read differently by different YAML readers"
            reader.say("SYN004", message, key.span, path, help_=f'put it in quotes: "{shown(key.text)}"')
        elif key.text in first:
            more = (Label(first[key.text].span, "first here"),)
            reader.say(
                "SYN002",
                f"key `{shown(key.text)}` twice",
                key.span,
                _below(path, key),
                help_="keep one of them",
                more=more,
            )
        else:
            first[key.text] = key
            kept.append((key, value))
    return kept
