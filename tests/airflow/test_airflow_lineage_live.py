"""Lineage from a real Airflow with the file transport: a flow is started, proven, and proven again after a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.airflow.live import SECONDS, SETTINGS, kill_program, until
from tests.airflow.openlineage_schema import check_event, read_events
from watershed.lab import airflow
from watershed.lab.airflow_client import AirflowClient
from watershed.lab.preload import create_lab_topics, preload_topic

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [getattr(pytest.mark, mark) for mark in ("kafka", "airflow", "spark", "slow", "soak")]
NAME, TOPIC, COPY, RECORDS = "lineage", "lineage.orders", "onprem.lineage.orders", 500
CANARY = "canary-of-a-secret"
FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: lineage, owner: tests}}
clusters:
  onprem:
    bootstrap: ["{onprem}"]
    security: {{protocol: PLAINTEXT}}
    schema_registry: {{url: "http://127.0.0.1:9", credentials: {{env: WATERSHED_SECRET_CANARY}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    topics: {{include: [lineage.orders]}}
    naming: {{policy: prefix}}
    workers: {{engine: process, discovery: 1s}}
"""


@pytest.fixture(scope="module")
def client(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AirflowClient, Path]]:
    home = tmp_path_factory.mktemp("lineage")
    (home / "topologies").mkdir()
    here, there = (kafka_pair.cluster(name).bootstrap for name in ("onprem", "cloud"))
    (home / "topologies" / f"{NAME}.yaml").write_text(FILE.format(onprem=here, cloud=there))
    create_lab_topics(here, [TOPIC], 2)
    preload_topic(home / "apps", "orders", "onprem", here, TOPIC, RECORDS)
    events = home / "events.jsonl"
    lineage = {
        "AIRFLOW__OPENLINEAGE__TRANSPORT": f'{{"type": "file", "log_file_path": "{events}", "append": true}}',
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "120",  # seconds; on a busy machine
        "WATERSHED_SECRET_CANARY": CANARY,
    }
    try:
        running = airflow.start_airflow(
            home / "airflow",
            topologies=home / "topologies",
            state=home / "state",
            settings=SETTINGS | lineage,
            timeout=600,
        )
        client = AirflowClient(running.url)
        client.wait_for_dag(f"verify__{NAME}", 600)
        yield client, events
    finally:
        for record in (home / "state").rglob("process.json"):
            kill_program(record.parent)
        airflow.stop_airflow(home / "airflow", grace=5.0)


def finish(client: AirflowClient, kind: str, run: str, conf: dict[str, Any]) -> str:
    """Runs the DAG; its state."""
    dag = f"{kind}__{NAME}"
    client.unpause(dag)
    client.trigger(dag, run, conf)
    return until(
        lambda: state if (state := client.run_state(dag, run)) in ("success", "failed") else None, dag, SECONDS
    )


def find_event(events: Path, job: str, kind: str) -> dict[str, Any]:
    """The newest event of a job. Some are written after the run has its state."""

    def find() -> dict[str, Any] | None:
        found = [each for each in read_events(events.read_text()) if each["job"]["name"] == job]
        return next((each for each in reversed(found) if each["eventType"] == kind), None)

    return until(find, f"{kind} of {job}", 120)


def test_flows_and_proofs_are_told(client: tuple[AirflowClient, Path], kafka_pair: Lab) -> None:
    web, events = client
    here, there = (f"kafka://{kafka_pair.cluster(name).bootstrap}" for name in ("onprem", "cloud"))
    assert finish(web, "replicate", "first", {"approval": "auto"}) == "success"
    copied = find_event(events, f"replicate__{NAME}.wait_running", "COMPLETE")
    assert [(each["namespace"], each["name"]) for each in copied["inputs"]] == [(here, TOPIC)]
    [written] = copied["outputs"]
    assert (written["namespace"], written["name"]) == (there, COPY)
    [origin] = written["facets"]["lineage"]["inputs"]
    assert (origin["namespace"], origin["name"]) == (here, TOPIC)

    assert finish(web, "verify", "proven", {"wait": 120}) == "success"
    told = judge(find_event(events, f"verify__{NAME}.prove", "COMPLETE"), there)
    assert (told["success"], told["params"]["verdict"], told["params"]["proven"]) == (True, "proven", RECORDS)

    producer = Producer({"bootstrap.servers": kafka_pair.cluster("cloud").bootstrap})
    producer.produce(COPY, b"of nobody", partition=0)
    assert producer.flush(60) == 0
    assert finish(web, "verify", "different", {"incremental": False}) == "failed"
    told = judge(find_event(events, f"verify__{NAME}.prove", "FAIL"), there)
    assert (told["success"], told["params"]["verdict"], told["params"]["foreign"]) == (False, "different", 1)

    text = events.read_text()
    assert CANARY not in text
    names = {name for event in read_events(text) for name in check_event(event)}
    assert {"lineage", "dataQualityAssertions", "dataQualityMetrics"} <= names


def judge(event: dict[str, Any], there: str) -> dict[str, Any]:
    """The assertion about the copy."""
    assert event["outputs"] == []
    [copy] = [each for each in event["inputs"] if each["namespace"] == there]
    [told] = copy["inputFacets"]["dataQualityAssertions"]["assertions"]
    return dict(told)
