"""One line a finding: `file:line:column: severity[CODE] message`."""

from __future__ import annotations

from collections.abc import Iterable

from watershed.topology.lint import LintResult
from watershed.topology.text_escaping import escape_controls


def render_concise(results: Iterable[LintResult]) -> str:
    """One line a finding: place, severity, code, message."""
    return "\n".join(
        escape_controls(f"{finding.span}: {finding.severity}[{finding.rule}] {finding.message}")
        for result in results
        for finding in result.findings
    )
