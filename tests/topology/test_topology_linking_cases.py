"""tests/cases/linking: cluster links as properties and Terraform, what they become, what is left behind and what they
do wrong. `pytest tests/topology/test_topology_linking_cases.py --update` rewrites the expected texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology.errors import UnreadableTopology
from watershed.topology.interop.import_formats import import_path, import_text
from watershed.topology.interop.import_report import build_import_report, render_import_findings, render_not_carried
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.loader import parse_topology

CASES = Path(__file__).parents[1] / "cases" / "linking"
PATHS = sorted(path for path in CASES.iterdir() if path.name not in ("expected", "broken.tf"))
# whatever stands in these files as a password
SECRETS = ("s3cr3t", "changeit")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_case(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    report = build_import_report(import_path(Path(path.name)))
    parts = [report.text, "--- not carried over", *render_not_carried(report.not_carried), "", "--- wrong in the file"]
    text = "\n".join([*parts, *render_import_findings(report.source), ""])
    expected = CASES / "expected" / f"{path.name}.txt"
    if request.config.getoption("--update", default=False):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_no_secret_of_the_file_is_in_anything_that_comes_out(path: Path) -> None:
    report = build_import_report(import_path(path))
    assert not [secret for secret in SECRETS if secret in report.to_json() + repr(report)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_place_is_in_one_of_the_files(path: Path) -> None:
    files = [path] if path.is_file() else list(path.iterdir())
    sources = {str(each): each.read_text(encoding="utf-8").splitlines() for each in files}
    imported = import_path(path)
    spans = [each.span for each in imported.not_carried]
    spans += [label.span for problem in imported.problems for label in problem.labels]
    assert spans
    for span in spans:
        assert 1 <= span.line <= len(sources[span.file])
        assert 1 <= span.column <= len(sources[span.file][span.line - 1]) + 1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_what_is_written_is_read_back_as_the_same_flows(path: Path) -> None:
    imported = import_path(path)
    loaded = parse_topology(render_topology_file(imported))
    assert [problem for problem in loaded.problems if problem.code in ("SYN001", "SYN003", "SYN011")] == []
    assert loaded.topology is not None
    with_topics = [flow for flow in imported.flows if flow.include]
    assert [flow.id for flow in loaded.topology.flows] == sorted(flow.id for flow in with_topics)
    for flow in with_topics:
        read = loaded.topology.flow(flow.id)
        assert read is not None
        assert read.plan.topics.include == tuple(sorted(set(flow.include)))
        assert read.plan.topics.exclude == tuple(sorted(set(flow.exclude)))
        assert read.plan.state == flow.settings.get("state", "running")


def test_terraform_that_does_not_parse_names_the_line() -> None:
    with pytest.raises(UnreadableTopology, match=r"line 2: a string without its closing quote"):
        import_path(CASES / "broken.tf")


def test_filters_alone_are_no_link(tmp_path: Path) -> None:
    (tmp_path / "topic-filters.json").write_text('{"topicFilters": []}')
    with pytest.raises(UnreadableTopology, match="no properties of a link"):
        import_path(tmp_path)


def test_terraform_without_a_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text('variable "x" { default = 1 }\n')
    with pytest.raises(UnreadableTopology, match="without a `confluent_cluster_link`"):
        import_path(tmp_path)


def test_two_links_that_are_called_differently_are_two(tmp_path: Path) -> None:
    for name, source, target in (("one", "a", "b"), ("two", "b", "a")):
        words = f"# watershed: link={name} source={source} target={target} mirror=x\n"
        address = f"link.mode=BIDIRECTIONAL\nbootstrap.servers={source}.example.internal:9092\n"
        (tmp_path / f"{name}.properties").write_text(words + address)
    imported = import_path(tmp_path)
    assert [flow.id for flow in imported.flows] == ["a-to-b", "b-to-a"]
    assert not [each for each in imported.not_carried if "taken for the two ends" in each.why]


def test_places_in_a_file_of_several_links_are_those_of_the_file() -> None:
    part = "# watershed: link=l{0} source=a{0} target=b\nlink.mode=DESTINATION\nlink.mode=SOURCES\n\n"
    imported = import_text("".join(map(part.format, range(3))), "links.properties")
    said = [(each.code, each.labels[0].span.line) for each in imported.problems if each.code in ("SYN002", "SYN011")]
    assert said == [("SYN002", 3), ("SYN011", 3), ("SYN002", 7), ("SYN011", 7), ("SYN002", 11), ("SYN011", 11)]
