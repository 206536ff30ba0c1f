"""One setting of a foreign file with its place, and the two lists that every reader fills: what was not carried over,
and what the file does wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from topology.finding import FileSpan, Label, Problem, Severity
from topology.interop.imported_topology import NotCarried


@dataclass(frozen=True, slots=True)
class ForeignSetting:
    """`name` is the key as the file has it, `text` its value (never put a secret's text in a message)."""

    name: str
    text: str
    span: FileSpan
    key: FileSpan


# begins at the beginning of a word only, and gives nothing back: one pass, however often a word says `token`
_SECRET = re.compile(r"(?i)(?<![^\s=])((?=[^\s=]*?(?:password|secret|token))[^\s=]++\s*+=\s*+)[^\s`]+")


@dataclass(slots=True)
class ImportNotes:
    """The same thing said twice about one place is kept once: top-level settings speak for every flow."""

    left: dict[tuple[str, FileSpan], NotCarried] = field(default_factory=dict)
    wrong: dict[tuple[str, str, FileSpan], Problem] = field(default_factory=dict)

    def leave(self, what: str, why: str, span: FileSpan) -> None:
        what, why = _masked(what), _masked(why)
        self.left.setdefault((what, span), NotCarried(what, why, span))

    def say(
        self,
        code: str,
        message: str,
        span: FileSpan,
        help_: str = "",
        *,
        more: tuple[Label, ...] = (),
        ids: tuple[str, ...] = (),
        severity: Severity | None = None,
    ) -> None:
        message, help_ = _masked(message), _masked(help_)
        problem = Problem(code, message, (Label(span), *more), help=help_, ids=ids, severity=severity)
        self.wrong.setdefault((code, message, span), problem)

    @property
    def not_carried(self) -> tuple[NotCarried, ...]:
        return tuple(sorted(self.left.values(), key=lambda each: (each.span, each.what)))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.wrong.values(), key=lambda each: (each.labels[0].span, each.code, each.message)))


def _masked(text: str) -> str:
    """Without what looks like a secret: lines that run into one another bring it where a name or a topic is shown."""
    return _SECRET.sub(r"\1…", text)


def parse_java_boolean(said: ForeignSetting | None, default: bool) -> bool:
    """As Java's Boolean.parseBoolean: only `true`, in any case, is true."""
    return default if said is None else said.text.strip().lower() == "true"


def is_setting_name(text: str) -> bool:
    """Whether it may be a setting's name. Anything else may be the rest of a secret, and is not shown."""
    return not set(text) & set("\"';{}()\\=")
