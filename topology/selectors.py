"""Which topics a flow takes: literal names, globs and regexes; exclude wins; internal topics stay out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

from watershed.topology import pattern_automaton
from watershed.topology.pattern_automaton import Automaton

INTERNAL_TOPIC_GLOBS = (
    "__*",
    "_schemas",
    "watershed.*",
    "connect-*",
    "mm2-*",
    "*.checkpoints.internal",
    "*-changelog",
    "*-repartition",
)
_MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True, order=True)
class Selector:
    """One line of a selection. `literal` is the exact name; `regex` matches the full name."""

    kind: Literal["literal", "glob", "regex"]
    text: str

    def automaton(self) -> Automaton:
        """Raises BadSelector when the text is not in the language."""
        build = {
            "literal": pattern_automaton.compile_literal,
            "glob": pattern_automaton.compile_glob,
            "regex": pattern_automaton.compile_regex,
        }[self.kind]
        return build(self.text)

    def matches(self, topic: str) -> bool:
        """True if the selector matches the whole name. Raises BadSelector."""
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
    def suffix(self) -> str:
        """What every name that it matches ends with."""
        if self.kind == "literal":
            return self.text
        return _fixed_end(self.kind, self.text)

    @property
    def example(self) -> str:
        """A name that it probably matches: try it, do not trust it."""
        if self.kind == "regex":
            return self.text.replace("\\", "").replace(".*", "").replace(".+", "a")
        return self.text.replace("*", "").replace("?", "a")

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str | dict[str, str]:
        """A literal as a string, others as `{"glob": …}` or `{"regex": …}`."""
        return self.text if self.kind == "literal" else {self.kind: self.text}

    @classmethod
    def from_json(cls, value: Any) -> Selector:
        """Reads what `to_json` writes. Raises ValueError."""
        if isinstance(value, str):
            return cls("literal", value)
        [(kind, text)] = value.items()
        if kind not in ("glob", "regex"):
            raise ValueError(f"selector kind {kind}")
        return cls(kind, text)


class Selectors(tuple[Selector, ...]):
    """A tuple that remembers what is asked of it again and again: there may be twenty thousand selectors in it."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    @cached_property
    def literals(self) -> frozenset[str]:
        """The exact names among the selectors."""
        return frozenset(selector.text for selector in self if selector.kind == "literal")

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """Beginnings, one of which every matching name has; sorted, none begins with another one."""
        return drop_covered_prefixes(each.prefix for each in self)

    @cached_property
    def examples(self) -> tuple[str, ...]:
        """Names that some of the selectors may match."""
        return tuple(example for each in self[:_MAX_EXAMPLES] for example in (each.example, f"{each.example}a"))

    @cached_property
    def _patterns(self) -> tuple[dict[str, list[Selector]], dict[str, list[Selector]]]:
        """Globs and regexes by what names begin with, or, when that can be anything, by what they end with."""
        begins: dict[str, list[Selector]] = {}
        ends: dict[str, list[Selector]] = {}
        for selector in self:
            if selector.kind != "literal":
                prefix = selector.prefix
                table, key = (begins, prefix) if prefix else (ends, selector.suffix)
                table.setdefault(key, []).append(selector)
        return begins, ends

    @cached_property
    def _lengths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        begins, ends = self._patterns
        return tuple(sorted({len(key) for key in begins})), tuple(sorted({len(key) for key in ends}))

    def match(self, topic: str) -> bool:
        """Whether one of them does."""
        if topic in self.literals:
            return True
        (begins, ends), (heads, tails) = self._patterns, self._lengths
        for length in heads:
            if any(each.matches(topic) for each in begins.get(topic[:length], ())):
                return True
        return any(each.matches(topic) for cut in tails for each in ends.get(topic[max(0, len(topic) - cut) :], ()))


def sort_selectors(selectors: Iterable[Selector]) -> Selectors:
    """Each once, sorted."""
    return Selectors(sorted(set(selectors), key=lambda each: (each.kind, each.text)))


