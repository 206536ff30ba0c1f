"""Steps of a proof that need no cluster: the level, and the session that is started on demand."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.errors import Unreachable
from watershed.spark import proof_run, verify
from watershed.spark.proof_request import ProofRequest
from watershed.topology import compile_path

TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: levels, owner: test}
clusters:
  onprem: {bootstrap: ["127.0.0.1:1"], security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:2"], security: {protocol: PLAINTEXT}}
flows:
  - source: onprem
    target: cloud
    topics: {include: ["orders"]}
    workers: {engine: process}
    sync: {groups: {mode: continuous, include: ["app"]}}
"""


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    return path


def test_the_level_follows_from_what_flows_carry_and_what_is_asked(topology: Path) -> None:
    flows = compile_path(topology).flows
    assert ProofRequest().choose_level(flows) == "L3"
    assert ProofRequest(groups=("app",)).choose_level(()) == "L3"
    assert ProofRequest().choose_level(()) == "L2"
    assert ProofRequest(foreign=True).choose_level(flows) == "L2"
    assert ProofRequest(level="L1").choose_level(flows) == "L1"


def test_a_proof_that_fails_names_the_level_that_it_was_made_at(
    topology: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **__: Any) -> dict[str, Any]:
        raise Unreachable.at("cloud", ("127.0.0.1:2",), "Connection refused")

    monkeypatch.setattr(verify, "require_java", lambda: None)
    monkeypatch.setattr(verify, "prove_flows", unreachable)
    assert verify.main(["--topology", str(topology), "--out", str(tmp_path / "out")]) == 2
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["level"] == "L3"


def test_a_session_that_read_nothing_is_not_started_to_name_it() -> None:
    started: list[int] = []

    def start() -> Any:
        started.append(1)
        return SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"), version="4.3.0")

    with ExitStack() as stack:
        session = proof_run._SessionOnDemand(start, stack, "orders", print)
        assert (session.describe_engine(), started) == ({}, [])
        session()
        assert session.describe_engine() == {"engine": "spark local[2]", "spark_version": "4.3.0"}
        assert started == [1]
