"""What a worker's active copies keep of partitions and brokers that are gone: records that were refused, links."""

from __future__ import annotations

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.rate_limit import RateLimit
from watershed.replicator.worker.copy_registry import UNUSED_THREADS_S, CopyRegistry

CLOUD = ConnectionSettings("cloud", ("127.0.0.1:1",))
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)


@pytest.fixture
def registry() -> CopyRegistry:
    unused: Any = None  # nothing is written, guarded or discovered here
    return CopyRegistry(CLOUD, lambda _alias: CLOUD, unused, unused, 86_400_000, unused, unused)


def test_refused_records_are_forgotten_once_they_are_settled(registry: CopyRegistry) -> None:
    registry._refused[KEY] = dict.fromkeys(range(100), "INVALID_RECORD")
    before = registry._refused[KEY]
    assert sorted(registry._still_refused(KEY, 90)) == list(range(90, 100))
    assert sorted(registry._refused[KEY]) == list(range(90, 100))
    assert len(before) == 100  # a fetch thread may be reading it
    assert registry._still_refused(KEY, 100) == {}
    assert KEY not in registry._refused


def build_active(source_id: uuid.UUID, source: BrokerAddress, target: BrokerAddress) -> ActiveCopy:
    copy = PartitionCopy(
        KEY,
        source_id,
        uuid.uuid4(),
        SourceCursor(0),
        TargetProgress(0),
        producer=SequencedProducer(ProducerIdentity(7, 0, 0), depth=1, depth_confirmed=5),
    )
    return ActiveCopy(copy, None, RateLimit(None), lambda _batch: False, source, target)


def test_flows_that_copy_the_same_partition_have_sessions_of_their_own(registry: CopyRegistry) -> None:
    """A session has a partition once. In one session each would take the other's place, or the other's records."""
    addresses = [BrokerAddress("127.0.0.1", port) for port in (1, 2)]
    topic = uuid.uuid4()
    first, second, third = (build_active(topic, *addresses) for _ in range(3))
    other = build_active(uuid.uuid4(), *addresses)
    for each in (first, second, other, third):
        registry._active_copies[id(each)] = each
        registry._fetch_from(each, CLOUD, addresses[0])
        registry._fetch_from(each, CLOUD, addresses[0])  # again, as when the broker is found anew
    numbers = [key[1] for each in (first, second, other, third) for key, threads in registry._broker_threads.items()
             if threads.is_serving(each)]  # fmt: skip
    assert numbers == [0, 1, 0, 2]
    registry.remove(first)
    registry._active_copies[id(first)] = first
    registry._fetch_from(first, CLOUD, addresses[0])
    assert registry._find_threads("fetch", CLOUD, addresses[0]).is_serving(first)
    for each in (first, second, other, third):
        registry.remove(each)
    registry.sweep(time.monotonic() + UNUSED_THREADS_S + 1)
    assert registry._broker_threads == {}


def test_links_to_brokers_that_nobody_needs_any_more_end_with_their_threads_and_pipes(registry: CopyRegistry) -> None:
    addresses = [BrokerAddress("127.0.0.1", port) for port in (1, 2)]
    gone, used = (registry._find_threads("send", CLOUD, address) for address in addresses)
    active = build_active(uuid.uuid4(), *addresses)
    used.add(active)
    now = time.monotonic()
    registry.sweep(now)
    assert list(registry._broker_threads.values()) == [gone, used]
    gone._threads[-1].throttled_s = 2.5
    registry.sweep(now + UNUSED_THREADS_S + 1)
    assert list(registry._broker_threads.values()) == [used]
    assert registry.counters()["throttled_seconds"] == 2.5
    registry.remove(active)
    registry.sweep(time.monotonic() + UNUSED_THREADS_S + 1)
    assert registry._broker_threads == {}
    for threads in (gone, used):
        for thread in threads._threads:
            thread.join(30)
            assert not thread.is_alive()
            assert (thread._waking, thread._wake) == (-1, -1)
            thread.wake()  # by somebody who still holds it


def test_ended_lanes_leave_no_open_files(registry: CopyRegistry) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for port in range(1, 6):
        threads = registry._find_threads("fetch", CLOUD, BrokerAddress("127.0.0.1", port))
        threads.end()
        for thread in threads._threads:
            thread.join(30)
    registry.sweep()
    assert opened() == before


def test_a_scrape_never_sees_a_counter_that_is_being_moved(registry: CopyRegistry) -> None:
    pool = ThreadPoolExecutor(1)
    scrapes = []

    def count() -> dict[str, float]:
        if not scrapes:  # the sweep asks, and a scrape comes in between
            scrapes.append(pool.submit(registry.counters))
            time.sleep(0.05)
        return {"throttled_seconds": 2.5}

    ended: Any = SimpleNamespace(unused_s=lambda _now: 0.0, is_alive=lambda: False, counters=count)
    registry._broker_threads["send", 0, CLOUD, BrokerAddress("127.0.0.1", 1)] = ended
    registry.sweep()
    assert scrapes[0].result(10) == {"throttled_seconds": 2.5}
    pool.shutdown()


def test_what_ended_threads_counted_stays_when_others_replace_them(registry: CopyRegistry) -> None:
    address = BrokerAddress("127.0.0.1", 1)
    ended: Any = SimpleNamespace(is_alive=lambda: False, counters=lambda: {"throttled_seconds": 2.5})
    registry._broker_threads["send", 0, CLOUD, address] = ended
    threads = registry._find_threads("send", CLOUD, address)
    assert registry.counters()["throttled_seconds"] == 2.5
    threads.end()
    for thread in threads._threads:
        thread.join(30)
