"""Heartbeats are written to MirrorMaker's topic, and to no application's that has its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.sync import heartbeats
from watershed.replicator.sync.heartbeats import HeartbeatKind
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import TopicSelection

FLOW = PlanFlow("f", "a", "b", TopicSelection(()), compatibility=MirrorCompatibility("a", "b", heartbeats=True))
SIDES = SyncClusters(ConnectionSettings("a", ("127.0.0.1:1",)), ConnectionSettings("b", ("127.0.0.1:2",)), (FLOW,))


@pytest.mark.parametrize(
    ("policy", "written", "state"),
    [("compact", 1, "equal"), ("compact,delete", 1, "equal"), ("delete", 0, "refused"), ("", 0, "refused")],
)
def test_an_applications_topic_gets_no_heartbeats(
    monkeypatch: pytest.MonkeyPatch, policy: str, written: int, state: str
) -> None:
    there: list[tuple[str, str]] = []

    class Writer:
        def __init__(self, settings: ConnectionSettings) -> None:
            self.alias = settings.alias

        def write(self, topic: str, records: Any) -> None:
            there.extend((self.alias, topic) for _ in records)

        def close(self) -> None:
            pass

    class Source:
        def __init__(self, _settings: ConnectionSettings) -> None:
            pass

        def __enter__(self) -> Source:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def topics(self) -> dict[str, Any]:
            return {"heartbeats": SimpleNamespace(partitions=1)}

        def effective_configs(self, names: list[str]) -> dict[str, dict[str, str]]:
            return {name: {"cleanup.policy": policy} if policy else {} for name in names}

    tail = SimpleNamespace(read_stored=lambda _start: [], ends=0, close=lambda: None)
    monkeypatch.setattr(heartbeats, "MirrorTopicWriter", Writer)
    monkeypatch.setattr(heartbeats, "Admin", Source)
    monkeypatch.setattr(heartbeats, "LogTail", lambda *_: tail)
    [report] = HeartbeatKind().keep(FLOW, SIDES)
    assert there == [("a", "heartbeats")] * written
    assert report.state == state
    if state == "refused":
        assert report.name == "heartbeats"
        assert "compatibility.mirrormaker.heartbeats to false" in report.why
