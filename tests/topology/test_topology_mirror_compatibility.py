"""`compatibility`: names, what flows leave out, and what MirrorMaker's own files say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from watershed.cli.lint import lint
from watershed.topology.interop.import_formats import import_path
from watershed.topology.interop.mm2_export import write
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.model import Topology
from watershed.topology.plan import PlanFlow

HEAD = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: t, owner: me}
clusters:
  a: {bootstrap: ["a.example.internal:9092"]}
  b: {bootstrap: ["b.example.internal:9092"]}
"""
ALL = "mirrormaker: {heartbeats: true, checkpoints: true, offset_syncs: true}"


def load(text: str) -> Topology:
    loaded = parse_topology(HEAD + text)
    assert loaded.topology is not None
    assert [problem.message for problem in loaded.problems] == []
    return loaded.topology


def load_flow(text: str, topics: str = '[{glob: "*"}]') -> PlanFlow:
    return load(f"flows:\n  - {{source: a, target: b, topics: {{include: {topics}}}, {text}}}\n").flows[0].plan


def test_names_are_those_of_the_policy() -> None:
    said = load_flow(f"compatibility: {{{ALL}}}").compatibility
    assert said is not None
    assert said.list_written_topics() == [
        ("source", "heartbeats"),
        ("target", "a.heartbeats"),
        ("target", "a.checkpoints.internal"),
        ("source", "mm2-offset-syncs.b.internal"),
    ]
    assert replace(said, source_group="lag").describe("a", "b") == [
        "writes to a beside its copy: topic heartbeats, topic mm2-offset-syncs.b.internal, positions of group lag",
        "writes to b beside its copy: topic a.heartbeats, topic a.checkpoints.internal",
    ]
    other = load_flow(
        "naming: {policy: prefix, separator: _}, compatibility: {mirrormaker: {checkpoints: true, offset_syncs: true, "
        "offset_syncs_at: target, aliases: {a: US-EAST}}}"
    ).compatibility
    assert other is not None
    assert other.list_written_topics() == [
        ("target", "US-EAST_checkpoints_internal"),
        ("target", "mm2-offset-syncs_US-EAST_internal"),
    ]


@pytest.mark.parametrize(
    ("topic", "mirrored"),
    [("heartbeats", True), ("c.heartbeats", True), ("d.c.heartbeats", True)]
    + [(topic, False) for topic in ("b.heartbeats", "c.b.heartbeats", ".heartbeats", "heartbeats.c", "my-heartbeats")],
)
def test_heartbeats_from_further_away_are_mirrored_but_not_those_of_the_target(topic: str, mirrored: bool) -> None:
    assert MirrorCompatibility("a", "b").is_heartbeats_topic(topic) == mirrored


def test_heartbeats_do_not_go_round_where_aliases_hold_the_separator() -> None:
    there = MirrorCompatibility("us_east", "eu_west", "_")
    back = MirrorCompatibility("eu_west", "us_east", "_")
    assert there.is_heartbeats_topic("heartbeats")
    assert not back.is_heartbeats_topic(there.name_mirror("heartbeats"))
    assert there.is_heartbeats_topic("asia_north_heartbeats")
    assert there.is_heartbeats_topic("not_eu_westerly_heartbeats")


@pytest.mark.parametrize(
    ("back", "second", "found"),
    [("b, target: a", "US", []), ("b, target: a", "USA", ["NAM315"]), ("a, target: c", "USA", [])],
)
def test_two_names_of_one_cluster_make_heartbeats_go_round(back: str, second: str, found: list[str]) -> None:
    names = "compatibility: {mirrormaker: {heartbeats: true, aliases: {a: %s}}}"
    text = HEAD.replace("clusters:", 'clusters:\n  c: {bootstrap: ["c.example.internal:9092"]}') + (
        f"flows:\n  - {{source: a, target: b, topics: {{include: [o]}}, {names % 'US'}}}\n"
        f"  - {{source: {back}, topics: {{include: [p]}}, {names % second}}}\n"
    )
    result = lint_topology(parse_topology(text))
    assert [each.rule for each in result.findings if each.rule == "NAM315"] == found


@pytest.mark.parametrize(
    ("second", "address", "found"),
    [("US", "a", 0), ("USA", "a", 1), ("USA", "a2", 0)],
)
def test_heartbeats_that_go_round_through_two_topologies_are_found_in_each(
    tmp_path: Path, second: str, address: str, found: int
) -> None:
    """The clusters have other aliases in the other file. Each file alone is right."""
    names = "compatibility: {mirrormaker: {heartbeats: true, aliases: {%s: %s}}}"
    there = HEAD + f"flows:\n  - {{source: a, target: b, topics: {{include: [o]}}, {names % ('a', 'US')}}}\n"
    back = (
        HEAD.replace("name: t", "name: back").replace("  a:", "  first:").replace("  b:", "  other:")
        + f"flows:\n  - {{source: other, target: first, topics: {{include: [p]}}, {names % ('first', second)}}}\n"
    ).replace("a.example", f"{address}.example")
    back = back.replace(f"aliases: {{first: {second}}}", f"aliases: {{first: {second}, other: b}}")
    loaded = [parse_topology(each) for each in (there, back)]
    one, other = (each.topology for each in loaded)
    assert one is not None
    assert other is not None
    for mine, beside in ((loaded[0], other), (loaded[1], one)):
        alone, together = lint_topology(mine), lint_topology(mine, others=[beside])
        assert [each.rule for each in alone.findings if each.rule == "NAM315"] == []
        told = [each.message for each in together.findings if each.rule == "NAM315"]
        assert len(told) == found
        assert all("heartbeats go round without end" in each for each in told)
    assert main_lint(tmp_path, there, back) == found


