"""`topology offsets sync`: which groups it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.cli.main import main
from watershed.replicator.sync.group_sync import GroupSyncer

FILE = """apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: orders}
clusters:
  a: {bootstrap: ["127.0.0.1:1"]}
  b: {bootstrap: ["127.0.0.1:2"]}
flows:
  - {source: a, target: b, topics: {include: [orders]}%s}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was looked for; no group is there."""
    looked: list[object] = []

    def look(watch: GroupSyncer, only: object = None) -> list[object]:
        looked.append((watch.named, only))
        return []

    monkeypatch.setattr(GroupSyncer, "observe", look)
    return looked


@pytest.mark.parametrize(
    ("sync", "arguments", "code", "looked"),
    [
        ("", [], 2, []),
        ("", ["--group", "web"], 2, [(frozenset({"web"}), ("web",))]),  # which is not there
        (", sync: {groups: {mode: once}}", [], 0, [(frozenset(), None)]),
    ],
)
def test_groups_of_a_flow_that_carries_none_have_to_be_named(
    tmp_path: Path, asked: list[object], capsys: pytest.CaptureFixture[str],
    sync: str, arguments: list[str], code: int, looked: list[object],
) -> None:  # fmt: skip
    path = tmp_path / "orders.yaml"
    path.write_text(FILE % sync)
    assert main(["offsets", "sync", str(path), "--flow", "a-to-b", *arguments]) == code
    assert asked == looked
    if not looked:
        assert "`sync.groups.mode: never`" in capsys.readouterr().err
