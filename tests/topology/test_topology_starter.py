"""The first file that `topology init` writes, and `topology graph -o`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner

from watershed.cli.graph import graph
from watershed.cli.init import init
from watershed.topology.inventory import Inventory, InventoryCluster, InventoryGroup, InventoryTopic
from watershed.topology.inventory_json import encode_inventory
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.rules.mig.mig830_unknown_group import has_hidden_groups
from watershed.topology.starter_file import MAX_LISTED_TOPICS, StarterCluster, render_starter_file

TWO = (
    "--cluster",
    "onprem=k1.a.example:9093,k2.a.example:9093",
    "--cluster",
    "cloud=c1.b.example:9093,c2.b.example:9093",
)


def cluster(alias: str, *topics: str) -> InventoryCluster:
    found = {name: InventoryTopic(name, None, 3, 3, internal=name.startswith("__")) for name in topics}
    return InventoryCluster(alias, f"{alias}AAAAAAAAAAAAAAAAAAAAA"[:22], 1, topics=MappingProxyType(found))


def ran(*arguments: str) -> str:
    done = CliRunner().invoke(init, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_first_file_is_clean_and_compiles() -> None:
    text = ran("orders", *TWO)
    result = lint_topology(parse_topology(text))
    assert [each for each in result.findings if each.severity != "info"] == []
    assert "credentials: {env: KAFKA_ONPREM}" in text
    assert "PLAINTEXT" in text


def test_an_inventory_gives_topics_and_ids(tmp_path: Path) -> None:
    seen = {
        "cloud": cluster("cloud"),
        "onprem": cluster("onprem", "orders", "on", "__consumer_offsets", "watershed.flows"),
    }
    file = tmp_path / "inventory.json"
    file.write_text(encode_inventory(Inventory(seen)))
    text = ran("orders", *TWO, "--inventory", str(file))
    assert '        - "on"\n        - orders\n' in text
    assert "watershed" not in text
    assert f"cluster_id: {seen['onprem'].cluster_id}" in text
    assert not [each for each in lint_topology(parse_topology(text)).findings if each.severity == "error"]
    alone = ran("orders", "--inventory", str(file), "--source", "onprem")
    assert "bootstrap: []   # fill in" in alone
    assert "  - source: onprem\n    target: cloud\n" in alone


def test_too_many_topics_are_not_listed() -> None:
    names = [f"t{number}" for number in range(MAX_LISTED_TOPICS + 1)]
    source = StarterCluster("a", ("a:1",), cluster("a", *names))
    text = render_starter_file("orders", "team", source, StarterCluster("b", ("b:1",)))
    assert "- t1\n" not in text
    assert "201 topics were found" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x",), "two clusters are needed"),
        (("x", "--cluster", "onprem"), "write ALIAS=HOST:PORT"),
        (("Orders", *TWO), "expected a name of `a-z0-9-`"),
        (("x", *TWO[:3], "clo\nud=c1:9092"), "expected an alias"),
        (("x", *TWO[:3], "cloud=c1"), "the port is missing"),
        (("x", *TWO, "--source", "nowhere"), "known are: onprem, cloud"),
        (("x", *TWO, "--source", "cloud", "--target", "cloud"), "two clusters are needed"),
    ],
)
def test_what_is_missing_is_said(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(init, list(arguments))
    assert done.exit_code == 2
    assert message in done.output


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    assert CliRunner().invoke(init, ["orders", *TWO, "-o", str(file)]).exit_code == 0
    written = file.read_text()
    spaced = CliRunner().invoke(init, ["orders", *TWO, "-o", str(tmp_path / "my orders.yaml")])
    assert "my orders.yaml'\n" in spaced.stderr, "the next command can be copied"
    again = CliRunner().invoke(init, ["other", *TWO, "-o", str(file)])
    assert (again.exit_code, file.read_text()) == (2, written)


def test_a_picture_is_drawn_as_its_file_is_called(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(ran("orders", *TWO))
    for name, begins in (("a.svg", "<svg"), ("a.dot", "digraph"), ("a.mmd", "flowchart"), ("a.txt", "")):
        done = CliRunner().invoke(graph, [str(file), "-o", str(tmp_path / name)], catch_exceptions=False)
        assert (done.exit_code, done.output) == (0, "")
        picture = (tmp_path / name).read_text()
        assert begins in picture
        assert picture.endswith("\n")
    said = CliRunner().invoke(graph, [str(file), "-o", str(tmp_path / "b.svg"), "--format", "dot"])
    assert said.exit_code == 0
    assert "digraph" in (tmp_path / "b.svg").read_text()
    assert CliRunner().invoke(graph, [str(file), "-o", str(tmp_path)]).exit_code == 2


@pytest.mark.parametrize(
    ("gap", "told"),
    [
        ("", True),
        ("topic configs: they need DESCRIBE_CONFIGS", True),
        ("sizes of what broker 2 leads, and groups it coordinates: no answer", False),
    ],
)
def test_a_group_is_unknown_only_where_all_groups_were_seen(gap: str, told: bool) -> None:
    """A broker that did not answer may coordinate it."""
    seen = replace(cluster("a"), groups=MappingProxyType({"billing": InventoryGroup("billing", "Empty")}))
    assert has_hidden_groups(replace(seen, not_seen=(gap,) if gap else ())) is not told
    assert has_hidden_groups(replace(seen, groups=MappingProxyType({}), not_seen=(gap,))) is True
