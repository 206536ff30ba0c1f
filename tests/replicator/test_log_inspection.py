"""Both logs of many partitions, read by few requests (replicator.recovery.log_inspection)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from watershed.clusters.errors import ClusterError
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery import log_inspection
from watershed.replicator.recovery.log_inspection import inspect_logs
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds

PARTITIONS = 150
LARGE, EMPTY = 7, 11
KEYS = [PartitionKey("flow", "orders", "orders", number) for number in range(PARTITIONS)]


class Counting:
    """A connection that counts its requests."""

    def __init__(self, wire: FakeWire, asked: Counter[str]) -> None:
        self._wire, self._asked = wire, asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wire, name)
        if not callable(found):
            return found

        def counted(*args: Any, **more: Any) -> Any:
            self._asked[name] += 1
            return found(*args, **more)

        return counted


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        self.clusters = {alias: FakeCluster(alias) for alias in ("onprem", "cloud")}
        self.source, self.target = self.clusters["onprem"], self.clusters["cloud"]
        for cluster in self.clusters.values():
            cluster.create_topic("orders", PARTITIONS)
        monkeypatch.setattr(
            log_inspection,
            "open_connection",
            lambda settings, _address=None: Counting(self.clusters[settings.alias].wire(), self.asked),
        )

    def inspect(self) -> dict[PartitionKey, Any]:
        return inspect_logs(KEYS, self.source.settings, self.target.settings, 7, 1, SettledLogEnds())


def test_many_partitions_are_read_by_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for number in range(PARTITIONS):
        if number != EMPTY:
            world.target.produce("orders", number, [b"a"])
            world.target.produce("orders", number, [b"v" * (200_000 if number == LARGE else 10), b"w"])
    found = world.inspect()
    assert list(found) == KEYS
    for key, (seen, _, there) in found.items():
        assert seen.target_end == there.end == (0 if key.partition == EMPTY else 3)
        assert (seen.tail is None) == (key.partition == EMPTY)
        if seen.tail is not None:
            assert (seen.tail.base, seen.tail.end) == (1, 3)
    assert world.asked["describe_producers_of"] == 1
    assert world.asked["fetch"] <= 4  # three for 149 logs, and one more for the large batch
    assert world.asked["list_offsets"] == 4


def test_each_has_its_own_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused for one partition stands in its place; those of its request are read."""
    world = World(monkeypatch)
    world.target.produce("orders", 3, [b"v"])

    class Refuses(FakeWire):
        def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
            return (6, []) if partition == 5 else super().describe_producers(topic, partition)

    monkeypatch.setattr(
        log_inspection, "open_connection", lambda settings, _address=None: Refuses(world.clusters[settings.alias])
    )
    found = world.inspect()
    assert [key.partition for key, each in found.items() if isinstance(each, ClusterError)] == [5]
    assert "NOT_LEADER_OR_FOLLOWER to DescribeProducers for orders-5" in str(found[KEYS[5]])
    seen, _, _ = found[KEYS[3]]
    assert seen.tail is not None
    assert seen.tail.end == 1


def test_a_broker_too_old_to_tell_is_asked_for_its_own_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.target.describes_producers = False
    found = world.inspect()
    assert all(seen.producer is None and seen.unreplicated == 0 for seen, _, _ in found.values())
    assert world.asked["describe_producers_of"] == 0
