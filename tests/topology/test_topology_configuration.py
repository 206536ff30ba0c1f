"""topology.lint.yaml, profiles and baselines: what they change, and what nobody may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology.baseline import read_baseline
from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import LintFinding
from watershed.topology.lint import lint_path, lint_topology
from watershed.topology.lint_configuration import LintConfiguration, read_lint_configuration, read_nearest_configuration
from watershed.topology.loader import parse_topology
from watershed.topology.reports import render_lint_report
from watershed.topology.rule_manual import complete_example

PLAIN = complete_example("flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n")
MERGED = complete_example(
    "flows:\n" + "".join(f"  - {{source: {s}, target: c, topics: {{include: [orders]}}}}\n" for s in "ab")
)


def severities(findings: tuple[LintFinding, ...]) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in findings}


def written(folder: Path, text: str) -> Path:
    path = folder / "topology.lint.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_only_missing_is_a_remark_until_the_profile_is_strict() -> None:
    regular = severities(lint_topology(parse_topology(PLAIN)).findings)
    strict = severities(lint_topology(parse_topology(PLAIN), configuration=LintConfiguration("strict")).findings)
    assert set(regular.values()) == {"info"}
    assert (regular["OPS901"], strict["OPS901"]) == ("info", "warning")


def test_severities_change_up_down_and_off(tmp_path: Path) -> None:
    path = written(tmp_path, 'severities: {OPS901: error, unpinned-cluster-id: "off"}\n')
    found = severities(lint_topology(parse_topology(PLAIN), configuration=read_lint_configuration(path)).findings)
    assert found["OPS901"] == "error"
    assert "CLU104" not in found


def test_the_nearest_file_above_counts_up_to_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "edge").mkdir()
    written(tmp_path, "profile: strict\n")
    assert read_nearest_configuration(tmp_path / "edge" / "t.yaml").profile == "strict"
    written(tmp_path / "edge", "profile: audit\n")
    assert read_nearest_configuration(tmp_path / "edge").profile == "audit"
    (tmp_path / "edge" / ".git").mkdir()
    (tmp_path / "edge" / "topology.lint.yaml").unlink()
    assert read_nearest_configuration(tmp_path / "edge" / "t.yaml").profile == "regular"


def test_paths_have_their_own_severities_with_a_reason(tmp_path: Path) -> None:
    path = written(tmp_path, 'paths: [{match: "edge/*", reason: ships have one broker, severities: {OPS901: "off"}}]\n')
    configuration = read_lint_configuration(path)
    edge = lint_topology(parse_topology(PLAIN, "/repo/edge/t.yaml"), configuration=configuration)
    other = lint_topology(parse_topology(PLAIN, "/repo/t.yaml"), configuration=configuration)
    assert "OPS901" not in severities(edge.findings)
    assert "OPS901" in severities(other.findings)


def test_options_reach_their_rules(tmp_path: Path) -> None:
    text = complete_example(
        "clusters:\n  a: {bootstrap: ['k:1'], topics: [{match: orders, partitions: 3}]}\n  b: {bootstrap: ['l:1']}\n"
        "flows: [{source: a, target: b, topics: {include: [orders]}}]\n"
    )
    assert "SLO710" not in severities(lint_topology(parse_topology(text)).findings)
    configuration = read_lint_configuration(written(tmp_path, "options: {partitions_per_worker: 2}\n"))
    assert "SLO710" in severities(lint_topology(parse_topology(text), configuration=configuration).findings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("severities: {GRF204: warning}", "GRF204 keeps its severity"),
        ("severities: {multi-writer-topic: info}", "keeps its severity"),
        ("paths: [{match: x, reason: y, severities: {SEC601: info}}]", "SEC601 keeps its severity"),
        ("severities: {GRF999: error}", "no rule GRF999"),
        ("severities: {OPS901: loud}", "one of error, warning, info, off"),
        ("profile: stric", "did you mean `strict`"),
        ("option: {wave_topics: 4}", "unknown key `option`"),
        ("options: {wave_topics: many}", "a whole number"),
        ("paths: [{match: x, severities: {}}]", "needs `reason`"),
        ("[", "a value is missing"),
    ],
)
def test_a_mistake_in_the_configuration_ends_the_run_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UnreadableTopology, match=r"topology\.lint\.yaml:[12]:") as caught:
        read_lint_configuration(written(tmp_path, text + "\n"))
    assert said in str(caught.value)


def test_a_baseline_knows_old_findings_wherever_their_lines_went(tmp_path: Path) -> None:
    path, report = tmp_path / "t.yaml", tmp_path / "report.json"
    path.write_text(PLAIN, encoding="utf-8")
    report.write_text(render_lint_report([lint_path(path)], "json"), encoding="utf-8")
    moved = PLAIN.replace("clusters:", "\n\nclusters:").replace(
        "include: [orders]", "include: [orders], exclude: [orders]"
    )
    result = lint_topology(parse_topology(moved, str(path)), baseline=read_baseline(report))
    assert [finding.rule for finding in result.findings] == ["GRF216"]
    assert result.known != ()


def test_no_baseline_hides_what_no_comment_may_hide(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(render_lint_report([lint_topology(parse_topology(MERGED))], "json"), encoding="utf-8")
    result = lint_topology(parse_topology(MERGED), baseline=read_baseline(report))
    assert [finding.rule for finding in result.findings if finding.severity == "error"] == ["GRF204"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"findings": 3}', "no json", "[" * 100_000])
def test_something_else_is_no_baseline(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableTopology, match="not a report"):
        read_baseline(path)
