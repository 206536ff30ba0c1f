"""Which worker serves which flows, as the command line tells it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from watershed.cli.main import main

TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: tests}
clusters:
  a: {bootstrap: ["127.0.0.1:1"], security: {protocol: PLAINTEXT}}
  b: {bootstrap: ["127.0.0.1:2"], security: {protocol: PLAINTEXT}}
flows:
  - {source: a, target: b, topics: {include: [orders]}, transform: {where: "partition < 3"}}
"""
OTHER = """  - {source: a, target: b, suffix: plain, topics: {include: [payments]}}
"""


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a worker that cannot begin; what it says."""

    def run(path: Path, *more: str) -> str:
        assert main(["worker", str(path), "--target", "b", *more]) == 2
        return capsys.readouterr().err

    return run


def test_a_worker_without_spark_says_which_flows_it_does_not_serve(
    tmp_path: Path, refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_no_further(*_arguments: object) -> None:
        raise click.UsageError("no cluster of this test answers, and to find that out takes half a minute")

    monkeypatch.setattr("watershed.cli.worker._tell_missing_rights", go_no_further)
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY, encoding="utf-8")
    assert "all flows into b have `transform`; they are served with --transforms" in refuse(path)
    path.write_text(TOPOLOGY + OTHER, encoding="utf-8")
    assert "note: not served here, but by `topology worker --transforms`: a-to-b\n" in refuse(path)


def test_a_worker_with_spark_needs_a_flow_and_takes_one_process(tmp_path: Path, refuse: Callable[..., str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY, encoding="utf-8")
    assert "--transforms takes one process" in refuse(path, "--transforms", "--processes", "2")
