"""Findings as text for people (`text`, `concise`), for tools (`json`, `sarif`, `junit`) and for a pull request
(`github`). Secrets never reach a report: see `masking.masked`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watershed.topology.lint import LintResult


def render_lint_report(results: list[LintResult], form: str, *, colour: bool = False) -> str:
    """The report in one of the formats, ending in a newline unless it is empty."""
    render = getattr(import_module(f"watershed.topology.reports.{form}"), f"render_{form}")
    report: str = render(results, colour=colour) if form == "text" else render(results)
    return f"{report}\n" if report else ""
