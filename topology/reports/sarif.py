"""SARIF 2.1.0 (OASIS): one run, every rule with its manual, findings with all their spans. Findings that a comment or a
baseline silenced are there too, marked as suppressed or unchanged, as the standard wants it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from watershed import IMPORT_ROOT
from watershed.product_version import find_release
from watershed.topology.finding import Label, LintFinding
from watershed.topology.lint import LintResult
from watershed.topology.rule import Rule
from watershed.topology.rule_manual import parse_rule_manual, render_rule_manual
from watershed.topology.rules import RULES
from watershed.topology.text_escaping import escape_json_controls

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_INDEX = {rule.code: index for index, rule in enumerate(RULES)}


def render_sarif(results: Iterable[LintResult]) -> str:
    """One JSON document with one run; control characters are written as JSON escapes."""
    results = list(results)
    rows = []
    for result in results:
        rows += [_result(finding) for finding in result.findings]
        rows += [_result(finding, {"suppressions": [{"kind": "inSource"}]}) for finding in result.suppressed]
        rows += [_result(finding, {"baselineState": "unchanged"}) for finding in result.known]
    version = find_release(IMPORT_ROOT)
    driver = {"name": "topology lint", "semanticVersion": version, "rules": [_rule(rule) for rule in RULES]}
    skipped = sorted({rule.code for result in results for rule in result.skipped})
    notes = [{"level": "note", "message": {"text": f"{code} was not asked: it needs an inventory"}} for code in skipped]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
        "results": rows,
    }
    log = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return escape_json_controls(json.dumps(log, indent=2, ensure_ascii=False))


def _rule(rule: Rule) -> dict[str, Any]:
    manual = parse_rule_manual(rule)
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": manual.title},
        "fullDescription": {"text": manual.why},
        "help": {"text": render_rule_manual(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"needs": rule.needs, "ignorable": rule.ignorable, "tags": [rule.code[:3]]},
    }


def _result(finding: LintFinding, more: dict[str, Any] | None = None) -> dict[str, Any]:
    said = [finding.message, *finding.notes, *([f"help: {finding.help}"] if finding.help else [])]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": _INDEX[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": "\n".join(said)},
        "locations": [_location(finding.labels[0])],
        "partialFingerprints": {"topologyLint/v1": finding.fingerprint},
        "properties": {"confidence": finding.confidence, "path": finding.path, "ids": list(finding.ids)},
    }
    if len(finding.labels) > 1:
        result["relatedLocations"] = [
            {"id": number, **_location(label)} for number, label in enumerate(finding.labels[1:], 1)
        ]
    return result | (more or {})


def _location(label: Label) -> dict[str, Any]:
    span = label.span
    region = {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": max(span.line, span.end_line),
        "endColumn": max(1, span.end_column),
    }
    path = PurePath(span.file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
    if label.text:
        location["message"] = {"text": label.text}
    return location
