"""Several files of one folder that say one name are one topology; others stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.errors import UnreadableTopology
from watershed.topology.lint import LintResult, lint_path, lint_topologies, lint_topology
from watershed.topology.loader import load_topologies

HEAD = "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: %s}\n"
CLUSTERS = "clusters:\n  a: {bootstrap: [k1.a.example.internal:9092]}\n  b: {bootstrap: [k1.b.example.internal:9092]}\n"
FLOW = "flows:\n  - {source: %s, target: %s, topics: {include: [%s]}}\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def found(results: list[LintResult]) -> set[tuple[str, str]]:
    """(rule, file) of what is more than a remark."""
    return {
        (finding.rule, Path(finding.span.file).stem)
        for result in results
        for finding in result.findings
        if finding.severity != "info"
    }


def test_parts_are_put_together(tmp_path: Path) -> None:
    one, two = HEAD % "t" + FLOW % ("a", "b", "x"), HEAD % "t" + FLOW % ("b", "a", "p")
    folder = write(tmp_path, one=one, clusters=HEAD % "t" + CLUSTERS, two=two)
    assert found(lint_topologies(folder)) == set()
    plan = compile_path(folder)
    assert [flow.id for flow in plan.flows] == ["a-to-b", "b-to-a"]


def test_the_hash_does_not_depend_on_how_the_topology_is_cut(tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    cut = write(tmp_path / "cut", a=HEAD % "t" + FLOW % ("a", "b", "x"), b=HEAD % "t" + CLUSTERS)
    whole = tmp_path / "whole.yaml"
    whole.write_text(HEAD % "t" + CLUSTERS + FLOW % ("a", "b", "x"), encoding="utf-8")
    assert compile_path(cut).hash == compile_path(whole).hash


def test_a_finding_names_the_file_it_is_in_and_a_loop_over_two_files_is_seen(tmp_path: Path) -> None:
    open_ = "defaults: {provenance: {guard: none}}\n"
    folder = write(
        tmp_path,
        clusters=HEAD % "t" + CLUSTERS + open_,
        there=HEAD % "t" + FLOW % ("a", "b", "x"),
        back=HEAD % "t" + FLOW % ("b", "a", "x"),
    )
    [result] = lint_topologies(folder)
    [loop] = [finding for finding in result.findings if finding.rule == "GRF201"]
    assert [Path(label.span.file).stem for label in loop.labels] == ["back", "there"]


def test_what_is_said_once_only_is_found_with_both_places(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        one=HEAD % "t" + CLUSTERS + "defaults: {state: paused}\n",
        two=HEAD % "t" + "defaults: {state: running}\n" + CLUSTERS,
    )
    [result] = lint_topologies(folder)
    twice = [finding for finding in result.findings if finding.rule == "SYN002"]
    assert sorted(finding.message for finding in twice) == ["key `a` twice", "key `b` twice", "key `defaults` twice"]
    assert {Path(label.span.file).stem for finding in twice for label in finding.labels} == {"one", "two"}


def test_comments_silence_in_their_own_file_only(tmp_path: Path) -> None:
    flows = FLOW.replace("}\n", ", workers: {discovery: 30}}")
    comment = "  # lint: ignore[SYN005] known\n"
    folder = write(
        tmp_path,
        clusters=HEAD % "t" + CLUSTERS,
        one=HEAD % "t" + flows % ("a", "b", "x") + comment,
        two=HEAD % "t" + flows % ("b", "a", "p") + "\n",
    )
    assert found(lint_topologies(folder)) == {("SYN005", "two")}


def test_topologies_with_other_names_stay_apart(tmp_path: Path) -> None:
    whole = CLUSTERS + FLOW % ("a", "b", "x")
    folder = write(tmp_path, one=HEAD % "one" + whole, two=HEAD % "two" + whole)
    assert len(lint_topologies(folder)) == 2
    with pytest.raises(UnreadableTopology, match=r"2 topologies .* one \(.*two \("):
        compile_path(folder)


def test_a_part_alone_lacks_what_the_others_say(tmp_path: Path) -> None:
    folder = write(tmp_path, one=HEAD % "t" + FLOW % ("a", "b", "x"), clusters=HEAD % "t" + CLUSTERS)
    assert ("SYN012", "one") in found([lint_path(folder / "one.yaml")])


def test_a_part_that_does_not_parse_stops_its_topology_and_no_other(tmp_path: Path) -> None:
    whole = CLUSTERS + FLOW % ("a", "b", "x")
    folder = write(tmp_path, good=HEAD % "good" + whole, bad=HEAD % "bad" + "clusters: [\n")
    assert found(lint_topologies(folder)) == {("SYN001", "bad")}


def test_two_topologies_of_one_run_must_not_share_a_flow_id_at_one_cluster(tmp_path: Path) -> None:
    whole = CLUSTERS + FLOW % ("a", "b", "x")
    write(tmp_path, one=HEAD % "one" + whole, two=HEAD % "two" + whole)
    loaded = load_topologies(tmp_path)
    topologies = [each.topology for each in loaded if each.topology is not None]
    results = [lint_topology(each, others=[one for one in topologies if one is not each.topology]) for each in loaded]
    assert found(results) == {("OPS902", "one"), ("OPS902", "two")}
    elsewhere = whole.replace("k1.b.", "k1.bb.")
    write(tmp_path, two=HEAD % "two" + elsewhere)
    _, two = (each.topology for each in load_topologies(tmp_path))
    assert two is not None
    assert found([lint_topology(load_topologies(tmp_path)[0], others=[two])]) == set()
