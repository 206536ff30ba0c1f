"""Manuals cannot lie: the bad example of every rule is found by it, the good one by nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watershed.topology.interop.import_formats import import_text
from watershed.topology.interop.import_report import build_import_report
from watershed.topology.lint import lint_topology
from watershed.topology.lint_configuration import LintConfiguration
from watershed.topology.loader import parse_topology
from watershed.topology.rule import Profile, Rule
from watershed.topology.rule_manual import (
    build_example_inventory,
    complete_example,
    parse_rule_manual,
    render_rule_manual,
)
from watershed.topology.rules import RULES


def codes(example: str, rule: Rule | None = None, profile: Profile = "regular") -> dict[str, str]:
    """Code -> severity of the findings that an example gives."""
    if "kind: KafkaMirrorMaker2" in example:  # SYN008 is about imported files only
        report = build_import_report(import_text(example, "mirror.yaml"))
        return {finding.rule: finding.severity for finding in report.source if finding.rule == "SYN008"}
    inventory = build_example_inventory(example, live=rule is not None and rule.needs == "live")
    findings = lint_topology(parse_topology(complete_example(example)), inventory, LintConfiguration(profile)).findings
    return {finding.rule: finding.severity for finding in findings}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_examples_of_a_manual(rule: Rule) -> None:
    manual = parse_rule_manual(rule)
    good = codes(manual.good, rule)
    assert rule.code in codes(manual.bad, rule, rule.profile)
    assert rule.code not in codes(manual.good, rule, rule.profile)
    assert [code for code, severity in good.items() if severity != "info"] == []
    assert manual.why
    assert manual.source


def test_every_rule_has_its_examples_and_no_other_folder_is_there() -> None:
    folder = Path(__file__).parents[2] / "topology" / "rules" / "examples"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {f"{rule.code}/{name}.yaml" for rule in RULES for name in ("bad", "good")}


def test_a_manual_as_text_has_all_parts_in_order() -> None:
    for rule in RULES:
        text = render_rule_manual(rule)
        titles = re.findall(r"^(Why|Bad|Good|Source):", text, re.MULTILINE)
        assert titles == ["Why", "Bad", "Good", "Source"], rule.code
        assert text.startswith(f"{rule.code} {rule.name}: ")


def test_the_registry_is_sorted_and_unique() -> None:
    all_codes = [rule.code for rule in RULES]
    assert all_codes == sorted(set(all_codes))
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_comment_with_a_reason_silences_and_one_without_does_not() -> None:
    text = complete_example("defaults:\n  workers: {discovery: 30}  # lint: ignore[SYN005] the unit is known here\n")
    result = lint_topology(parse_topology(text))
    assert [finding for finding in result.findings if finding.severity != "info"] == []
    assert [finding.rule for finding in result.suppressed] == ["SYN005"]
    assert set(codes("defaults:\n  workers: {discovery: 30}  # lint: ignore[SYN005]\n")) >= {"SYN005", "SYN007"}


def test_loops_cannot_be_silenced() -> None:
    flow = (
        "  - {source: %s, target: %s, topics: {include: [t]}, provenance: {guard: none}} # lint: ignore[GRF201] meant\n"
    )
    assert set(codes("flows:\n" + flow % ("a", "b") + flow % ("b", "a"))) >= {"GRF201", "SYN006"}
