"""tests/cases/interop: foreign files, what they become, what is left behind and what they do wrong.
`pytest tests/topology/test_topology_interop_cases.py --update` rewrites the expected texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology.interop.import_formats import import_path
from watershed.topology.interop.import_report import build_import_report, render_import_findings, render_not_carried
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology

CASES = Path(__file__).parents[1] / "cases" / "interop"
FILES = sorted(path for path in CASES.iterdir() if path.suffix in (".properties", ".yaml", ".json"))
# whatever stands in these files as a password
SECRETS = ("s3cr3t", "changeit", "ssw0rd")
OURS = {"mm2", "strimzi", "connect"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_case(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    imported = import_path(Path(path.name))
    if imported.format not in OURS:
        pytest.skip("another module's case")
    report = build_import_report(imported)
    text = "\n".join(
        [
            report.text,
            "--- not carried over",
            *render_not_carried(report.not_carried),
            "",
            "--- wrong in the file",
            *render_import_findings(report.source),
            "",
        ]
    )
    expected = CASES / "expected" / f"{path.name}.txt"
    if request.config.getoption("--update", default=False):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_secret_of_the_file_is_in_anything_that_comes_out(path: Path) -> None:
    report = build_import_report(import_path(path))
    out = report.to_json() + repr(report)
    assert not [secret for secret in SECRETS if secret in out]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_place_is_in_the_file_and_every_problem_has_a_rule(path: Path) -> None:
    imported = import_path(path)
    source = path.read_text(encoding="utf-8").splitlines()
    spans = [each.span for each in imported.not_carried]
    spans += [label.span for problem in imported.problems for label in problem.labels]
    for span in spans:
        assert span.file == str(path)
        assert 1 <= span.line <= len(source)
        assert 1 <= span.column <= len(source[span.line - 1]) + 1
    assert all(finding.name for finding in build_import_report(imported).source)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_written_is_read_back_as_the_same_flows(path: Path) -> None:
    imported = import_path(path)
    loaded = parse_topology(render_topology_file(imported))
    assert [problem for problem in loaded.problems if problem.code.startswith("SYN")] == []
    assert loaded.topology is not None
    assert [flow.id for flow in loaded.topology.flows] == sorted(flow.id for flow in imported.flows)
    for flow in imported.flows:
        read = loaded.topology.flow(flow.id)
        assert read is not None
        assert read.plan.topics.include == tuple(sorted(set(flow.include)))
        said = read.plan.compatibility
        own = () if said is None else said.list_left_out_topics(read.plan.naming)
        excluded = {each for each in read.plan.topics.exclude if each not in own}
        assert excluded == set(flow.exclude)
        assert read.plan.state == flow.settings.get("state", "running")


def test_the_sample_that_kafka_ships_has_no_loop_once_it_is_imported() -> None:
    """Both directions, every topic, the default policy: MirrorMaker's own loop check is part of what comes over."""
    result = lint_topology(parse_topology(render_topology_file(import_path(CASES / "sample.properties"))))
    assert [finding for finding in result.findings if finding.severity == "error"] == []
