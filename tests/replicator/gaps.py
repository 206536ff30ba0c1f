"""A gap behind five records of a target in memory, and who fills it."""

from __future__ import annotations

import pytest

from tests.replicator.aligning import FLOW, TOPIC, Clock, Event, Requests, cluster, end_of, seen
from watershed.clusters.fake_cluster import FakeCluster
from watershed.replicator.copy.aligned import log_end
from watershed.replicator.copy.aligned.gap_filler import GapFiller, GapMethod

KINDS = pytest.mark.parametrize(("way", "version"), [("markers", 2), ("markers", 1), ("transactions", 2)])
GAP = 4  # with MOST_MARKERS 2: two requests of markers


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits, and a machine that stands still for a while changes nothing."""
    monkeypatch.setattr(log_end, "time", Clock())
    monkeypatch.setattr(log_end, "_PAUSE_S", 0.0)
    monkeypatch.setattr(log_end, "RIVAL_MARKER_WAIT_S", 1e-6)
    monkeypatch.setattr(log_end, "_FETCH_MS", 1)
    monkeypatch.setattr(log_end, "MAX_MARKERS_PER_REQUEST", 2)
    monkeypatch.setattr("watershed.replicator.copy.transactions.transactional_producer.COORDINATOR_PAUSE_S", 0.0)
    monkeypatch.setattr("watershed.replicator.copy.aligned.target_log._PAUSE_S", 0.0)


def target(version: int) -> FakeCluster:
    """Five records, behind which there is a gap."""
    made = cluster(version)
    made.produce(TOPIC, 0, [b"%d" % number for number in range(5)])
    return made


def filler(
    there: FakeCluster, way: GapMethod, version: int, at: int = -1, event: Event | None = None
) -> tuple[GapFiller, Requests]:
    requests = Requests(there, at, event)
    return GapFiller(requests.log(), FLOW, way, bump=version >= 2), requests


def check(there: FakeCluster, end: int) -> None:
    """The very end, and nothing to be seen of it; what comes next stands there."""
    assert end_of(there) == end
    committed, uncommitted = seen(there)
    assert [record.value for record in committed] == [b"%d" % number for number in range(5)]
    assert committed == uncommitted
    assert there.produce(TOPIC, 0, [b"next"]) == end
    assert there.log(TOPIC, 0).last_stable() == end + 1


def requests_of_a_gap(way: GapMethod, version: int) -> int:
    there = target(version)
    working, requests = filler(there, way, version)
    working.advance(5 + GAP)
    check(there, 5 + GAP)
    return requests.count
