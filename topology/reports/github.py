"""GitHub workflow commands: one annotation a finding, on the line where it begins.

Columns are only given where a span stays on one line, and text is escaped as the runner wants it
(docs.github.com, workflow commands for GitHub Actions).
"""

from __future__ import annotations

from collections.abc import Iterable

from watershed.topology.finding import LintFinding
from watershed.topology.lint import LintResult
from watershed.topology.text_escaping import escape_controls

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(results: Iterable[LintResult]) -> str:
    """Workflow commands of GitHub Actions, one line a finding."""
    return "\n".join(_annotation(finding) for result in results for finding in result.findings)


def _annotation(finding: LintFinding) -> str:
    span = finding.span
    place = {"file": escape_controls(span.file), "line": str(span.line), "endLine": str(span.end_line)}
    if span.line == span.end_line:
        place |= {"col": str(span.column), "endColumn": str(max(span.column, span.end_column - 1))}
    place["title"] = f"{finding.rule} {finding.name}"
    parts = (finding.message, *finding.notes, *([f"help: {finding.help}"] if finding.help else []))
    said = "\n".join(map(escape_controls, parts))
    where = ",".join(f"{key}={_property(value)}" for key, value in place.items())
    return f"::{_COMMANDS[finding.severity]} {where}::{_data(said)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
