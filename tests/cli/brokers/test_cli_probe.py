"""`topology probe` against real clusters: what it sees of several releases, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import read_flows
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.replicator import capability_probe
from watershed.replicator.capability_probe import probe_cluster
from watershed.replicator.probe_topic import PROBE_TOPIC_PREFIX, delete_probe_topic, find_left_topics
from watershed.topology.inventory_json import decode_capability_record

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def settings(lab: Lab, alias: str) -> ConnectionSettings:
    return ConnectionSettings(alias, (lab.cluster(alias).bootstrap,))


def write_file(lab: Lab, folder: Path) -> Path:
    addresses = "".join(f'  {each.alias}: {{bootstrap: ["{each.bootstrap}"]}}\n' for each in lab.clusters.values())
    source, target = (*lab.clusters, *lab.clusters)[:2]
    path = folder / "t.yaml"
    path.write_text(
        "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: probed}\n"
        f"clusters:\n{addresses}flows:\n  - {{source: {source}, target: {target}, topics: {{include: [probed]}}}}\n"
    )
    return path


@pytest.fixture(scope="module", params=["2.8.2", "3.9.1"])
def old_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("probed")
    try:
        yield clusters.start_clusters(directory, ["old"], kafka=request.param)
    finally:
        clusters.end_clusters(directory)


def test_old_releases_do_everything_that_a_copy_needs(old_cluster: Lab) -> None:
    found = probe_cluster(settings(old_cluster, "old"))
    assert {name: each.told for name, each in found.tried.items() if not each.works} == {}
    assert (found.brokers, found.answered, found.topic_ids, found.tried["largest_batch"].number) == (
        1,
        1,
        True,
        1_048_588,
    )
    assert find_left_topics(settings(old_cluster, "old")) == []


def test_plan_and_lint_read_the_record(kafka_pair: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, record, scan = write_file(kafka_pair, tmp_path), tmp_path / "cloud.json", tmp_path / "inventory.json"
    assert main(["probe", str(path), "--cluster", "cloud", "-o", str(record)]) == 0
    out = capsys.readouterr().out
    assert "sequence_check       works          a batch that was sent twice is stored once" in out
    assert "cloud: Kafka 4." in out
    assert find_left_topics(settings(kafka_pair, "cloud")) == []
    assert main(["scan", str(path), "-o", str(scan), "--sample", "0s"]) == 0
    asked = ["lint", str(path), "--inventory", str(scan), "--format", "json", "--capabilities", str(record)]

    def find_rules(arguments: list[str]) -> set[str]:
        capsys.readouterr()
        main(arguments)
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        found = document["findings"] if "findings" in document else document["files"][0]["findings"]
        return {each["rule"] for each in found}

    assert "CLU113" not in find_rules(asked)
    document = json.loads(record.read_text())
    document["capabilities"]["tried"]["sequence_check"] |= {"works": False, "told": "a batch is stored twice"}
    record.write_text(json.dumps(document))
    assert "CLU113" in find_rules(asked)
    plan = ["plan", str(path), "--format", "json", "--capabilities", str(record)]
    assert "CLU113" in find_rules(plan)
    main(["plan", str(path), "--capabilities", str(record)])
    out = capsys.readouterr().out
    assert "a batch is stored twice" in out
    assert "! refused, see CLU113: 1 flow (onprem-to-cloud)" in out
    capsys.readouterr()
    assert main(["apply", str(path), "--yes", "--capabilities", str(record)]) == 2
    assert "a batch is stored twice" in capsys.readouterr().err
    applied = read_flows(settings(kafka_pair, "cloud")).values()  # others may use these clusters, too
    assert "probed" not in {each.topology for each in applied}
    document["capabilities"]["cluster_id"] = "another"
    record.write_text(json.dumps(document))
    assert main(plan) == 2
    assert "cluster another was probed as cloud" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interrupt_leaves_nothing_behind(kafka_pair: Lab, tmp_path: Path, number: signal.Signals) -> None:
    path, record = write_file(kafka_pair, tmp_path), tmp_path / "record.json"
    command = [sys.executable, "-m", "watershed.cli.main", "probe", str(path), "--cluster", "onprem", "-o", str(record)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("idempotence")
        assert len(find_left_topics(settings(kafka_pair, "onprem"))) == 1
        process.send_signal(number)
        process.send_signal(number)  # the impatient press twice
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    # CPython ends by the signal itself where the interrupt came while a generated class was made (bpo-1054041).
    assert process.returncode in (130, -signal.SIGINT)
    assert "topology: interrupted" in errors
    assert find_left_topics(settings(kafka_pair, "onprem")) == []
    assert not record.exists()


def test_an_error_leaves_nothing_behind(kafka_pair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(capability_probe, "try_capabilities", fail)
    with pytest.raises(ZeroDivisionError):
        probe_cluster(settings(kafka_pair, "cloud"))
    assert find_left_topics(settings(kafka_pair, "cloud")) == []


def test_a_topic_whose_creation_was_interrupted_is_deleted(kafka_pair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Admin.create_topic

    def interrupt(*arguments: Any, **more: Any) -> None:
        create(*arguments, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(Admin, "create_topic", interrupt)
    with pytest.raises(KeyboardInterrupt):
        probe_cluster(settings(kafka_pair, "cloud"))
    assert find_left_topics(settings(kafka_pair, "cloud")) == []


def test_a_topic_of_a_killed_probe_is_named(
    kafka_pair: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = f"{PROBE_TOPIC_PREFIX}killed"
    with Admin(settings(kafka_pair, "cloud")) as admin:
        admin.create_topic(left, 1)
        path = write_file(kafka_pair, tmp_path)
        assert main(["probe", str(path), "--cluster", "cloud", "--format", "json"]) == 0
        told = capsys.readouterr()
        assert f"topic {left} at cloud is of a probe that was killed" in told.err
        assert decode_capability_record(told.out).alias == "cloud"
        delete_probe_topic(settings(kafka_pair, "cloud"), admin, left)
    assert main(["probe", str(path), "--cluster", "nowhere"]) == 2
    assert "has no cluster `nowhere`; it has cloud, onprem" in capsys.readouterr().err
