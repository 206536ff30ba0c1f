"""JUnit XML: a suite a topology, a case a rule that was asked; what a rule found is its failure. Informational findings
are the case's output, rules that were not asked are skipped cases."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as xml

from watershed.topology.finding import LintFinding
from watershed.topology.lint import LintResult
from watershed.topology.rules import RULES
from watershed.topology.text_escaping import escape_controls


def render_junit(results: Iterable[LintResult]) -> str:
    """JUnit XML: one test suite a topology, one test case a rule."""
    root = xml.Element("testsuites", name="topology lint")
    for result in results:
        _suite(root, result)
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode")


def _suite(root: xml.Element, result: LintResult) -> None:
    by_rule: dict[str, list[LintFinding]] = {}
    for finding in result.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    skipped = {rule.code for rule in result.skipped}
    failed = sum(any(one.severity != "info" for one in found) for found in by_rule.values())
    counts = {"tests": str(len(RULES)), "failures": str(failed), "errors": "0", "skipped": str(len(skipped))}
    suite = xml.SubElement(root, "testsuite", {"name": escape_controls(result.file), **counts})
    for rule in RULES:
        case = xml.SubElement(
            suite, "testcase", classname=escape_controls(result.file), name=f"{rule.code} {rule.name}"
        )
        if rule.code in skipped:
            xml.SubElement(case, "skipped", message=f"needs {'an inventory' if rule.needs == 'inventory' else 'plan'}")
        failures = [finding for finding in by_rule.get(rule.code, ()) if finding.severity != "info"]
        notes = [finding for finding in by_rule.get(rule.code, ()) if finding.severity == "info"]
        if failures:
            failure = xml.SubElement(
                case, "failure", type=failures[0].severity, message=escape_controls(failures[0].message)
            )
            failure.text = "\n\n".join(map(_told, failures))
        if notes:
            xml.SubElement(case, "system-out").text = "\n\n".join(map(_told, notes))


def _told(finding: LintFinding) -> str:
    lines = [f"{finding.span}: {finding.severity}[{finding.rule}] {finding.message}", *finding.notes]
    return "\n".join(map(escape_controls, [*lines, f"help: {finding.help}"] if finding.help else lines))