def main_lint(folder: Path, *texts: str) -> int:
    """How often the command names the rule for both files: 1 where it does for each of them."""
    paths = [folder / f"{number}.yaml" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(lint, [*map(str, paths), "--format", "concise"])
    assert result.output.count("NAM315") in (0, len(texts)), result.output
    return result.output.count("NAM315") // len(texts)


def test_nothing_is_asked_for_without_a_word() -> None:
    assert load_flow("compatibility: {mirrormaker: {heartbeats: false}}").compatibility is None
    assert "compatibility" not in load_flow("state: running").to_json()
    flow = load_flow(f"compatibility: {{{ALL}, source_group: lag}}")
    assert PlanFlow.from_json(flow.to_json()) == flow


def test_patterns_leave_the_topics_of_tools_alone_and_names_do_not() -> None:
    flow = load_flow(f"compatibility: {{{ALL}}}")
    taken = ("orders", "heartbeats", "c.heartbeats", "c.checkpoints.internal", "mm2-offset-syncs.b.internal")
    assert [topic for topic in taken if flow.selects(topic)] == ["orders"]
    prefixed = load_flow(f"naming: {{policy: prefix}}, compatibility: {{{ALL}}}")
    assert not prefixed.selects("checkpoints.internal")  # its copy would be called as what the flow writes
    assert prefixed.source_topic("a.checkpoints.internal") is None
    assert load_flow(f"compatibility: {{{ALL}}}", "[{glob: 'o*'}, heartbeats]").selects("heartbeats")
    assert load_flow(f"compatibility: {{{ALL}}}", "[orders]").topics.exclude == ()


def test_an_interval_is_not_a_storm() -> None:
    text = HEAD + (
        "flows:\n  - {source: a, target: b, topics: {include: [o]}, "
        "compatibility: {mirrormaker: {heartbeats: true, heartbeat_interval: 1ms}}}\n"
    )
    [problem] = parse_topology(text).problems
    assert "`heartbeat_interval` is at least 100 ms" in problem.message


def test_the_source_group_is_synced_by_no_flow_of_its_cluster() -> None:
    topology = load(
        "flows:\n"
        "  - {source: a, target: b, topics: {include: [o]}, sync: {groups: {mode: continuous}}, "
        "compatibility: {source_group: lag}}\n"
        "  - {source: b, target: a, topics: {include: [p]}, sync: {groups: {mode: continuous}}}\n"
    )
    for flow in topology.flows:
        assert not flow.plan.sync.groups.names.selects("lag")
        assert flow.plan.sync.groups.names.selects("billing")


def test_a_file_of_mirrormaker_says_the_same_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = US, eu\nUS.bootstrap.servers = us.example:9092\neu.bootstrap.servers = eu.example:9092\n"
        "US->eu.enabled = true\nUS->eu.topics = orders\nreplication.factor = 3\nreplication.policy.separator = _\n"
        "emit.heartbeats.interval.seconds = 5\nUS->eu.emit.checkpoints.enabled = true\n"
        "offset-syncs.topic.location = target\n"
    )
    imported = import_path(path)
    assert not [each for each in imported.not_carried if "emit" in each.what or "offset-syncs" in each.what]
    loaded = parse_topology(render_topology_file(imported))
    assert loaded.topology is not None
    [flow] = loaded.topology.flows
    assert flow.plan.compatibility == MirrorCompatibility(
        "US", "eu", "_", heartbeats=True, checkpoints=True, offset_syncs="target", heartbeat_interval_ms=5_000
    )
    lines = write(loaded.topology).text.splitlines()
    assert "US->eu.emit.heartbeats.interval.seconds = 5" in lines
    assert "US->eu.offset-syncs.topic.location = target" in lines
    assert "eu->US.emit.heartbeats.enabled = true" in lines  # where MirrorMaker writes what it then mirrors


def test_a_file_that_says_nothing_asks_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = a, b\na.bootstrap.servers = a.example:9092\nb.bootstrap.servers = b.example:9092\n"
        "a->b.enabled = true\nemit.checkpoints.enabled = false\n"
    )
    [flow] = import_path(path).flows
    assert "compatibility" not in flow.settings
