"""Findings as one JSON document (schema 1)."""

from __future__ import annotations

import json as encoder
from collections.abc import Iterable

from watershed.topology.finding import SEVERITIES
from watershed.topology.lint import LintResult
from watershed.topology.text_escaping import escape_json_controls


def render_json(results: Iterable[LintResult]) -> str:
    """`{"schema": 1, "files": […], "findings": […], "suppressed": […], "counts": {…}}`"""
    results = list(results)
    document = encoder.dumps(
        {
            "schema": 1,
            "files": [file for result in results for file in result.sources],
            "findings": [finding.to_json() for result in results for finding in result.findings],
            "suppressed": [finding.to_json() for result in results for finding in result.suppressed],
            "known": [finding.to_json() for result in results for finding in result.known],
            "skipped": sorted({rule.code for result in results for rule in result.skipped}),
            "counts": {severity: sum(result.count(severity) for result in results) for severity in SEVERITIES},
        },
        indent=2,
        ensure_ascii=False,
    )
    return escape_json_controls(document)
