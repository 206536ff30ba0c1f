"""The report of an import: findings about the foreign file and about the topology, and what was not imported."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from watershed.topology.finding import LintFinding
from watershed.topology.interop.import_notes import UNKNOWN_SETTING
from watershed.topology.interop.imported_topology import ImportedTopology, NotCarried
from watershed.topology.interop.remark_lines import Remark, render_remark_lines
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.reports.text import count_remarks
from watershed.topology.rule import build_finding
from watershed.topology.rules import RULES
from watershed.topology.text_escaping import escape_controls

_RULES = {rule.code: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """source: findings about the foreign file. result: findings about the topology; their lines are lines of `text`."""

    text: str
    not_carried: tuple[NotCarried, ...]
    source: tuple[LintFinding, ...]
    result: tuple[LintFinding, ...]

    @property
    def errors(self) -> int:
        """Number of findings of severity error, in both files."""
        return sum(finding.severity == "error" for finding in (*self.source, *self.result))

    def to_json(self) -> str:
        """`{"schema": 1, "topology": …, "not_carried": […], "findings": […]}`; a finding is `in` source or topology."""
        found = [("source", each) for each in self.source] + [("topology", each) for each in self.result]
        document: dict[str, Any] = {
            "schema": 1,
            "topology": self.text,
            "not_carried": [each.to_json() for each in self.not_carried],
            "findings": [{"in": where, **finding.to_json()} for where, finding in found],
        }
        return json.dumps(document, indent=2, ensure_ascii=False)


def build_import_report(imported: ImportedTopology, file: str = "topology.yaml") -> ImportReport:
    """Writes the topology file and lints it. file: the name of the topology in its findings.

    Messages, help texts and `not_carried` are safe for a terminal; `text` is the file as it is.
    """
    text = render_topology_file(imported)
    findings = (build_finding(_RULES[problem.code], problem) for problem in imported.problems)
    return ImportReport(
        text=text,
        not_carried=tuple(map(_escape_entry, imported.not_carried)),
        source=tuple(sorted(findings, key=lambda each: each.order)),
        result=lint_topology(parse_topology(text, file)).findings,
    )


def _escape_entry(entry: NotCarried) -> NotCarried:
    return NotCarried(escape_controls(entry.what), escape_controls(entry.why), entry.span)


def render_not_carried(entries: Iterable[NotCarried]) -> list[str]:
    """One line for each kind of entry: place, what, why, and where the same holds.

    What is left out because nobody knows it has a finding (SYN003), which says so."""
    return render_remark_lines(
        Remark(each.span, "", f"{each.what}: {each.why}", column=False)
        for each in entries
        if each.why != UNKNOWN_SETTING
    )


def render_import_findings(findings: Iterable[LintFinding]) -> list[str]:
    """One line for each kind of finding: place, severity, code, message, help, and where the same holds."""
    return render_remark_lines(
        Remark(each.span, f"{each.severity}[{each.rule}] ", each.message, each.help, each.ids) for each in findings
    )


def render_lint_findings(report: ImportReport, file: str) -> list[str]:
    """What the linter says about the topology, as `render_import_findings`; its remarks (info) in one line.

    What the findings about the foreign file say of the same clusters and flows is not said again."""
    known = {(each.rule, each.ids) for each in report.source if each.ids}
    fresh = [each for each in report.result if (each.rule, each.ids) not in known]
    remarks = [each for each in fresh if each.severity == "info"]
    lines = render_import_findings(each for each in fresh if each.severity != "info")
    if remarks:
        lines.append(f"{count_remarks(remarks)} (`topology lint --profile strict {file}` says more)")
    return lines