def drop_covered_prefixes(texts: Iterable[str]) -> tuple[str, ...]:
    """Sorted, without those that begin with another one."""
    kept: list[str] = []
    for text in sorted(texts):
        if not kept or not text.startswith(kept[-1]):
            kept.append(text)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """include minus exclude minus internal topics; `allow_internal` lets those internal topics in that are named
    literally."""

    include: tuple[Selector, ...]
    exclude: tuple[Selector, ...] = ()
    allow_internal: bool = False

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            selectors = getattr(self, name)
            if type(selectors) is not Selectors:
                object.__setattr__(self, name, Selectors(selectors))

    @property
    def included(self) -> Selectors:
        """`include` with its caches."""
        return cast(Selectors, self.include)

    @property
    def excluded(self) -> Selectors:
        """`exclude` with its caches."""
        return cast(Selectors, self.exclude)

    def selects(self, topic: str) -> bool:
        """True if a topic of this name is selected."""
        if is_internal_topic(topic):
            if not (self.allow_internal and topic in self.included.literals):
                return False
        elif not self.included.match(topic):
            return False
        return not (self.exclude and self.excluded.match(topic))

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Every selected name begins with one of these; sorted, none begins with another one."""
        return self.included.prefixes

    @property
    def examples(self) -> tuple[str, ...]:
        """Names that it may select: try them."""
        return self.included.examples

    @property
    def literals(self) -> tuple[str, ...] | None:
        """The selected names when the selection is a finite list of literals, else None."""
        if any(selector.kind != "literal" for selector in self.include):
            return None
        return tuple(s.text for s in self.include if self.selects(s.text))

    def to_json(self) -> dict[str, Any]:
        """The `topics` of a flow in the plan."""
        return {
            "include": [selector.to_json() for selector in self.include],
            "exclude": [selector.to_json() for selector in self.exclude],
            "allow_internal": self.allow_internal,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TopicSelection:
        """Reads the JSON form of the plan."""
        return cls(
            include=tuple(map(Selector.from_json, value["include"])),
            exclude=tuple(map(Selector.from_json, value["exclude"])),
            allow_internal=bool(value["allow_internal"]),
        )


_INTERNAL_NAMES = frozenset(text for text in INTERNAL_TOPIC_GLOBS if "*" not in text)
_INTERNAL_BEGIN = tuple(text[:-1] for text in INTERNAL_TOPIC_GLOBS if text.endswith("*"))
_INTERNAL_END = tuple(text[1:] for text in INTERNAL_TOPIC_GLOBS if text.startswith("*"))


def is_internal_topic(topic: str) -> bool:
    """Whether the name belongs to Kafka, Connect, a registry, Streams, MirrorMaker or Watershed itself."""
    return topic in _INTERNAL_NAMES or topic.startswith(_INTERNAL_BEGIN) or topic.endswith(_INTERNAL_END)


@lru_cache(maxsize=16_384)
def _pieces(text: str) -> tuple[str, tuple[str, ...], str] | None:
    """What stands before, between and behind the stars; None without any."""
    first, *pieces = text.split("*")
    return (first, tuple(piece for piece in pieces[:-1] if piece), pieces[-1]) if pieces else None


def _glob_matches(text: str, topic: str) -> bool:
    """`*` only: each piece is looked for from the left, which never has to be taken back."""
    split = _pieces(text)
    if split is None:
        return topic == text
    first, pieces, last = split
    if not topic.startswith(first) or not pattern_automaton.has_only_topic_letters(topic):
        return False
    position = len(first)
    for piece in pieces:
        position = topic.find(piece, position) + len(piece)
        if position < len(piece):
            return False
    return len(topic) - len(last) >= position and topic.endswith(last)


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


@lru_cache(maxsize=65_536)
def _fixed_end(kind: str, text: str) -> str:
    """Of a glob, behind its last wildcard; of a regex, its last characters that are plainly themselves."""
    if kind == "glob":
        return re.split(r"[*?]", text)[-1]
    if "|" in text:
        return ""
    plain = text.removesuffix("$")
    end = len(plain)
    while end and plain[end - 1] in _PLAIN:
        end -= 1
    return plain[end + (plain[end - 1 : end] == "\\") :]


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
