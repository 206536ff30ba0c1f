"""Which topics a flow takes: literal names, globs and regexes; exclude wins; internal topics stay out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from topology import automaton
from topology.automaton import Automaton

INTERNAL = (
    "__*",
    "_schemas",
    "watershed.*",
    "connect-*",
    "mm2-*",
    "*.checkpoints.internal",
    "*-changelog",
    "*-repartition",
)
MAX_PRODUCT = 20_000


@dataclass(frozen=True, slots=True, order=True)
class Selector:
    """One line of a selection. `literal` is the exact name; `regex` matches the full name."""

    kind: Literal["literal", "glob", "regex"]
    text: str

    def automaton(self) -> Automaton:
        """Raises BadSelector when the text is not in the language."""
        build = {"literal": automaton.literal, "glob": automaton.glob, "regex": automaton.regex}[self.kind]
        return build(self.text)

    def matches(self, topic: str) -> bool:
        if self.kind == "literal":
            return topic == self.text
        if self.kind == "glob" and "?" not in self.text:
            return _glob_matches(self.text, topic)
        return self.automaton().matches(topic)

    @property
    def prefix(self) -> str:
        """What every name that it matches begins with."""
        if self.kind == "literal":
            return self.text
        return _fixed_beginning(self.kind, self.text)

    @property
    def example(self) -> str:
        """A name that it probably matches: try it, do not trust it."""
        if self.kind == "regex":
            return self.text.replace("\\", "").replace(".*", "").replace(".+", "a")
        return self.text.replace("*", "").replace("?", "a")

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str | dict[str, str]:
        return self.text if self.kind == "literal" else {self.kind: self.text}

    @classmethod
    def from_json(cls, value: Any) -> Selector:
        if isinstance(value, str):
            return cls("literal", value)
        [(kind, text)] = value.items()
        if kind not in ("glob", "regex"):
            raise ValueError(f"selector kind {kind}")
        return cls(kind, text)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """include minus exclude minus internal topics; `allow_internal` lets those internal topics in that are named
    literally."""

    include: tuple[Selector, ...]
    exclude: tuple[Selector, ...] = ()
    allow_internal: bool = False

    def selects(self, topic: str) -> bool:
        if is_internal(topic):
            if not (self.allow_internal and Selector("literal", topic) in self.include):
                return False
        elif not any(selector.matches(topic) for selector in self.include):
            return False
        return not any(selector.matches(topic) for selector in self.exclude)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Every selected name begins with one of these."""
        return _prefixes(self.include)

    @property
    def examples(self) -> tuple[str, ...]:
        """Names that it may select: try them."""
        return tuple(example for each in self.include for example in (each.example, f"{each.example}a"))

    @property
    def literals(self) -> tuple[str, ...] | None:
        """The selected names when the selection is a finite list of literals, else None."""
        if any(selector.kind != "literal" for selector in self.include):
            return None
        return tuple(s.text for s in self.include if self.selects(s.text))

    def to_json(self) -> dict[str, Any]:
        return {
            "include": [selector.to_json() for selector in self.include],
            "exclude": [selector.to_json() for selector in self.exclude],
            "allow_internal": self.allow_internal,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TopicSelection:
        return cls(
            include=tuple(map(Selector.from_json, value["include"])),
            exclude=tuple(map(Selector.from_json, value["exclude"])),
            allow_internal=bool(value["allow_internal"]),
        )


_INTERNAL_NAMES = frozenset(text for text in INTERNAL if "*" not in text)
_INTERNAL_BEGIN = tuple(text[:-1] for text in INTERNAL if text.endswith("*"))
_INTERNAL_END = tuple(text[1:] for text in INTERNAL if text.startswith("*"))


def is_internal(topic: str) -> bool:
    """Whether the name belongs to Kafka, Connect, a registry, Streams, MirrorMaker or Watershed itself."""
    return topic in _INTERNAL_NAMES or topic.startswith(_INTERNAL_BEGIN) or topic.endswith(_INTERNAL_END)


def _glob_matches(text: str, topic: str) -> bool:
    """`*` only: each piece is looked for from the left, which never has to be taken back."""
    first, *pieces = text.split("*")
    if not pieces:
        return topic == text
    if not topic.startswith(first) or not automaton.is_name(topic):
        return False
    position, last = len(first), pieces.pop()
    for piece in pieces:
        position = topic.find(piece, position) + len(piece)
        if position < len(piece):
            return False
    return len(topic) - len(last) >= position and topic.endswith(last)


@lru_cache(maxsize=65_536)
def _prefixes(include: tuple[Selector, ...]) -> tuple[str, ...]:
    return tuple(sorted({each.prefix for each in include}))


@lru_cache(maxsize=65_536)
def _fixed_beginning(kind: str, text: str) -> str:
    """Of a glob, up to its first wildcard; of a regex, up to the first character that is not plainly itself."""
    if kind == "glob":
        return re.split(r"[*?]", text, maxsplit=1)[0]
    if "|" in text:
        return ""
    match = re.match(r"\^?((?:[A-Za-z0-9_-]|\\[.\-_])*)", text)
    assert match is not None, "matches the empty text too"
    plain, rest = match[1], text[match.end() :]
    if rest[:1] in ("*", "+", "?", "{") and plain:
        plain = plain[:-2] if plain[-2:-1] == "\\" else plain[:-1]
    return plain.replace("\\", "")
