"""Which replica of a source partition is read: the leader names a follower, and whatever that one says is no loss."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from tests.replicator.test_fetcher_and_sender import NOWHERE, active_copy_of
from watershed.clusters.errors import Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import FetchedPartition
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.fetcher import Fetcher
from watershed.replicator.transport.replica_choice import (
    FOLLOWER_LEASE_S,
    LEADER_ONLY_S,
    READ_LEADER,
    ReplicaChoice,
    choose_replica,
    leave_follower,
)
from watershed.replicator.worker.copy_registry import CopyRegistry

FOLLOWER = BrokerAddress("follower", 9092)
READS_2 = ReplicaChoice(2, until=100.0)


def answer(**more: Any) -> FetchedPartition:
    return FetchedPartition(**{
        "topic_id": uuid.uuid4(), "partition": 0, "error": 0, "high_watermark": 9, "last_stable": 9, "log_start": 0,
        "records": memoryview(b""), **more,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("before", "told", "after"),
    [
        (READ_LEADER, {}, READ_LEADER),
        (READ_LEADER, {"preferred": 2}, ReplicaChoice(2, until=50.0 + FOLLOWER_LEASE_S)),
        (READ_LEADER, {"error": error_codes.OFFSET_OUT_OF_RANGE}, READ_LEADER),
        (READS_2, {}, READS_2),
        (READS_2, {"preferred": 3}, ReplicaChoice(3, until=50.0 + FOLLOWER_LEASE_S)),
        (READS_2, {"preferred": 2}, leave_follower(50.0)),
        (READS_2, {"error": error_codes.OFFSET_OUT_OF_RANGE}, leave_follower(50.0)),
        (READS_2, {"error": error_codes.NOT_LEADER_OR_FOLLOWER}, leave_follower(50.0)),
        (READS_2, {"diverging_epoch": (3, 7)}, leave_follower(50.0)),
    ],
)
def test_each_answer(before: ReplicaChoice, told: dict[str, Any], after: ReplicaChoice) -> None:
    assert choose_replica(before, answer(**told), 50.0) == after
    assert leave_follower(50.0) == ReplicaChoice(None, tells_rack=False, until=50.0 + LEADER_ONLY_S)


class Racked(FakeWire):
    """A leader that names broker 2 whoever tells a rack; with `says`, a follower that answers with it."""

    nodes: Mapping[int, tuple[str, int]] = MappingProxyType({2: FOLLOWER})
    asked = 0
    says: dict[str, Any] | None = None

    def fetch(self, *arguments: Any, rack: str = "", **more: Any) -> list[FetchedPartition]:
        found = super().fetch(*arguments, **more)
        if self.says is not None:
            return [replace(each, records=memoryview(b""), **self.says) for each in found]
        return [replace(each, records=memoryview(b""), preferred=2) if rack else each for each in found]

    def brokers(self) -> Mapping[int, tuple[str, int]]:
        self.asked += 1
        return self.nodes


class Scene:
    """A fetcher of one broker of a cluster in memory, and one partition with a record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, replica: ReplicaChoice = READ_LEADER, rack: str = "b") -> None:
        self.cluster = FakeCluster("onprem")
        topic = self.cluster.create_topic("orders", 1).topic_id
        self.cluster.produce("orders", 0, [b"a"])
        self.active = active_copy_of(source_id=topic)
        self.active.replica = replica
        self.turned: list[BrokerAddress] = []
        self.active.turn = self.turned.append
        self.wire = Racked(self.cluster)
        for module in ("broker_connection", "fetcher"):
            monkeypatch.setattr(f"watershed.replicator.transport.{module}.open_connection", lambda *_: self.wire)
        settings = replace(self.cluster.settings, rack=rack or None)
        self.fetcher = Fetcher(self.active.kind, settings, NOWHERE, lambda: 1 << 20)
        self.fetcher.put(self.active)
        monkeypatch.setattr(self.fetcher, "_check_connection", lambda: None)

    def fetch(self, now: float = 0.5) -> ActiveCopy:
        self.fetcher._review_changed(now)
        self.fetcher._fetch(1 << 20, 0.0)
        return self.active


