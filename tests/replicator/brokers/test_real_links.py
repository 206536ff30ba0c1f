"""Links between two real brokers, without a worker: threads, throttling by the brokers, quotas.

The brokers are this file's own: what is set for our client id would slow down every worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import pytest
from kio.schema.alter_client_quotas.v1 import request as quotas
from kio.static.primitive import f64

from tests.replicator.real import producer, read_all, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.admin_reads import read_client_quotas
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import FetchPartition
from watershed.clusters.wire.versions import Api
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.broker_threads import SourceBrokerThreads, TargetBrokerThreads
from watershed.replicator.transport.fetcher import RESERVED_BYTES
from watershed.replicator.transport.rate_limit import RateLimit

pytestmark = pytest.mark.kafka
PARTITIONS = 3


@dataclass(slots=True)
class Scene:
    source: SourceBrokerThreads
    target: TargetBrokerThreads
    active_copies: list[ActiveCopy]
    ends: Callable[[], dict[int, int]]  # of the source's log

    def done(self) -> bool:
        assert not [active.copy.trouble for active in self.active_copies if active.copy.trouble is not None]
        return {
            active.copy.key.partition: active.copy.progress.copied_through for active in self.active_copies
        } == self.ends()


def filled(settings: ConnectionSettings, topic: str, megabytes: int) -> None:
    with Admin(settings) as admin:
        admin.create_topic(topic, PARTITIONS)
    into = producer(settings, **{"batch.size": 50_000})
    for number in range(megabytes * 1000):
        into.produce(topic, b"%07d" % number + b"." * 993, partition=number % PARTITIONS)
        into.poll(0)
    assert into.flush(60) == 0


@contextmanager
def linked(
    settings: dict[str, ConnectionSettings], topic: str, rate: RateLimit, memory: Callable[[], int] = lambda: 64 << 20
) -> Iterator[Scene]:
    """Everything of `topic` from onprem to a new topic of the same name on cloud."""
    here, there = settings["onprem"], settings["cloud"]
    with Admin(here) as source, Admin(there) as target, closing(open_connection(there)) as connection:
        source_id, target_id = source.topic(topic).topic_id, target.create_topic(topic, PARTITIONS).topic_id
        identity = ProducerIdentity(connection.issue_producer_id(), 0, 0)
    addresses = [_address(each) for each in (here, there)]
    admin = Admin(here)
    asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def ends() -> dict[int, int]:
        return {key.partition: span.end for key, span in admin.offsets(asked).items()}

    scene = Scene(SourceBrokerThreads(here, addresses[0], memory), TargetBrokerThreads(there, addresses[1]), [], ends)
    for number in range(PARTITIONS):
        key = PartitionKey("flow", topic, topic, number)
        copy = PartitionCopy(
            key,
            source_id,
            target_id,
            SourceCursor(0),
            TargetProgress(0),
            producer=SequencedProducer(identity, depth=1, depth_confirmed=5),
        )
        scene.active_copies.append(ActiveCopy(copy, None, rate, lambda _batch: False, *addresses))
    for link in (scene.source, scene.target):
        link.start()
        for active in scene.active_copies:
            link.add(active)
    try:
        yield scene
    finally:
        admin.close()
        scene.source.end()
        scene.target.end()


def wait_until(true: Callable[[], bool], timeout: float = 180) -> None:
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def same(settings: dict[str, ConnectionSettings], topic: str) -> bool:
    """Whether every record is there once, in order and at the same offset (nothing was left out on the source)."""
    here, there = (read_all(settings[alias], topic, PARTITIONS) for alias in ("onprem", "cloud"))
    return here == there


def _address(settings: ConnectionSettings) -> BrokerAddress:
    host, _, port = settings.bootstrap[0].rpartition(":")
    return BrokerAddress(host, int(port))


def test_backlog_goes_by_the_bulk_lane_and_what_is_new_by_the_live_one(own_pair, topic_name) -> None:
    settings = settings_of(own_pair)
    filled(settings["onprem"], topic_name, 12)
    kinds: set[str] = set()
    # Without a limit the whole backlog may be fetched and sent before the sender has changed threads once.
    with linked(settings, topic_name, RateLimit(2e6)) as scene:

        def done() -> bool:
            kinds.update(active.carrier for active in scene.active_copies)
            return scene.done()

        wait_until(done)
        assert kinds == {"live", "bulk"}
        into = producer(settings["onprem"], **{"linger.ms": 0})
        numbers = iter(range(100_000))

        def all_live() -> bool:
            into.produce(topic_name, b"%d" % next(numbers), partition=next(numbers) % PARTITIONS)
            into.flush(60)
            return all(active.carrier == active.kind == "live" for active in scene.active_copies)

        wait_until(all_live)
        wait_until(scene.done)
        assert all(
            not active.copy.queue.in_flight and active.copy.queue.buffered == 0 for active in scene.active_copies
        )
    assert same(settings, topic_name)


@pytest.mark.parametrize(
    ("side", "rate"),
    [
        ("onprem", "consumer_byte_rate"),
        pytest.param("cloud", "producer_byte_rate", marks=pytest.mark.soak),
    ],
)
def test_a_broker_that_throttles_is_left_in_peace(own_pair, topic_name, side: str, rate: str) -> None:
    settings = settings_of(own_pair)
    filled(settings["onprem"], topic_name, 6)
    limited(settings[side], rate, 5e5)  # over about ten seconds
    try:
        with linked(settings, topic_name, RateLimit(None)) as scene:
            wait_until(scene.done)
            links = {"onprem": scene.source, "cloud": scene.target}
            throttled = {alias: link.counters()["throttled_seconds"] for alias, link in links.items()}
    finally:
        limited(settings[side], rate, None)
    assert {alias for alias, seconds in throttled.items() if seconds > 0} == {side}
    assert same(settings, topic_name)


@pytest.mark.soak
def test_a_backlog_gets_through_a_quota_of_which_others_use_a_little(own_pair, topic_name) -> None:
    """A broker answers with nothing where an answer would exceed what is left of the quota's window, and cuts answers
    only to the whole of it: who always asks for as much as there may be gets nothing while anybody else reads."""
    settings = settings_of(own_pair)
    filled(settings["onprem"], topic_name, 7)
    filled(settings["onprem"], f"{topic_name}-small", 1)
    over = threading.Event()

    def reads() -> None:
        with Admin(settings["onprem"]) as admin:
            there = FetchPartition(admin.topic(f"{topic_name}-small").topic_id, 0, 0, max_bytes=1_000)
        while not over.is_set():
            with (
                suppress(Unreachable),
                closing(open_connection(settings["onprem"])) as connection,
            ):  # it may be held up long
                while not over.wait(0.1):
                    connection.fetch((there,), max_wait_ms=0, max_bytes=1_000)

    another = threading.Thread(target=reads)
    limited(settings["onprem"], "consumer_byte_rate", 5e5)
    try:
        another.start()
        with linked(settings, topic_name, RateLimit(None)) as scene:
            wait_until(scene.done)
    finally:
        over.set()
        another.join()
        limited(settings["onprem"], "consumer_byte_rate", None)
    assert same(settings, topic_name)


def test_a_quota_holds_within_five_in_a_hundred(own_pair, topic_name) -> None:
    settings = settings_of(own_pair)
    filled(settings["onprem"], topic_name, 6)
    quota = 2_000_000
    with linked(settings, topic_name, RateLimit(quota)) as scene:

        def copied() -> int:
            return sum(active.copy.progress.copied_bytes for active in scene.active_copies)

        wait_until(lambda: copied() > 0)
        began, before = time.monotonic(), copied()  # in this order: a pause between them makes it slower
        wait_until(scene.done)
        assert (copied() - before) / (time.monotonic() - began) < 1.05 * quota


def test_no_more_is_held_than_memory_has_room_for(own_pair, topic_name) -> None:
    settings = settings_of(own_pair)
    filled(settings["onprem"], topic_name, 12)
    active_copies: list[ActiveCopy] = []
    most = 0

    def room() -> int:
        nonlocal most
        held = sum(active.copy.queue.buffered for active in active_copies)
        most = max(most, held)
        return (2 << 20) - held

    with linked(settings, topic_name, RateLimit(None), room) as scene:
        active_copies.extend(scene.active_copies)
        wait_until(scene.done)
    # two threads, one answer each on its way
    assert 0 < most <= (2 << 20) + RESERVED_BYTES["live"] + 2 * ((1 << 20) + 100_000)
    assert same(settings, topic_name)


def test_backlogs_that_fill_the_memory_do_not_hold_up_what_is_new(own_pair, topic_name) -> None:
    """With no memory left for backlogs only the live thread fetches: all that it brings is at the log's end."""
    settings = settings_of(own_pair)
    filled(settings["onprem"], topic_name, 1)
    with linked(settings, topic_name, RateLimit(None), lambda: 0) as scene:
        wait_until(scene.done)
        assert {active.kind for active in scene.active_copies} == {"live"}
    assert same(settings, topic_name)


def limited(settings: ConnectionSettings, what: str, bytes_a_second: float | None) -> None:
    """Sets or removes a broker's quota for our client id; returns when the broker knows it.

    What a test before this one read counts for eleven seconds (`quota.window.num`), and a connection is muted for as
    long as that takes at the new rate: quarters of an hour, behind a fast one."""
    if bytes_a_second is not None:
        time.sleep(12)
    entity = quotas.EntityData(entity_type="client-id", entity_name="watershed")
    op = quotas.OpData(key=what, value=f64(bytes_a_second or 0.0), remove=bytes_a_second is None)
    entry = quotas.EntryData(entity=(entity,), ops=(op,))
    with closing(open_connection(settings)) as connection:
        answer = connection.ask(Api.ALTER_CLIENT_QUOTAS, entries=(entry,), validate_only=False)
    assert [int(each.error_code) for each in answer.entries] == [0]
    key = (("client-id", "watershed"),)
    with open_connection(settings) as inquiry:  # it travels through the metadata log
        wait_until(lambda: read_client_quotas(inquiry).get(key, {}).get(what) == bytes_a_second)
    time.sleep(0.5)
