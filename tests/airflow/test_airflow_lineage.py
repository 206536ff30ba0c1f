"""Lineage: the events of flows and proofs, held against OpenLineage's schema, with no secret in them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_new_uuid

from tests.airflow.openlineage_schema import check_event
from watershed.plugins.lineage_datasets import MOST_EVENT_TOPICS, bound_topics, build_copy_lineage, build_proof_lineage
from watershed.plugins.operators.proof import ProofOperator
from watershed.plugins.operators.replication import FlowsRunningOperator
from watershed.plugins.state_folder import freeze_plan
from watershed.topology import compile_path
from watershed.topology.plan import Plan

pytestmark = pytest.mark.airflow
CANARY = "canary-of-a-secret"
TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: lineage, owner: tests}
clusters:
  plant: {bootstrap: ["plant.example.internal:9092", "plant-2.example.internal:9093"]}
  office: {bootstrap: ["office.example.internal:9092"]}
  cloud: {bootstrap: ["cloud.example.internal:9092"]}
flows:
  - {source: plant, target: office, topics: {include: [{glob: "orders.*"}]}}
  - source: office
    target: cloud
    topics: {include: [people]}
    naming: {policy: prefix}
    transform:
      format: {value: json}
      schema: {value: "country string, email string, card string, notes string"}
      where: "value.country <> 'XX-literal'"
      set:
        value.email: "sha2(concat(value.email, key, secret('PEPPER')), 256)"
        value.card: "null"
      drop: [value.notes]
      secrets: {PEPPER: {env: WATERSHED_SECRET_PEPPER}}
"""
PLANT, OFFICE, CLOUD = (f"kafka://{name}.example.internal:9092" for name in ("plant", "office", "cloud"))
COUNTS = {"proven": 7, "missing": 2, "altered": 1, "pending": 0}
LINE = {"flow": "plant-to-office", "topic": "orders.new", "target_topic": "orders.new", "records": 10, "bytes": 900}
SUMMARY = {
    "verdict": "different",
    "level": "L2",
    "mode": "rolling",
    "proof_root": "sha256:1",
    "plan_hash": "sha256:2",
    "run_id": "r1",
    "topics": [LINE | {"unproven": 3} | COUNTS],
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATERSHED_SECRET_PEPPER", CANARY)
    path = tmp_path / "lineage.yaml"
    path.write_text(TOPOLOGY)
    return path


@pytest.fixture
def plan(file: Path) -> Plan:
    return compile_path(file)


def send(lineage: Any) -> dict[str, Any]:
    """The event as a transport sends it, held against the schema."""
    run = Run(runId=str(generate_new_uuid()))
    event = RunEvent(
        eventTime="2026-11-28T05:00:00+00:00", eventType=RunState.COMPLETE, run=run, job=Job("tests", "job"),
        inputs=lineage.inputs, outputs=lineage.outputs,
    )  # fmt: skip
    text = Serde.to_json(event)
    assert CANARY not in text
    assert "PEPPER" not in text
    assert "XX-literal" not in text
    sent: dict[str, Any] = json.loads(text)
    check_event(sent)
    return sent


def by_name(datasets: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(each["namespace"], each["name"]): each for each in datasets}
    assert len(found) == len(datasets)
    return found


def test_each_copy_names_what_it_is_made_of(plan: Plan) -> None:
    sent = send(
        build_copy_lineage(plan, {"plant-to-office": ["orders.new", "orders.paid"], "office-to-cloud": ["people"]})
    )
    assert set(by_name(sent["inputs"])) == {(PLANT, "orders.new"), (PLANT, "orders.paid"), (OFFICE, "people")}
    outputs = by_name(sent["outputs"])
    assert {
        at: [(each["namespace"], each["name"]) for each in dataset["facets"]["lineage"]["inputs"]]
        for at, dataset in outputs.items()
    } == {
        (OFFICE, "orders.new"): [(PLANT, "orders.new")],
        (OFFICE, "orders.paid"): [(PLANT, "orders.paid")],
        (CLOUD, "office.people"): [(OFFICE, "people")],
    }
    assert "columnLineage" not in outputs[OFFICE, "orders.new"]["facets"]
    [other] = by_name(sent["inputs"])[PLANT, "orders.new"]["facets"]["symlinks"]["identifiers"]
    assert other == {"namespace": "kafka://plant-2.example.internal:9093", "name": "orders.new", "type": "TOPIC"}


def test_fields_of_a_flow_that_changes_records(plan: Plan) -> None:
    sent = send(build_copy_lineage(plan, {"office-to-cloud": ["people"]}))
    [written], [read] = sent["outputs"], sent["inputs"]
    lineage = written["facets"]["columnLineage"]
    assert {
        name: [(each["field"], each["transformations"][0]["subtype"]) for each in field["inputFields"]]
        for name, field in lineage["fields"].items()
    } == {
        "value.email": [("value.email", "TRANSFORMATION"), ("key", "TRANSFORMATION")],
        "value.card": [],
        "value.country": [("value.country", "IDENTITY")],
        "key": [("key", "IDENTITY")],
    }
    [chosen] = lineage["dataset"]
    assert (chosen["field"], chosen["transformations"][0]["subtype"]) == ("value.country", "FILTER")

    def list_fields(dataset: dict[str, Any]) -> list[str]:
        [side] = dataset["facets"]["schema"]["fields"]
        return [field["name"] for field in side["fields"]]

    assert list_fields(read) == ["country", "email", "card", "notes"]
    assert list_fields(written) == ["country", "email", "card"]


def test_a_proof_is_an_assertion_about_the_copy(plan: Plan) -> None:
    sent = send(build_proof_lineage(plan, SUMMARY))
    assert sent["outputs"] == []
    inputs = by_name(sent["inputs"])
    [told] = inputs[OFFICE, "orders.new"]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (told["success"], told["expected"], told["actual"]) == (False, "0 unproven", "3 unproven")
    assert told["params"] == {name: SUMMARY[name] for name in SUMMARY if name != "topics"} | COUNTS
    assert inputs[PLANT, "orders.new"]["inputFacets"]["dataQualityMetrics"]["rowCount"] == 10


def test_what_is_proven_holds_only_with_the_whole_verdict(plan: Plan) -> None:
    lines = [LINE | {"unproven": 0}]
    for verdict, holds in (("proven", True), ("repeated", True), ("incomplete", False)):
        sent = send(build_proof_lineage(plan, SUMMARY | {"verdict": verdict, "topics": lines}))
        [told] = by_name(sent["inputs"])[OFFICE, "orders.new"]["inputFacets"]["dataQualityAssertions"]["assertions"]
        assert told["success"] is holds


def test_an_event_stays_small() -> None:
    topics = {"b": [f"t{n}" for n in range(MOST_EVENT_TOPICS)], "a": {"x", "y"}}
    kept, left_out = bound_topics(topics)
    assert (kept["a"], len(kept["b"]), left_out) == (["x", "y"], MOST_EVENT_TOPICS - 2, 2)


def test_flows_that_run_are_told(file: Path, state: Path) -> None:
    task = FlowsRunningOperator(task_id="w", plan=freeze_plan(file).hash, fleets=[])
    assert send(task.get_openlineage_facets_on_complete(None))["outputs"] == []
    task.check({}, {"seen": "2 of 2", "problem": "", "topics": {"plant-to-office": ["orders.new"]}, "left_out": 0})
    assert set(by_name(send(task.get_openlineage_facets_on_complete(None))["outputs"])) == {(OFFICE, "orders.new")}
    task.check({}, {"seen": "2 of 2", "problem": ""})  # of a triggerer before this version
    assert send(task.get_openlineage_facets_on_complete(None))["outputs"] == []


def test_a_proof_that_found_a_difference_is_told(file: Path, state: Path, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task = ProofOperator(task_id="prove", plan=freeze_plan(file).hash, arguments=[])
    assert task.get_openlineage_facets_on_complete(None) is None
    folder = tmp_path / "attempt" / "1"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text('{"pid": 1, "started": 1, "module": "watershed.spark.verify"}')
    (folder / "exit").write_text("1")
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    ti = SimpleNamespace(xcom_push=lambda **_: None)
    with pytest.raises(AirflowFailException, match="different"):
        task.collect({"ti": ti}, {"folder": str(folder)})
    told = task.get_openlineage_facets_on_complete(None)
    assert told is not None
    assert len(send(told)["inputs"]) == 2
    (folder / "summary.json").write_text('{"topics": [{}]}')
    with pytest.raises(ValueError, match="is not the summary of a proof of lineage"):
        task.get_openlineage_facets_on_complete(None)


def test_airflow_finds_the_hooks(file: Path, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the provider's own extractor, as it does it in a task."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    caplog.set_level(logging.WARNING)
    tasks = (
        FlowsRunningOperator(task_id="w", plan=freeze_plan(file).hash, fleets=[]),
        ProofOperator(task_id="p", plan=freeze_plan(file).hash, arguments=[]),
    )
    for task in tasks:
        found = ExtractorManager().get_extractor_class(task)
        assert found is not None
        assert found(task).extract() is not None
    assert not caplog.records


def test_an_event_that_lacks_something_is_found(plan: Plan) -> None:
    """The schema is made of classes, and has to refuse what they would not have written."""
    sent = send(build_copy_lineage(plan, {"plant-to-office": ["orders.new"]}))
    for spoil in (
        lambda event: event["run"].pop("runId"),
        lambda event: event["inputs"][0].pop("namespace"),
        lambda event: event["outputs"][0]["facets"]["lineage"].pop("_producer"),
        lambda event: event["outputs"][0]["facets"]["lineage"]["inputs"][0].update(type="TOPIC"),
    ):
        spoiled = json.loads(json.dumps(sent))
        spoil(spoiled)
        with pytest.raises(jsonschema.ValidationError):
            check_event(spoiled)
