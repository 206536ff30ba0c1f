"""What a hook is told, and what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

_Word = Literal["yes", "no", "silence"]
MAX_HOOK_TEXT_CHARS = 500  # characters of what a hook says that are kept in journal and evidence


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
        """The body that hooks get; its keys are promised to their authors."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HookReply:
    """silence: no answer that could be understood, within its time."""

    word: _Word
    text: str
    tries: int = 1


class HookKind(Protocol):
    """One way of calling."""

    def problems(self) -> list[str]:
        """What would keep it from being called, with the remedy; nothing is called of its own."""
        ...

    def call(self, asked: HookCall) -> HookReply:
        """Calls the hook, again while it is silent and time is left. A failure is the reply `silence` or `no`."""


def parse_hook_reply(value: object, otherwise: str) -> HookReply:
    """A JSON object says no by `"ok": false`, and has its words in `message`; everything else is a yes."""
    if isinstance(value, dict):
        message = str(value.get("message") or "")[:MAX_HOOK_TEXT_CHARS]
        if value.get("ok") is False:
            return HookReply("no", message or "it said no, and gave no message")
        return HookReply("yes", message or otherwise)
    return HookReply("yes", str(value)[:MAX_HOOK_TEXT_CHARS] if isinstance(value, str) and value else otherwise)
