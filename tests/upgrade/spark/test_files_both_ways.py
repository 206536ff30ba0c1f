"""Files that one version writes and the other reads: plans, baselines, inventories, capability records, evidence of
proofs that another proof builds on, archives and the maps of their restores; and the offset map in the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.replicator.real import producer, put, settings_of, wait_copied, wait_decided
from tests.upgrade.brokers.two_version_fleet import TwoVersions, Version
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.lab.previous_version import InstalledRelease
from watershed.topology import compile_path

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.slow]

PARTITIONS = 3
TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    workers: {{engine: process, discovery: 1s, placement: external}}
"""


@pytest.mark.parametrize(("writer", "reader"), [("older", "newer"), ("newer", "older")])
def test_files_of_one_version_are_read_by_the_other(
    previous: InstalledRelease, kafka_pair: Lab, topic_name: str, tmp_path: Path, writer: Version, reader: Version
) -> None:
    settings, file, name = settings_of(kafka_pair), tmp_path / "t.yaml", topic_name
    address = {alias: each.bootstrap[0] for alias, each in settings.items()}
    file.write_text(TOPOLOGY.format(name=name, **address), encoding="utf-8")
    create_lab_topics(address["onprem"], [name], PARTITIONS)
    into = producer(settings["onprem"])
    put(into, name, 4_000)
    assert into.flush(60) == 0
    plan = compile_path(file)
    both = TwoVersions(previous, file)
    path, flow = str(file), plan.flows[0].id
    try:
        both.run(writer, "apply", path, "--yes")
        both.start(writer, "worker", path, "--target", "cloud")
        wait_copied(settings, plan, name, PARTITIONS)
        wait_decided(settings["cloud"], name)

        assert both.run(writer, "compile", path) == both.run(reader, "compile", path)
        check_lint_inputs(both, path, writer, reader)
        where = ["offsets", "map", path, "--flow", flow, "--topic", name, "--partition", "1", "--format", "json"]
        assert both.run(writer, *where) == both.run(reader, *where)
        check_proofs(both, path, flow, writer, reader)
        check_archives(both, path, name, writer, reader)
    finally:
        both.end()


def check_lint_inputs(both: TwoVersions, path: str, writer: Version, reader: Version) -> None:
    (both.folder / "baseline.json").write_text(both.run(writer, "lint", "--format", "json", path))
    both.run(writer, "scan", path, "-o", "inventory.json", "--sample", "0s")
    both.run(writer, "probe", path, "--cluster", "cloud", "-o", "cloud.json")
    inputs = ["--inventory", "inventory.json", "--capabilities", "cloud.json"]
    told = json.loads(both.run(reader, "lint", "--format", "json", "--baseline", "baseline.json", *inputs, path))
    assert "an inventory" not in json.dumps(told.get("skipped", "")), "it was read"
    fingerprints = {each["fingerprint"] for each in json.loads((both.folder / "baseline.json").read_text())["findings"]}
    assert not fingerprints & {each["fingerprint"] for each in told["findings"]}, "what the baseline knows is left out"


def check_proofs(both: TwoVersions, path: str, flow: str, writer: Version, reader: Version) -> None:
    """The reader checks the evidence, and builds a proof on it."""
    both.run(writer, "verify", path, "--flow", flow, "-o", "first")
    both.run(reader, "verify", "--check", "first")
    both.run(reader, "verify", path, "--flow", flow, "--since", "first/summary.json", "-o", "second")
    both.run(writer, "verify", "--check", "second")
    second = json.loads((both.folder / "second" / "summary.json").read_text())
    assert second["verdict"] == "proven"
    assert second["proven_earlier"] == 4_000, "it builds on what the writer has proven"


def check_archives(both: TwoVersions, path: str, name: str, writer: Version, reader: Version) -> None:
    both.run(writer, "archive", path, "--cluster", "onprem", "--topics", name, "--to", "kept")
    both.run(reader, "archive", "--check", "kept")
    renamed = f"{name}={name}.restored"
    words = ["--cluster", "cloud", "--rename", renamed, "--map", "map.json"]
    both.run(reader, "restore", path, *words, "--from", "kept", "--offsets", "mapped")
    both.run(writer, "archive", path, "--compare", "kept", *words)
    both.run(reader, "archive", path, "--cluster", "onprem", "--topics", name, "--to", "kept")  # goes on with it
