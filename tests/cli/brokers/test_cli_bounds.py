"""A copy with a start and an end from the command line: planned, applied, copied, complete, and proven to be so."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.real import producer, put, read_all, settings_of, workers
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.product_version import describe_product_version
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = pytest.mark.kafka


def test_a_bounded_copy_is_planned_and_complete(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1, {})
    sending = producer(settings["onprem"])
    put(sending, topic_name, 300)
    sending.flush()
    path = tmp_path / "t.yaml"
    path.write_text(build_file(kafka_pair, topic_name))
    flow = f"onprem-to-cloud-{topic_name}"
    assert main(["plan", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"  {flow} begins at offsets {topic_name} {{0: 100}} and ends at latest" in told
    assert main(["apply", str(path), "--yes"]) == 0
    with workers(compile_path(path), "cloud", tmp_path) as spawn:
        spawn()
        row = wait_complete(path, capsys)
    assert (row["lag_records"], row["lag_ms"], row["end"]) == (0, 0, "latest")
    assert row["versions"] == [describe_product_version()]
    here, there = (read_all(settings[alias], topic_name, 1)[0] for alias in ("onprem", "cloud"))
    assert [record for _, record in there] == [record for _, record in here[100:]]
    assert main(["status", str(path)]) == 0
    told = capsys.readouterr().out
    assert "complete" in told
    assert "ends at latest" in told


def build_file(lab: Lab, topic: str) -> str:
    clusters = "".join(f'  {each.alias}: {{bootstrap: ["{each.bootstrap}"]}}\n' for each in lab.clusters.values())
    return f"""\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {topic}}}
clusters:
{clusters}
flows:
  - source: onprem
    target: cloud
    suffix: {topic}
    topics: {{include: [{topic}]}}
    workers: {{engine: process}}
    delivery: {{start: {{offsets: {{{topic}: {{0: 100}}}}}}, end: latest}}
"""


def wait_complete(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        capsys.readouterr()
        assert main(["status", str(path), "--format", "json"]) == 0
        [row] = json.loads(capsys.readouterr().out)["flows"]
        if row["state"] == "complete" and row["versions"] != ["unknown"]:  # its heartbeat follows the report
            return dict(row)
        assert time.monotonic() < deadline, row
        time.sleep(0.3)
