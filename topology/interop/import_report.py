"""The report of an import: findings about the foreign file and about the topology, and what was not imported."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from topology.finding import LintFinding
from topology.interop.imported_topology import ImportedTopology, NotCarried
from topology.interop.topology_writer import find_missing_addresses, render_topology_file
from topology.lint import lint_topology
from topology.loader import parse_topology
from topology.rule import build_finding
from topology.rules import RULES
from topology.text_escaping import escape_controls

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
        not_carried=tuple(map(_escape_entry, (*find_missing_addresses(imported), *imported.not_carried))),
        source=tuple(sorted(findings, key=lambda each: each.order)),
        result=lint_topology(parse_topology(text, file)).findings,
    )


def _escape_entry(entry: NotCarried) -> NotCarried:
    return NotCarried(escape_controls(entry.what), escape_controls(entry.why), entry.span)


def render_import_findings(findings: Iterable[LintFinding]) -> list[str]:
    """One line a finding: place, severity, code, message, help."""
    return [
        f"{each.span}: {each.severity}[{each.rule}] {each.message}" + (f" (help: {each.help})" if each.help else "")
        for each in findings
    ]
