"""Manuals cannot lie: the bad example of every rule is found by it, the good one by nothing."""

from __future__ import annotations

import pytest

from topology.lint import lint_topology
from topology.lint_configuration import LintConfiguration
from topology.loader import parse_topology
from topology.rule import Profile, Rule
from topology.rule_manual import build_example_inventory, complete_example, parse_rule_manual
from topology.rules import RULES


def codes(example: str, rule: Rule | None = None, profile: Profile = "regular") -> dict[str, str]:
    """Code -> severity of the findings that an example gives."""
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
