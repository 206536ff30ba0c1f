"""`topology fleet status` for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.cli.main import main
from watershed.replicator.worker import fleet_status
from watershed.replicator.worker.fleet_status import FleetRow

FILE = Path(__file__).parents[2] / "topology" / "examples" / "active_standby.yaml"


def test_workers_are_named_as_a_move_takes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = FleetRow("shop", "cloud", "running", "process", "embedded", 2, ("b1-17", "b2-4"), "b1:3")
    monkeypatch.setattr(fleet_status, "read_fleet_rows", lambda *_: [row])
    assert main(["fleet", "status", str(FILE)]) == 0
    assert "\n  workers: b1-17, b2-4\n" in capsys.readouterr().out
