"""What the page Replication knows of a cluster: what its thread keeps, and for how long it runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import page_world
from tests.airflow.page_world import ADDRESS, NOW
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, STATUS_TOPIC
from watershed.clusters.errors import Unreachable
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.plugins.page.cluster_snapshots import ClusterReader, ClusterReaders, ControlTopicsView
from watershed.topology.plan import PlanCluster

pytestmark = pytest.mark.airflow


class Script:
    """A `Following` that does what a test says: records, or an error."""

    def __init__(self) -> None:
        self.records: list[FollowedRecord] = []
        self.error: Exception | None = None
        self.asked = 0
        self.open = 0
        self.complete = True
        self.changed = threading.Event()

    def __call__(self, _settings: Any) -> Script:
        return self

    def __enter__(self) -> Script:
        self.open += 1
        return self

    def __exit__(self, *_error: Any) -> None:
        self.open -= 1

    def ask(self, _timeout: float) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error

    def read(self, _wait: float) -> list[FollowedRecord]:
        self.changed.wait(0.01)
        found, self.records = self.records, []
        return found


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    for name in ("CLUSTER_RETRY_S", "SNAPSHOT_PAUSE_S", "_SOON_S"):
        monkeypatch.setattr(f"watershed.plugins.page.cluster_snapshots.{name}", 0.01)
    return Script()


@pytest.fixture
def reader(script: Script) -> Iterator[ClusterReader]:
    found = ClusterReader(PlanCluster("hub", (ADDRESS,)), follow=script)  # type: ignore[arg-type]
    yield found
    found.stop()
    found.join(10)


def until(what: Any, timeout: float = 180) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)
    return found


def _reported(state: str) -> FollowedRecord:
    told = PartitionStatus("f", "t", "t", 0, state, at_ms=1)
    return FollowedRecord(STATUS_TOPIC, 0, told.key, json.dumps(told.to_json()).encode())


def test_a_reader_keeps_what_it_saw_while_its_cluster_is_silent(script: Script, reader: ClusterReader) -> None:
    script.records = [_reported("running")]
    until(lambda: reader.look().reports)
    script.error = Unreachable("gone", alias="hub")
    lost = until(lambda: found if (found := reader.look()).problem else None)
    assert lost.problem == "gone"
    assert lost.reports["f"]["f|t|0"].state == "running"
    script.error, script.records = None, [_reported("paused")]
    found = until(lambda: each if (each := reader.look()).problem is None else None)
    assert found.reports["f"]["f|t|0"].state == "paused"


def test_half_a_reading_is_not_told(script: Script, reader: ClusterReader) -> None:
    script.complete, script.records = False, [_reported("running")]
    found = until(lambda: each if (each := reader.look()).answered_at else None)
    assert (found.complete, dict(found.reports)) == (False, {})
    script.complete = True
    assert until(lambda: reader.look().reports)


def test_nobody_looks_and_the_thread_ends(
    script: Script, reader: ClusterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: reader.look().answered_at)
    monkeypatch.setattr("watershed.plugins.page.cluster_snapshots._IDLE_S", 0.0)
    until(lambda: not script.open)
    monkeypatch.setattr("watershed.plugins.page.cluster_snapshots._IDLE_S", 90.0)
    asked_before = script.asked
    until(lambda: reader.look() and script.asked > asked_before)


def test_a_thread_that_begins_anew_says_since_when_it_asks(script: Script, reader: ClusterReader) -> None:
    script.error = Unreachable("gone", alias="hub")
    until(lambda: reader.look().problem)
    reader.stop()
    reader.join(10)
    reader._stop.clear()
    script.error, begun = None, time.time()
    assert (reader.look().since >= begun, reader.look().problem) == (True, None)


def test_what_cannot_be_read_hides_nothing_else() -> None:
    view = ControlTopicsView()
    view.take(
        [
            FollowedRecord(STATUS_TOPIC, 0, "x", b"{"),
            FollowedRecord(STATUS_TOPIC, 0, "y|t|0", b'{"flow": 1}'),
            FollowedRecord(JOURNAL_TOPIC, 0, "", b"[]"),
        ]
    )
    view.take(
        [
            _reported("running"),
            FollowedRecord(FLOWS_TOPIC, 0, "group|x", b"{}"),
            FollowedRecord(JOURNAL_TOPIC, 1, "", b'{"record": "order"}'),
        ]
    )
    snapshot = view.snapshot(NOW)
    assert set(snapshot.reports["f"]) == {"f|t|0"}
    assert snapshot.flows == {}
    view.take([FollowedRecord(STATUS_TOPIC, 1, "f|t|0", None)])
    assert view.snapshot(NOW).reports["f"] == {}


def test_who_looks_again_does_not_wait_for_the_slow_pace(
    script: Script, reader: ClusterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody looks, the thread reads for the charts only, and seldom."""
    until(lambda: reader.look().answered_at)
    monkeypatch.setattr("watershed.plugins.page.cluster_snapshots._REST_PAUSE_S", 3_600.0)
    monkeypatch.setattr("watershed.plugins.page.cluster_snapshots._REST_S", 0.0)
    for _ in range(3):
        before, begun = script.asked, time.time()
        assert reader.is_resting
        assert reader.look().since >= begun, "an old answer is no silence"
        until(lambda before=before: script.asked > before)  # type: ignore[misc]


def test_the_charts_are_filled_while_the_thread_reads(script: Script, reader: ClusterReader, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 10**6  # an old report would be a silent worker's
    told = PartitionStatus("f", "t", "t", 0, "running", lag_records=7, lag_ms=70, rate_bytes=3.0, at_ms=now_ms)
    flow = page_world.plan_in(tmp_path, page_world.one(ADDRESS)).flows[0]
    told = replace(told, flow=flow.id)
    applied = json.dumps(FlowRecord(flow, "", "shop").to_json()).encode()
    script.records = [
        FollowedRecord(FLOWS_TOPIC, 0, flow.id, applied),
        FollowedRecord(STATUS_TOPIC, 0, told.key, json.dumps(told.to_json()).encode()),
    ]
    [sample] = until(lambda: reader.look().history.read("shop", flow.id)).values()
    assert (sample.records, sample.delay_ms, sample.rate) == (7, 70, 3.0)
    assert [each.records for each in reader.look().history.read("shop").values()] == [7]


def test_clusters_that_nobody_looks_at_make_room(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that declares its clusters anew again and again must not use up what one process follows."""
    monkeypatch.setattr("watershed.plugins.page.cluster_snapshots.ControlFollowerProxy", lambda _apart, _to: script)
    monkeypatch.setattr("watershed.plugins.page.cluster_snapshots._CLUSTERS", 1)
    readers = ClusterReaders()
    try:
        until(lambda: readers.look(PlanCluster("a", (ADDRESS,))).answered_at)
        assert "follows 1 clusters already" in str(readers.look(PlanCluster("b", (ADDRESS,))).problem)
        monkeypatch.setattr("watershed.plugins.page.cluster_snapshots._REST_S", 0.0)
        until(lambda: readers.look(PlanCluster("b", (ADDRESS,))).answered_at)
        assert len(readers._readers) == 1
    finally:
        readers.stop()


def test_names_of_topologies_that_somebody_makes_up_are_bounded() -> None:
    view = ControlTopicsView()
    lines = [json.dumps({"topology": f"made-up-{number}"}).encode() for number in range(2_000)]
    view.take(FollowedRecord(JOURNAL_TOPIC, offset, "", line) for offset, line in enumerate(lines))
    assert len(view.snapshot(NOW).journals) <= 1_000
