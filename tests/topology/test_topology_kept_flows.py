"""`topology import --keep-running`: flows of a foreign file that stay with their tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watershed.cli.main import main
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.loader import parse_topology

CASES = Path(__file__).parents[1] / "cases" / "interop"
MIRRORMAKER = """clusters = us, eu
us.bootstrap.servers = kafka.us.example.internal:9092
eu.bootstrap.servers = kafka.eu.example.internal:9092
us->eu.enabled = true
us->eu.topics = orders, payments
us->eu.replication.factor = 3
eu->us.enabled = true
eu->us.topics = catalog
eu->us.replication.factor = 3
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
REPLICATOR = {
    "name": "east",
    "config": {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": "kafka.east.example.internal:9092",
        "dest.kafka.bootstrap.servers": "kafka.west.example.internal:9092",
        "topic.whitelist": "orders",
        "provenance.header.enable": "true",
    },
}


def write(folder: Path, text: str, name: str = "mm2.properties") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def import_flows(path: Path, capsys: pytest.CaptureFixture[str], *kept: str) -> tuple[list[str], list[ExternalFlow]]:
    """Ids of our flows, and what others go on to copy."""
    main(["import", str(path), *(word for each in kept for word in ("--keep-running", each))])
    loaded = parse_topology(capsys.readouterr().out)
    assert loaded.topology is not None
    assert {problem.code for problem in loaded.problems} <= {"NAM305"}  # names that a person has to fill in
    external = [each.external for each in loaded.topology.external_flows if each.external is not None]
    return [flow.id for flow in loaded.topology.flows], external


def test_one_flow_stays_with_its_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, [theirs] = import_flows(write(tmp_path, MIRRORMAKER), capsys, "eu-to-us")
    assert ours == ["us-to-eu"]
    assert (theirs.id, theirs.tool, theirs.naming.policy) == ("mirrormaker2-eu-to-us", "mirrormaker2", "identity")
    assert theirs.topics.selects("catalog")
    assert not theirs.topics.selects("orders")


def test_all_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = import_flows(write(tmp_path, MIRRORMAKER), capsys, "all")
    assert (ours, len(theirs)) == ([], 2)
    none, nothing = import_flows(write(tmp_path, MIRRORMAKER), capsys)
    assert (none, nothing) == (["eu-to-us", "us-to-eu"], [])


def test_replicators_header_is_its_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, [theirs] = import_flows(write(tmp_path, json.dumps(REPLICATOR), "r.json"), capsys, "all")
    assert (theirs.tool, theirs.marks_with) == ("replicator", "__replicator_id")
    silent = json.dumps(REPLICATOR).replace('"true"', '"false"')
    _, [theirs] = import_flows(write(tmp_path, silent, "r.json"), capsys, "all")
    assert theirs.marks_with is None


def test_an_unknown_flow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(write(tmp_path, MIRRORMAKER)), "--keep-running", "us-to-mars"]) == 2
    assert "--keep-running us-to-mars: the file has no such flow; it has eu-to-us, us-to-eu" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(each for each in CASES.iterdir() if each.is_file()), ids=lambda each: each.name)
def test_every_foreign_file_can_stay_with_its_tool(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is written is read back, and aliases that MirrorMaker has keep their names in the topics."""
    ours, theirs = import_flows(path, capsys, "all")
    assert ours == []
    assert theirs


def test_an_export_says_that_they_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", str(write(tmp_path, MIRRORMAKER)), "--keep-running", "eu-to-us", "-o", str(tmp_path / "t.yaml")])
    capsys.readouterr()
    assert main(["export", str(tmp_path / "t.yaml"), "--as", "mm2"]) == 0
    told = capsys.readouterr()
    assert "us->eu.topics = orders, payments" in told.out.replace(",payments", ", payments")
    assert "catalog" not in told.out
    assert "external flow mirrormaker2-eu-to-us: another tool makes it; it stays where it is configured" in told.err
