"""Commands that people paste: every name stays one argument, whatever stands in it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from watershed.clusters.required_role_acls import RequiredRight, derive_required_rights
from watershed.cutover.groups.group_configs import _remedy
from watershed.lab.pasted_script import run_pasted_script
from watershed.replicator.partition_states import REMEDIES, Halt
from watershed.topology import compile_path
from watershed.topology.acl_translation import render_operation
from watershed.topology.interop.export_formats import export_topology
from watershed.topology.loader import load_topology
from watershed.topology.plan import Plan
from watershed.topology.shell_command import quote_shell_argument, render_shell_command
from watershed.topology.text_escaping import escape_controls

HOSTILE = (
    "a'; touch escaped; '",
    '"; touch escaped; "',
    "$(touch escaped)",
    "`touch escaped`",
    "a\ntouch escaped\n",
    "a\rtouch escaped",
    "a\\'; touch escaped; \\'",
    "\x1b]0;title\x07'; touch escaped; '",
    "a && touch escaped || b > escaped | c # !1 ~ * ? [a] {b,c}",
    "\u202egnp.exe\u2066",
    "\x9b31m",
    "$'\\x27; touch escaped'",
    "--force",
    "",
    "ünï ☃",
)
TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: hostile}}
clusters:
  a: {{bootstrap: [a.example.internal:9092]}}
  b: {{bootstrap: [b.example.internal:9092]}}
flows:
  - {{source: a, target: b, topics: {{include: [orders]}}}}
migration:
  flow: a-to-b
  waves:
    - {{name: one, topics: [orders], consumers: [{group}], producers: [shop],
       gates: {{before: [{{lag: {{max_records: 0, hold: 30s}}}}]}}, rollback: {{none: tried}}}}
"""


def run_script(script: str, folder: Path) -> list[list[str]]:
    """What a shell calls when it is given the script; nothing else may come of it."""
    done = run_pasted_script(script, folder)
    assert (done.code, done.out, done.err, done.files) == (0, b"", b"", ())
    assert done.calls
    return [list(each) for each in done.calls]


def hostile_plan(tmp_path: Path, group: str) -> Plan:
    path = tmp_path / "hostile.yaml"
    path.write_text(TOPOLOGY.format(group=json.dumps(group)))
    return compile_path(path)


def test_a_shell_finds_every_argument_as_it_was_meant(tmp_path: Path) -> None:
    meant = [["kafka-topics", "--topic", name, "--end", name] for name in HOSTILE]
    script = "\n".join(render_shell_command(*each) for each in meant)
    assert run_script(script, tmp_path) == meant


