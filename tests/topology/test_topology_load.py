"""What is wrong is said at once, with line and column; what cannot be judged is one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.errors import InvalidTopology, NotInPlan, UnreadablePlan, UnreadableTopology
from watershed.topology.lint import lint_topology
from watershed.topology.loader import load_topology, parse_topology
from watershed.topology.plan import decode_plan, encode_plan
from watershed.topology.rule_manual import complete_example
from watershed.topology.topology_files import list_topology_files
from watershed.topology.value_origin import render_value_origins

FLOW = "flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n"


def places(text: str) -> list[tuple[str, int, int]]:
    found = lint_topology(parse_topology(text)).findings
    return [(each.rule, each.span.line, each.span.column) for each in found if each.severity != "info"]


def test_all_findings_at_once_with_their_places() -> None:
    text = complete_example(
        "defaults:\n"
        "  workers: {discovery: 30, quotta: 1MiB/s}\n"
        "  offsets: mappd\n"
        "  state: off\n"
        "  sync: {configs: {mode: once, mode: never}}\n"
        "flows:\n"
        "  - {source: a, topics: {include: []}}\n"
    )
    first = text.splitlines().index("defaults:") + 1
    assert [(rule, line - first) for rule, line, _ in places(text)] == [
        ("SYN005", 1),
        ("SYN003", 1),
        ("SYN011", 2),
        ("SYN004", 3),
        ("SYN002", 4),
        ("SYN012", 6),
        ("SYN010", 6),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("just words\n", "not a topology"),
        ("- a\n- b\n", "not a topology"),
        ("apiVersion: v1\nkind: Deployment\n", "this is a Deployment, a Topology is expected"),
        ("name: something\n", "some other YAML document"),
        ("apiVersion: topology/v9\nkind: Topology\n", "apiVersion topology/v9"),
    ],
)
def test_another_document_is_one_message(text: str, message: str) -> None:
    with pytest.raises(UnreadableTopology, match=message):
        parse_topology(text)


def test_unreadable_paths(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\x89PNG\0\xff")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1 << 21))
    for path, message in ((tmp_path / "no.yaml", "No such file"), (binary, "not a text file"), (large, "at most")):
        with pytest.raises(UnreadableTopology, match=message):
            load_topology(path)
    with pytest.raises(UnreadableTopology, match="without topology files"):
        list_topology_files(Path(__file__).parent)


def test_limits_hold_without_a_crash() -> None:
    assert [rule for rule, _, _ in places("apiVersion: " + "[" * 5_000)] == ["SYN001"]
    bomb = "apiVersion: topology/v1alpha1\nmetadata: &a [x]\nflows: [" + "*a, " * 50 + "]\n"
    assert "SYN014" in {rule for rule, _, _ in places(bomb)}


def test_errors_stop_a_compilation_with_every_finding(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(complete_example(FLOW.replace("target: b", "target: bb")), encoding="utf-8")
    with pytest.raises(InvalidTopology, match="CLU101") as caught:
        compile_path(path)
    assert [finding.rule for finding in caught.value.findings if finding.severity != "info"] == ["CLU101"]
    assert "info" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_defaults_lie_under_patterns_and_flows_override_by_id(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    text = complete_example(
        "defaults:\n  workers: {engine: process, quota: 5MiB/s}\n  naming: {policy: prefix, separator: '-'}\n"
        "pattern:\n  chain: {path: [a, b, c], topics: {include: [orders]}, naming: {policy: identity}}\n"
        "flows:\n  - {source: b, target: c, workers: {quota: 1MiB/s}}\n"
    )
    path.write_text(text, encoding="utf-8")
    plan = compile_path(path)
    assert [(f.id, f.engine, f.quota, f.naming.policy) for f in plan.flows] == [
        ("a-to-b", "process", 5 * 2**20, "identity"),
        ("b-to-c", "process", 2**20, "identity"),
    ]
    line = text.splitlines().index("  - {source: b, target: c, workers: {quota: 1MiB/s}}") + 1
    assert list(render_value_origins(path, "b-to-c.workers.quota")) == [
        f"b-to-c.workers.quota = 1MiB/s  ({path}:{line})"
    ]
    assert list(render_value_origins(path, "a-to-b.state")) == ['a-to-b.state = "running"  (built in)']
    with pytest.raises(NotInPlan, match="did you mean a-to-b"):
        list(render_value_origins(path, "a-to-bb.state"))


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(complete_example(FLOW), encoding="utf-8")
    text = encode_plan(compile_path(path))
    for damaged in ("", "{}", "[]", text.replace('"orders"', '"payments"'), text.replace('"schema": 1', '"schema": 2')):
        with pytest.raises(UnreadablePlan):
            decode_plan(damaged)
    with pytest.raises(NotInPlan, match="its flows: a-to-b"):
        decode_plan(text).flow("nope")
