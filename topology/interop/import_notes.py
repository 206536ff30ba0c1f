"""One setting of a foreign file with its place, and the two lists that every reader fills: settings that are not
imported, and problems of the file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from watershed.topology.finding import FileSpan, Label, Problem, Severity
from watershed.topology.interop.imported_topology import NotCarried


@dataclass(frozen=True, slots=True)
class ForeignSetting:
    """`name` is the key as the file has it, `text` its value (never put a secret's text in a message). padded: blanks
    follow the value in the file, which Java keeps; `text` is without them."""

    name: str
    text: str
    span: FileSpan
    key: FileSpan
    padded: bool = False


# what templates and instructions put where a value belongs: `<host>`, `{HOST}`, `{{ host }}`, `${host}`, `$(HOST)`
_PLACEHOLDER = re.compile(r"<[^<>]++>|(?<!\{)\{++[^{}]*+\}|\$\([^()]*+\)")
# in place of a secret only those that no password looks like
_SECRET_PLACEHOLDER = re.compile(r"<[^<>]+>|\$\{[^{}]*\}|\{\{[^{}]*\}\}|\$\([^()]*\)")
# why a setting is left out that no list here knows; a finding (SYN003) says so, too
UNKNOWN_SETTING = "an unknown setting"
# Anchored at the start of a word, possessive quantifiers: linear time, also for a text that repeats `token`.
_SECRET = re.compile(r"(?i)(?<![^\s=])((?=[^\s=]*?(?:password|secret|token))[^\s=]++\s*+=\s*+)[^\s`]+")


@dataclass(slots=True)
class ImportNotes:
    """Notes of an import or export. A note about a place is kept once: every flow reads the same top-level setting."""

    not_carried_by_place: dict[tuple[str, FileSpan], NotCarried] = field(default_factory=dict)
    problems_by_place: dict[tuple[str, str, FileSpan], Problem] = field(default_factory=dict)

    def add_not_carried(self, what: str, why: str, span: FileSpan) -> None:
        """Records that `what` is not imported, and why. Text that looks like a secret is masked."""
        what, why = _masked(what), _masked(why)
        self.not_carried_by_place.setdefault((what, span), NotCarried(what, why, span))

    def add_problem(
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
        """Records a problem of the foreign file under the code of its rule. Text that looks like a secret is masked."""
        message, help_ = _masked(message), _masked(help_)
        self.add_foreign_problem(Problem(code, message, (Label(span), *more), help=help_, ids=ids, severity=severity))

    def add_foreign_problem(self, problem: Problem) -> None:
        """Records a problem that another reader built, such as the YAML parser. Its text is taken as it is."""
        self.problems_by_place.setdefault((problem.code, problem.message, problem.labels[0].span), problem)

    @property
    def not_carried(self) -> tuple[NotCarried, ...]:
        """Everything that is not imported, in file order."""
        return tuple(sorted(self.not_carried_by_place.values(), key=lambda each: (each.span, each.what)))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in file order."""
        return tuple(
            sorted(self.problems_by_place.values(), key=lambda each: (each.labels[0].span, each.code, each.message))
        )


def _masked(text: str) -> str:
    """The text without anything that looks like a secret. If the file lacks a line break, a secret can stand where a
    topic name is expected."""
    return _SECRET.sub(r"\1…", text)


def parse_java_boolean(said: ForeignSetting | None, default: bool) -> bool:
    """As Kafka reads a setting of type BOOLEAN, blanks behind it included: only `true`, in any case, is true. Source:
    apache/kafka ConfigDef.parseType, which trims."""
    return default if said is None else said.text.strip().lower() == "true"


def is_exactly_true(said: ForeignSetting | None, default: bool) -> bool:
    """As Java's Boolean.parseBoolean, which trims nothing: `true` with a blank behind it is false."""
    return default if said is None else said.text.lower() == "true" and not said.padded


def has_placeholder(text: str) -> bool:
    """Whether a part of the text stands for something that is filled in later, by a person or a program."""
    return _PLACEHOLDER.search(text) is not None


def is_secret_placeholder(text: str) -> bool:
    """Whether all of the text stands for a secret that is filled in later."""
    return _SECRET_PLACEHOLDER.fullmatch(text.strip()) is not None


def is_setting_name(text: str) -> bool:
    """True if the text can be the name of a setting. Other text may be the rest of a secret and is not shown."""
    return not set(text) & set("\"';{}()\\=")
