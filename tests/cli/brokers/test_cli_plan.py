"""`topology plan` against real clusters: what is pending before `apply`, nothing after it, and what is found live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = pytest.mark.kafka


def settings(lab: Lab, alias: str) -> ConnectionSettings:
    return ConnectionSettings(alias, (lab.cluster(alias).bootstrap,))


def file(lab: Lab, folder: Path, topic: str, pinned: str = "") -> Path:
    clusters = "\n".join(
        f'  {each.alias}: {{bootstrap: ["{each.bootstrap}"], cluster_id: {each.cluster_id + pinned}}}'
        for each in lab.clusters.values()
    )
    path = folder / "t.yaml"
    path.write_text(
        "apiVersion: topology/v1alpha1\nkind: Topology\n"
        f"metadata: {{name: {topic}}}\nclusters:\n{clusters}\n"
        f"flows:\n  - {{source: onprem, target: cloud, suffix: {topic}, topics: {{include: [{topic}]}}}}\n"
    )
    return path


def plan(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    code = main(["plan", str(path), "--format", "json", *more])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def test_pending_until_applied(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(settings(kafka_pair, "onprem")) as admin:
        admin.create_topic(topic_name, 3, 1, {"retention.ms": "3600000"})
    path = file(kafka_pair, tmp_path, topic_name)
    code, before = plan(capsys, path, "--fail-on-changes")
    wanted = {each["field"]: each["wanted"] for each in before["changes"] if each["kind"] == "topic"}
    assert (code, wanted) == (3, {"partitions": "3", "replication.factor": "1", "retention.ms": "3600000"})
    assert main(["apply", str(path), "--yes"]) == 0
    capsys.readouterr()
    code, after = plan(capsys, path, "--fail-on-changes")
    assert (code, after["changes"]) == (0, [])
    assert after["plan"] == before["plan"]
    [flow] = after["flows"]
    assert (flow["guarantee"], flow["guarantee_executed"], flow["missing"]) == ("exactly_once: sequence", True, [])
    main(["plan", str(path)])
    assert f"exactly_once: sequence: 1 flow (onprem-to-cloud-{topic_name})" in capsys.readouterr().out
    main(["status", str(path)])
    assert "  guarantee: exactly_once: sequence\n" in capsys.readouterr().out


def test_another_cluster_than_the_pinned_one_is_a_finding(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = plan(capsys, file(kafka_pair, tmp_path, topic_name, pinned="x"))
    assert code == 1
    assert "CLU105" in {each["rule"] for each in document["findings"]}


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: t}\nclusters:\n"
        '  a: {bootstrap: ["127.0.0.1:1"]}\n  b: {bootstrap: ["127.0.0.1:2"]}\n'
        "flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n"
    )
    assert main(["plan", str(path)]) == 2
    assert "127.0.0.1:1" in capsys.readouterr().err
