"""The real proof by the real application: that of the history stays and proves the tail, or is replaced when killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.replicator.real import applied, put, settings_of, wait_copied, workers
from watershed.cli.proof_process import ProofProcess
from watershed.cutover.actions import RequestProof
from watershed.lab.preload import create_lab_topics
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

PARTITIONS = 4
TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - suffix: {suffix}
    source: onprem
    target: cloud
    topics: {{include: [{topic}]}}
    naming: {{policy: identity}}
    workers: {{engine: process}}
"""


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.soak
def test_history_tail_and_a_tail_without_it(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    settings = settings_of(kafka_pair)
    addresses = {alias: each.bootstrap[0] for alias, each in settings.items()}
    suffix = "".join(c for c in topic_name.lower() if c.isalnum())[-20:]
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY.format(name=suffix, suffix=suffix, topic=topic_name, **addresses))
    create_lab_topics(kafka_pair.clusters["onprem"].bootstrap, [topic_name], PARTITIONS)
    producer = Producer(settings["onprem"].librdkafka({"linger.ms": 5}))
    plan = applied(settings, compile_path(path))
    flow = plan.flows[0].id
    history = RequestProof(flow, (topic_name,), "L1", False, None)

    def proven(folder: Path) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        assert (document["verdict"], document["unproven"], document["pending"]) == ("proven", 0, 0)
        return document

    def written(count: int, start: int) -> None:
        put(producer, topic_name, count, start)
        producer.flush(60)
        wait_copied(settings, plan, topic_name, PARTITIONS)

    with workers(plan, "cloud", tmp_path) as start, ProofProcess(path, plan.hash) as proofs:
        start()
        written(2_000, 0)
        assert proofs.prove(tmp_path / "history", history).verdict == "proven"
        assert proven(tmp_path / "history")["proven"] == 2_000
        written(500, 2_000)
        tail = RequestProof(flow, (topic_name,), "L1", True, str(tmp_path / "history" / "summary.json"))
        assert proofs.prove(tmp_path / "tail", tail).verdict == "proven"
        found = proven(tmp_path / "tail")
        assert (found["proven"], found["proven_earlier"], found["mode"]) == (500, 2_000, "final")
        assert proofs._process is not None
        assert f"(pid {proofs._process.pid})" in (tmp_path / "tail" / "verify.log").read_text()

        os.killpg(proofs._process.pid, signal.SIGKILL)
        written(100, 2_500)
        assert proofs.prove(tmp_path / "again", tail).verdict == "proven"
        again = proven(tmp_path / "again")
        assert (again["proven"], again["proven_earlier"]) == (600, 2_000)
        assert "ordered" not in (tmp_path / "again" / "verify.log").read_text()
