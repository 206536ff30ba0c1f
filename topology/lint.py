"""The linter's engine: every rule over one file, suppressions applied, findings in file order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topology.finding import Finding, Problem, Severity
from topology.load import Loaded, load_path
from topology.rule import Context, Rule
from topology.rules import RULES
from topology.suppression import Suppressions, read_suppressions


@dataclass(frozen=True, slots=True)
class Result:
    """One file's findings, in the order of the file; `suppressed` were silenced by a comment with a reason."""

    file: str
    text: str
    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    proofs: dict[str, Any]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def errors(self) -> int:
        return self.count("error")


def lint_path(path: Path) -> Result:
    """Raises UnreadableTopology."""
    return lint_loaded(load_path(path))


def lint_loaded(loaded: Loaded) -> Result:
    """Every rule; none hides another."""
    context = Context(loaded)
    suppressions = read_suppressions(loaded.text, loaded.file)
    kept: list[Finding] = []
    silenced: list[Finding] = []
    for rule in RULES:
        for problem in rule.check(context):
            finding = finding_of(rule, problem)
            (silenced if rule.ignorable and suppressions.silence(finding) else kept).append(finding)
    kept += _about_suppressions(suppressions)
    findings = tuple(sorted(set(kept), key=lambda finding: finding.order))
    graph = context.graph
    return Result(
        file=loaded.file,
        text=loaded.text,
        findings=findings,
        suppressed=tuple(sorted(silenced, key=lambda finding: finding.order)),
        proofs=graph.proofs() if graph is not None else {},
    )


def finding_of(rule: Rule, problem: Problem) -> Finding:
    return Finding(
        rule=rule.code,
        name=rule.name,
        severity=problem.severity or rule.severity,
        confidence=problem.confidence,
        message=problem.message,
        labels=problem.labels,
        path=problem.path,
        ids=problem.ids,
        help=problem.help,
        notes=problem.notes,
    )


def _about_suppressions(suppressions: Suppressions) -> list[Finding]:
    by_code = {rule.code: rule for rule in RULES}
    known = {word: rule for rule in RULES for word in (rule.code, rule.name)}
    return [finding_of(by_code[problem.code], problem) for problem in suppressions.problems(known)]
