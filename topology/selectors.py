"""Which topics a flow takes: literal names, globs and regexes; exclude wins; internal topics stay out."""

from __future__ import annotations

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
        return topic == self.text if self.kind == "literal" else self.automaton().matches(topic)

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


@lru_cache(maxsize=65_536)
def is_internal(topic: str) -> bool:
    """Whether the name belongs to Kafka, Connect, a registry, Streams, MirrorMaker or Watershed itself."""
    return any(automaton.glob(pattern).matches(topic) for pattern in INTERNAL)
