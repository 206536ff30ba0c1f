"""What a hook is told, and what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

_Word = Literal["yes", "no", "silence"]
TEXT = 500  # characters of what a hook says that are kept in journal and evidence


@dataclass(frozen=True, slots=True)
class HookCall:
    """What a hook is told. point: `before`, `fenced`, `switched`, `rolled_back`, `check`, `raise` or `lower`.

    key: the same however often it is called for one purpose; at: milliseconds since 1970 of the first try.
    """

    topology: str
    run: str
    wave: str
    name: str
    point: str
    key: str
    body: dict[str, Any]
    at: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Heard:
    """silence: no answer that could be understood, within its time."""

    word: _Word
    text: str
    tries: int = 1


class Kind(Protocol):
    """One way of calling."""

    def problems(self) -> list[str]:
        """What would keep it from being called, with the remedy; nothing is called of its own."""
        ...

    def call(self, asked: HookCall) -> Heard: ...


def answered(value: object, otherwise: str) -> Heard:
    """A JSON object says no by `"ok": false`, and has its words in `message`; everything else is a yes."""
    if isinstance(value, dict):
        said = str(value.get("message") or "")[:TEXT]
        if value.get("ok") is False:
            return Heard("no", said or "it said no, and gave no message")
        return Heard("yes", said or otherwise)
    return Heard("yes", str(value)[:TEXT] if isinstance(value, str) and value else otherwise)
