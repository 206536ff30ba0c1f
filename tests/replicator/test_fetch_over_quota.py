"""A broker over a quota answers a Fetch without any partition (KIP-219): everyone who reads a log asks again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.messages import READ_COMMITTED, FetchedPartition
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator import batch_at_offset
from watershed.replicator.adoption import digest_reader
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.copy import flow_epoch_fence
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan
from watershed.replicator.recovery import ambiguous_answers, divergence, log_inspection, repeat_takeover
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.replicator.recovery.recovery_point import LogInspection

KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)
PLACE = TopicPartition("orders", 0)
EPOCHS = (LeaderEpochEntry(0, 0),)


class OverQuota(FakeWire):
    """Leaves all partitions out of every second answer to a Fetch, the first one included."""

    throttle_ms = 1_000
    count = 0

    def fetch(self, *arguments: Any, **more: Any) -> list[FetchedPartition]:
        self.count += 1
        return [] if self.count % 2 else super().fetch(*arguments, **more)


class World:
    """A cluster with three records, one batch each, and a connection to it that is over a quota."""

    def __init__(self) -> None:
        self.cluster = FakeCluster("cloud")
        self.topic_id = self.cluster.create_topic("orders", 1).topic_id
        for value in (b"a", b"b", b"c"):
            self.cluster.produce("orders", 0, [value])
        self.wire: Any = OverQuota(self.cluster)
        self.settings: ConnectionSettings = self.cluster.settings

    def led(self, **more: int) -> LeaderLog:
        return LeaderLog(self.topic_id, BrokerAddress("cloud", 9092), 0, self.cluster.log("orders", 0).end, **more)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    for module in (batch_at_offset, ambiguous_answers, divergence, log_inspection):
        monkeypatch.setattr(module, "open_connection", lambda *_: OverQuota(made.cluster))
    return made


def read_tail(world: World) -> object:
    found = log_inspection._tail(world.wire, world.led(), 0)
    return getattr(found, "base", found)


def read_newest(world: World) -> object:
    found = log_inspection._newest(world.wire, world.led(), 0)
    return getattr(found, "base", found)


def find_missed(world: World) -> object:
    seen = LogInspection(world.topic_id, 0, 3, world.topic_id, 0, 3, None, None, 0, 0, True, True)
    found = log_inspection._with_missed(KEY, seen, world.settings, world.led(), lambda _where: lambda _batch: False)
    return getattr(found, "missed", found)


def find_truncation(world: World) -> object:
    """The source lost the last two of the records that were copied, and has grown again."""
    world.cluster.log("orders", 0).truncate(1)
    for value in (b"x", b"y"):
        world.cluster.produce("orders", 0, [value])
    return log_inspection.find_log_truncations(world.settings, {KEY: (world.led(), 3, EPOCHS)}).get(KEY)


def read_repeats(world: World) -> object:
    records, _ = repeat_takeover._fetch(world.wire, "orders", 0, world.led(), 1, READ_COMMITTED)
    return next(decode_batches(records)).base


def read_divergent(world: World) -> object:
    return [each and each.offset for each in divergence._records(world.settings, world.led(), PLACE, 1, ())]


def read_digests(world: World) -> object:
    wanted = digest_reader.PartitionRange(world.settings, "orders", 0, 0, 3)
    answer = digest_reader._fetch(world.wire, world.led(), wanted, 2)
    return None if answer is None else next(decode_batches(answer.records)).base


def find_fence(world: World) -> object:
    world.wire.write_markers("orders", 0, ProducerIdAndEpoch(7, 1), 1)
    fence = ProducerIdAndEpoch(7, 1)
    return flow_epoch_fence._standing(world.wire, world.led(), PLACE, 0, fence, world.settings)


def read_batch_at(world: World) -> object:
    return batch_at_offset.read_batch_at(world.settings, "orders", 0, 1).batch.base


def read_stored(world: World) -> object:
    found = ambiguous_answers.read_stored_batch(world.settings, KEY, Halt("append_time", "", target=OffsetSpan(1, 2)))
    return getattr(found, "base", found)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (read_tail, 2),
        (read_newest, 2),
        (find_missed, 0),
        (find_truncation, 1),
        (read_repeats, 1),
        (read_divergent, [1, 2]),
        (read_digests, 2),
        (find_fence, 3),
        (read_batch_at, 1),
        (read_stored, 1),
    ],
)
def test_an_empty_answer_is_asked_again(world: World, read: Callable[[World], object], expected: object) -> None:
    assert read(world) == expected
