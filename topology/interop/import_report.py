"""What an import has to say: findings on the foreign file and on the topology that came out, as data and lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from topology.finding import LintFinding, Problem, Severity
from topology.interop.imported_topology import ImportedTopology, NotCarried
from topology.interop.topology_writer import find_missing_addresses, render_topology_file
from topology.lint import lint_topology
from topology.loader import parse_topology
from topology.rules import RULES

# name and severity in the catalogue of rules that judge foreign files, too; the registry wins where it has the rule
FOREIGN_FILE_RULES: dict[str, tuple[str, Severity]] = {
    "CLU101": ("undefined-cluster", "error"),
    "CLU102": ("duplicate-physical-cluster", "error"),
    "CLU103": ("relative-alias", "warning"),
    "CLU107": ("self-flow", "error"),
    "GRF201": ("identity-cycle", "error"),
    "GRF203": ("prefix-growth", "error"),
    "GRF204": ("multi-writer-topic", "error"),
    "GRF208": ("header-dropped", "error"),
    "GRF214": ("conflicting-flows", "error"),
    "GRF216": ("selects-nothing", "warning"),
    "NAM301": ("name-too-long", "error"),
    "NAM302": ("illegal-characters", "error"),
    "NAM304": ("rename-not-injective", "error"),
    "NAM306": ("unescaped-dot", "warning"),
    "NAM307": ("regex-catches-everything", "warning"),
    "NAM309": ("separator-in-alias", "error"),
    "NAM310": ("mixed-separators", "error"),
    "SEC601": ("literal-secret", "error"),
    "SEC602": ("sasl-over-plaintext", "error"),
    "SEC603": ("plaintext-link", "error"),
    "SEC604": ("tls-verification-off", "error"),
    "SYC502": ("group-sync-both-ways", "error"),
    "SYC506": ("tool-groups-selected", "warning"),
    "SYC508": ("group-interval-above-rpo", "warning"),
    "SYC510": ("durability-key-synced", "warning"),
    "SYC511": ("acl-sync-read-only", "warning"),
    "SYC515": ("read-uncommitted", "error"),
    "SYN001": ("yaml-syntax", "error"),
    "SYN002": ("duplicate-key", "error"),
    "SYN003": ("unknown-key", "error"),
    "SYN009": ("union-conflict", "error"),
    "SYN008": ("deprecated-field", "warning"),
    "SYN010": ("empty-selector", "error"),
    "SYN011": ("wrong-type", "error"),
    "SYN012": ("missing-key", "error"),
    "SYN014": ("yaml-feature", "error"),
    "TPC401": ("internal-topic-selected", "error"),
    "TPC405": ("rf-below-three", "warning"),
    "TPC415": ("timestamp-type", "warning"),
    "TPC417": ("latest-with-discovery", "error"),
}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """`source` are findings on the foreign file, `result` on the topology. Lines of `result` are lines of `text`."""

    text: str
    not_carried: tuple[NotCarried, ...]
    source: tuple[LintFinding, ...]
    result: tuple[LintFinding, ...]

    @property
    def errors(self) -> int:
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
    """`file` is what the topology is called in its findings."""
    text = render_topology_file(imported)
    findings = tuple(sorted((_build_foreign_finding(each) for each in imported.problems), key=lambda each: each.order))
    return ImportReport(
        text=text,
        not_carried=(*find_missing_addresses(imported), *imported.not_carried),
        source=findings,
        result=lint_topology(parse_topology(text, file)).findings,
    )


def _build_foreign_finding(problem: Problem) -> LintFinding:
    """A problem of a foreign file under the name and severity of its rule."""
    rule = next((each for each in RULES if each.code == problem.code), None)
    name, severity = (rule.name, rule.severity) if rule is not None else FOREIGN_FILE_RULES[problem.code]
    return LintFinding(
        rule=problem.code,
        name=name,
        severity=problem.severity or severity,
        confidence=problem.confidence,
        message=problem.message,
        labels=problem.labels,
        path=problem.path,
        ids=problem.ids,
        help=problem.help,
        notes=problem.notes,
    )


def render_import_findings(findings: Iterable[LintFinding]) -> list[str]:
    """The concise form, with what to do."""
    return [
        f"{each.span}: {each.severity}[{each.rule}] {each.message}" + (f" (help: {each.help})" if each.help else "")
        for each in findings
    ]