@pytest.mark.parametrize("name", HOSTILE)
def test_a_command_is_one_line_that_no_terminal_obeys(name: str) -> None:
    line = render_shell_command("topology", "status", name)
    assert escape_controls(line) == line
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_shell_without_escapes_in_quotes_executes_nothing_either(name: str, tmp_path: Path) -> None:
    """dash, ash: the name may be another there, never a command."""
    script = f"true {quote_shell_argument(name)}"
    subprocess.run(["sh"], input=script.encode(), cwd=tmp_path, capture_output=True, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_nul_stands_as_text() -> None:
    assert quote_shell_argument("a\0b") == "$'a\\\\x00b'"


def test_a_path_is_no_option(tmp_path: Path) -> None:
    assert run_script(render_shell_command("topology", "status", Path("-x.yaml")), tmp_path) == [
        ["topology", "status", "./-x.yaml"]
    ]


def test_acls_of_hostile_groups_give_rights_and_nothing_else(tmp_path: Path) -> None:
    """The administrator runs `topology acls --role migrate --format commands` as it comes."""
    # the language refuses controls (SYN011, below), and `$(…)` (SEC606)
    groups = [name for name in HOSTILE if name and escape_controls(name) == name and "$(" not in name]
    lines, meant = [], []
    principal = "User:w'; touch escaped; '"
    for group in groups:
        for right in derive_required_rights(hostile_plan(tmp_path, group), "migrate"):
            if right.resource == "GROUP":
                lines.append(right.command(principal, "a.example.internal:9092"))
                meant.append([render_operation(right.operation), right.name, principal])
    assert {name for _, name, _ in meant} == set(groups)
    called = run_script("\n".join(lines), tmp_path)
    options = ("--operation", "--group", "--allow-principal")
    assert [[each[each.index(option) + 1] for option in options] for each in called] == meant
    assert {each[0] for each in called} == {"kafka-acls"}


def test_operations_are_spelled_as_kafka_acls_takes_them() -> None:
    """It refuses DESCRIBE_CONFIGS (Kafka 4.3)."""
    right = RequiredRight("cloud", "TOPIC", "orders", "LITERAL", "DESCRIBE_CONFIGS", "")
    assert "--operation DescribeConfigs --topic orders" in right.command("User:w", "k:1")


@pytest.mark.parametrize("letter", ["\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2067", "\u061c"])
def test_groups_with_controls_are_refused_where_they_stand(letter: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(TOPOLOGY.format(group=json.dumps(f"a{letter}b")))
    [problem] = [each for each in load_topology(path).problems if each.code == "SYN011"]
    assert "on one line" in problem.message
    assert problem.path == "migration.waves[0].consumers[0]"


@pytest.mark.parametrize("key", ["groups", "applications"])
def test_keys_that_name_groups_and_applications_are_on_one_line(key: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    text = TOPOLOGY.format(group="shop").replace("  waves:", f'  {key}: {{"a\\nb": {{}}}}\n  waves:')
    path.write_text(text)
    assert [each.path for each in load_topology(path).problems if each.code == "SYN011"] == [f"migration.{key}"]


def test_remedies_of_partitions_hold_hostile_topics(tmp_path: Path) -> None:
    topic = "a'; touch escaped; '"
    commands = []
    for state in REMEDIES:
        told = Halt(state, "why").remedy_for("a-to-b", topic, 3, "my orders.yaml")
        commands += [part for part in told.split("`")[1::2] if quote_shell_argument(topic) in part]
    assert len(commands) > 5
    for called in run_script("\n".join(commands), tmp_path):
        assert called[0] == "topology"
        assert called[called.index("--topic") + 1] == topic
        assert "my orders.yaml" in called


def test_a_config_value_is_no_second_key(tmp_path: Path) -> None:
    told = _remedy("g'; touch escaped; '", "share.auto.offset.reset", "latest,x=y")
    [called] = run_script(told.removeprefix("To keep it: "), tmp_path)
    assert called[called.index("--entity-name") + 1] == "g'; touch escaped; '"
    assert called[-1] == "share.auto.offset.reset=[latest,x=y]"


def test_an_exported_link_is_one_command(tmp_path: Path) -> None:
    """The loader refuses such an id (below); what writes the line does not rely on that."""
    path = tmp_path / "hostile.yaml"
    path.write_text(TOPOLOGY.format(group="shop").partition("migration:")[0])
    topology = load_topology(path).topology
    assert topology is not None
    clusters = topology.clusters | {"a": replace(topology.clusters["a"], cluster_id="x; touch escaped #")}
    text = export_topology(replace(topology, clusters=clusters), "cluster-linking").text
    [line] = [each for each in text.splitlines() if each.startswith("# kafka-cluster-links")]
    [called] = run_pasted_script(line.removeprefix("# "), tmp_path).calls
    assert called[called.index("--cluster-id") + 1] == "x; touch escaped #"


LITERAL = [("*", "every name"), (" shop", "blank"), ("shop ", "blank"), ("shop\u00a0", "blank")]


@pytest.mark.parametrize(("name", "why"), LITERAL)
def test_a_group_id_is_one_that_acls_take_literally(name: str, why: str, tmp_path: Path) -> None:
    """`--group '*'` gives a right on every group, and kafka-acls cuts blanks off."""
    path = tmp_path / "hostile.yaml"
    path.write_text(TOPOLOGY.format(group=json.dumps(name)))
    [problem] = [each for each in load_topology(path).problems if each.code == "SYN011"]
    assert problem.path == "migration.waves[0].consumers[0]"
    assert why in problem.message


@pytest.mark.parametrize(("name", "why"), LITERAL)
@pytest.mark.parametrize("key", ["groups", "applications"])
def test_keys_that_name_groups_and_applications_are_literal(key: str, name: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    text = TOPOLOGY.format(group="shop").replace("  waves:", f"  {key}: {{{json.dumps(name)}: {{}}}}\n  waves:")
    path.write_text(text)
    [problem] = [each for each in load_topology(path).problems if each.code == "SYN011"]
    assert why in problem.message


@pytest.mark.parametrize("renamed", ['{"*": shop}', '{shop: "*"}', '{shop: " till"}'])
def test_groups_are_renamed_from_and_to_literal_names(renamed: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    flow = f"topics: {{include: [orders]}}, sync: {{groups: {{mode: continuous, rename: {renamed}}}}}"
    path.write_text(TOPOLOGY.format(group="shop").replace("topics: {include: [orders]}", flow))
    assert [each.code for each in load_topology(path).problems if each.code == "SYN011"] == ["SYN011"]


@pytest.mark.parametrize("name", ["checkout", "User:", "User:*", ":checkout", "User: checkout", "User:checkout ", "*"])
def test_a_principal_is_a_type_and_a_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    applications = f"  applications: {{shop: {{principal: {json.dumps(name)}}}}}\n  waves:"
    path.write_text(TOPOLOGY.format(group="shop").replace("  waves:", applications))
    [problem] = [each for each in load_topology(path).problems if each.code == "SYN011"]
    assert problem.path == "migration.applications.shop.principal"


@pytest.mark.parametrize(
    "name", ["User:checkout", "User:CN=checkout, O=shop", "User:a:b", "Group:*s", "ServiceAccount:x"]
)
def test_principals_of_every_kind_are_taken(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    applications = f"  applications: {{shop: {{principal: {json.dumps(name)}}}}}\n  waves:"
    path.write_text(TOPOLOGY.format(group="shop").replace("  waves:", applications))
    assert [each for each in load_topology(path).problems if each.code == "SYN011"] == []


@pytest.mark.parametrize("address", ["-x:9092", "--add:1", "-:9092"])
def test_an_address_is_no_option(address: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(TOPOLOGY.format(group="shop").replace("a.example.internal:9092", address))
    [problem] = [each for each in load_topology(path).problems if each.code == "SYN011"]
    assert problem.path == "clusters.a.bootstrap[0]"
    assert "begins with a letter" in problem.message


@pytest.mark.parametrize("name", ["y source=evil", "y;x", "*", " y", "y\u00e9", "'y'"])
def test_a_cluster_id_is_one_word(name: str, tmp_path: Path) -> None:
    """It stands in the comment line of an exported file, where words mean something."""
    path = tmp_path / "hostile.yaml"
    cluster = f"{{bootstrap: [a.example.internal:9092], cluster_id: {json.dumps(name)}}}"
    path.write_text(TOPOLOGY.format(group="shop").replace("{bootstrap: [a.example.internal:9092]}", cluster))
    [problem] = [each for each in load_topology(path).problems if each.code == "SYN011"]
    assert problem.path == "clusters.a.cluster_id"
    assert "cluster-id" in problem.message
