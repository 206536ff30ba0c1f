"""What a rule has to say, as data. Reports are made from it; nothing is printed here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


class FileSpan(NamedTuple):
    """A piece of a file. Lines and columns count from 1; the end is exclusive. A tuple, because a file has a hundred
    thousand of them and all are made, hashed and compared."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Label:
    """A span with what is to be seen there; the first of a finding is where it is."""

    span: FileSpan
    text: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """What the loader saw, before a rule gives it its severity. path is like `flows[2].naming`."""

    code: str
    message: str
    labels: tuple[Label, ...]
    path: str = ""
    help: str = ""
    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    severity: Severity | None = None
    confidence: Confidence = "certain"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """`notes` are lines such as the drawn loop; `ids` are flows, clusters and waves it is about."""

    rule: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    labels: tuple[Label, ...]
    path: str = ""
    ids: tuple[str, ...] = ()
    help: str = ""
    notes: tuple[str, ...] = ()

    @property
    def span(self) -> FileSpan:
        """Where the finding is: the span of its first label."""
        return self.labels[0].span

    @property
    def fingerprint(self) -> str:
        """The same wherever the lines moved: rule, ids and message, without positions."""
        text = "\0".join((self.rule, *self.ids, self.message))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: place in the file, then rule and texts."""
        span = self.span
        place = (span.file, span.line, span.column, span.end_line, span.end_column)
        return (*place, self.rule, self.message, self.ids, self.notes)

    def to_json(self) -> dict[str, Any]:
        """One element of `findings` in the JSON report."""
        return {
            "rule": self.rule,
            "name": self.name,
            "severity": self.severity,
            "confidence": self.confidence,
            "message": self.message,
            "spans": [
                {
                    "file": label.span.file,
                    "line": label.span.line,
                    "column": label.span.column,
                    "end_line": label.span.end_line,
                    "end_column": label.span.end_column,
                    "label": label.text,
                }
                for label in self.labels
            ],
            "path": self.path,
            "ids": list(self.ids),
            "help": self.help,
            "notes": list(self.notes),
            "fingerprint": self.fingerprint,
        }
