"""`topology verify` into a folder that holds an earlier proof, and whose records `--explain` looks at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from watershed.cli import explain_chunk, verify
from watershed.cli.main import main
from watershed.clusters.settings import ConnectionSettings
from watershed.spark.judging.record_ownership import TargetWriters
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))


def test_an_earlier_verdict_is_not_taken_for_that_of_a_proof_that_did_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = json.dumps({"verdict": "different", "exit_code": 1})
    (tmp_path / "summary.json").write_text(earlier)

    def dies(_command: list[str], out: Path) -> int:
        (out / "spark.log").write_text("ModuleNotFoundError\n")
        return 1  # as Python ends when a module is missing

    monkeypatch.setattr(verify, "_run", dies)
    assert main(["verify", "shop.yaml", "-o", str(tmp_path)]) == 2
    assert "left no verdict" in capsys.readouterr().err
    assert (tmp_path / "summary.json").read_text() == earlier


def test_explain_looks_at_the_records_that_the_proof_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_chunk, "read_producers_to_skip", lambda *_: (7,))
    monkeypatch.setattr(explain_chunk, "read_target_writers", lambda *_: TargetWriters((8,), (7, 8)))
    settings = ConnectionSettings("a", ("127.0.0.1:1",))
    assert explain_chunk._whose(FLOW, settings, settings, "id") == ((7,), ())
    assert explain_chunk._whose(replace(FLOW, merge=True), settings, settings, "id") == ((7,), (8,))