def test_a_leader_sends_the_partition_to_the_follower_and_tells_where_the_log_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    active = scene.fetch()
    assert scene.turned == [FOLLOWER]
    assert (active.replica.follower, active.copy.source.position, active.copy.source.end) == (2, 0, 1)
    assert active.source_seen_at > 0
    assert (scene.fetcher._served, scene.fetcher._asked, scene.fetcher.list_holders()) == ({}, {}, [])


def test_a_broker_is_asked_once_where_the_followers_of_many_partitions_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    topic = scene.cluster.create_topic("many", 20).topic_id
    for number in range(20):
        active = active_copy_of(source_id=topic, partition=number)
        active.turn = scene.turned.append
        scene.fetcher.put(active)
    scene.fetch()
    assert scene.turned == [FOLLOWER] * 21
    assert scene.wire.asked == 1


def test_a_leader_that_is_told_no_rack_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, rack="")
    assert scene.fetch().copy.source.position == 1
    assert (scene.turned, scene.fetcher.follower_bytes) == ([], 0)


def test_what_a_follower_sends_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, READS_2, rack="")
    assert scene.fetch().copy.source.position == 1
    assert scene.fetcher.follower_bytes > 0


@pytest.mark.parametrize(
    "says", [{"error": error_codes.OFFSET_OUT_OF_RANGE}, {"diverging_epoch": (0, 0)}, {"error": 5}], ids=str
)
def test_what_a_follower_cannot_serve_the_leader_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, says: dict[str, Any]
) -> None:
    scene = Scene(monkeypatch, READS_2)
    scene.wire.says = says
    active = scene.fetch()
    assert scene.turned == [active.source]
    assert active.copy.trouble is None
    assert (active.replica.follower, active.replica.tells_rack, active.copy.source.position) == (None, False, 0)


def test_a_leaders_word_is_trouble_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.wire.says = {"error": error_codes.OFFSET_OUT_OF_RANGE}
    assert isinstance(scene.fetch().copy.trouble, Reinspect)
    assert scene.turned == []


def test_a_follower_that_is_gone_costs_no_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, READS_2)
    scene.fetcher._review_changed(0.5)
    scene.fetcher._lost(Unreachable("gone", alias="onprem"))
    assert scene.turned == [scene.active.source]
    assert scene.active.copy.trouble is None
    assert not scene.active.replica.tells_rack


def test_a_follower_that_the_metadata_does_not_name_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.wire.nodes = {}
    active = scene.fetch()
    assert scene.turned == [active.source]
    assert active.replica.follower is None
    assert not active.replica.tells_rack


@pytest.mark.parametrize("replica", [READS_2, ReplicaChoice(tells_rack=False, until=100.0)], ids=["read", "refused"])
def test_the_leader_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch, replica: ReplicaChoice) -> None:
    scene = Scene(monkeypatch, replica)
    scene.fetcher._review_changed(99.9)
    assert scene.turned == []
    scene.fetcher._review_changed(101.0)
    assert scene.turned == [scene.active.source]
    assert scene.active.replica == READ_LEADER


def test_a_partition_is_fetched_by_the_threads_of_one_broker_and_of_one_rack() -> None:
    source = ConnectionSettings("onprem", ("127.0.0.1:1",), rack="proofs")
    unused: Any = None
    registry = CopyRegistry(source, lambda _alias: source, unused, unused, 86_400_000, unused, unused)
    active = active_copy_of()
    registry._active_copies[id(active)] = active
    near = replace(source, rack="b")

    def fetched_by() -> list[tuple[str | None, BrokerAddress]]:
        return [
            (settings.rack, address)
            for (_, _, settings, address), threads in registry._broker_threads.items()
            if threads.is_serving(active)
        ]

    try:
        registry._fetch_from(active, near, NOWHERE)
        assert fetched_by() == [("b", NOWHERE)]
        active.replica = READS_2
        registry._fetch_from(active, near, FOLLOWER)
        assert fetched_by() == [("b", FOLLOWER)]
        active.replica = leave_follower(0.0)
        registry._fetch_from(active, near, NOWHERE)
        assert fetched_by() == [(None, NOWHERE)]
        registry.remove(active)
        registry._fetch_from(active, near, FOLLOWER)  # by a thread that did not know yet
        assert fetched_by() == []
    finally:
        registry.end()
    registry._active_copies[id(active)] = active
    registry._fetch_from(active, near, NOWHERE)  # nothing begins behind the end
    assert fetched_by() == []
