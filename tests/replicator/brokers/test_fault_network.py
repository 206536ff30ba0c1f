"""What networks do, between a worker and both clusters: the copy is exact, and goes on while it can.

The workers use the clusters through proxies (`lab.proxied_clusters`); the tests look on past them.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.replicator.faults import Faulty, Feeding, copied, progress, times
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    wait_copied,
    wait_progress,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.lab.fault_proxy import HELD_CONNECTION, NO_FAULT, ProxyFault

pytestmark = pytest.mark.kafka

PARTITIONS = 3


def begun(faulty: Faulty, topic: str, **flow):
    """The topic, a plan whose workers meet the proxies, and a way to send records to the source past them."""
    with Admin(faulty.settings["onprem"]) as admin:
        admin.create_topic(topic, PARTITIONS, 1)
    plan = applied(faulty.through, plan_for(faulty.through, topic, topic, **flow))
    sending = producer(faulty.settings["onprem"], **{"batch.size": 16_000})

    def send(count: int, start: int) -> None:
        put(sending, topic, count, start=start, size=200)

    return plan, send, sending


def finished(faulty: Faulty, plan, topic: str, feeding: Feeding, sending) -> None:
    """The quiet period: everything that was sent is there, exactly."""
    total = feeding.end()
    sending.flush()
    wait_copied(faulty.settings, plan, topic, PARTITIONS)
    assert assert_exact_copy(faulty.settings, plan, topic, PARTITIONS) == total


@pytest.mark.soak
def test_late_jittering_sliced_connections(faulty, topic_name, tmp_path):
    plan, send, sending = begun(faulty, topic_name)
    slow = ProxyFault(latency_s=0.06, jitter_s=0.05, slice_bytes=700)
    for alias in ("onprem", "cloud"):
        faulty.proxy(alias).up = faulty.proxy(alias).down = slow
    with workers(plan, "cloud", tmp_path) as start, Feeding(send, 700) as feeding:
        start()
        progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 2_000)
        finished(faulty, plan, topic_name, feeding, sending)


@pytest.mark.soak
def test_connections_reset_again_and_again_on_both_sides(faulty, topic_name, tmp_path):
    plan, send, sending = begun(faulty, topic_name)
    with workers(plan, "cloud", tmp_path) as start, Feeding(send, 1_000) as feeding:
        start()
        wait_progress(faulty.settings, plan, topic_name, PARTITIONS, 500)
        for round_ in range(6):
            cut = faulty.proxy(("cloud", "onprem")[round_ % 2]).cut()
            assert cut > 0, "nothing was connected"
            progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 100)
        finished(faulty, plan, topic_name, feeding, sending)


@pytest.mark.soak
def test_a_full_pipeline_whose_answers_are_cut(faulty, topic_name, tmp_path):
    """Requests land, nobody hears of it: neither again nor left out."""
    plan, send, sending = begun(faulty, topic_name)
    proxy = faulty.proxy("cloud")
    with workers(plan, "cloud", tmp_path) as start, Feeding(send, 2_000) as feeding:
        start()
        wait_progress(faulty.settings, plan, topic_name, PARTITIONS, 500)
        for _ in range(3):
            proxy.down = HELD_CONNECTION
            time.sleep(0.7)  # up to five requests a connection are answered into nowhere
            proxy.cut()
            proxy.down = NO_FAULT
            progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 150)
        finished(faulty, plan, topic_name, feeding, sending)


def test_requests_that_land_after_their_connection_was_lost(faulty, topic_name, tmp_path):
    plan, send, sending = begun(faulty, topic_name)
    proxy = faulty.proxy("cloud")
    with workers(plan, "cloud", tmp_path) as start, Feeding(send, 1_000) as feeding:
        start()
        wait_progress(faulty.settings, plan, topic_name, PARTITIONS, 500)
        for _ in range(3):
            proxy.up = ProxyFault(latency_s=2.0)  # what is sent from now on lands two seconds later,
            time.sleep(0.4)
            proxy.up = NO_FAULT
            proxy.drop_clients()  # long after its sender went on over a new connection
            progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 100)
            time.sleep(2.0)
        finished(faulty, plan, topic_name, feeding, sending)


def test_half_open_connections(faulty, topic_name, tmp_path):
    """One way is dead, nothing is refused: the worker gives up waiting by itself and goes on when there is a way."""
    plan, send, sending = begun(faulty, topic_name)
    with workers(plan, "cloud", tmp_path, times(patience=2)) as start, Feeding(send, 700) as feeding:
        start()
        wait_progress(faulty.settings, plan, topic_name, PARTITIONS, 300)
        for alias, way in itertools.product(("onprem", "cloud"), ("up", "down")):
            proxy = faulty.proxy(alias)
            connections = proxy.connections
            setattr(proxy, way, HELD_CONNECTION)
            deadline = time.monotonic() + 180
            while proxy.connections == connections:
                assert time.monotonic() < deadline, f"{alias} {way}: nobody gave up waiting"
                time.sleep(0.1)
            setattr(proxy, way, NO_FAULT)
            progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 300)
        finished(faulty, plan, topic_name, feeding, sending)


@pytest.mark.soak
def test_a_slow_target_holds_the_fetching_back(faulty, topic_name, tmp_path):
    plan, send, sending = begun(faulty, topic_name)
    put(sending, topic_name, 12_000, size=4_000)
    sending.flush()
    faulty.proxy("cloud").up = ProxyFault(bytes_per_s=2_000_000)
    with workers(plan, "cloud", tmp_path) as start, Feeding(send, 200, total=12_000) as feeding:
        worker = start()
        progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 1_500)
        fetched = faulty.proxy("onprem").passed["down"]
        time.sleep(2)
        more = faulty.proxy("onprem").passed["down"] - fetched
        assert more < 20_000_000, f"{more} bytes fetched in 2 s while the target takes 4,000,000"
        progress(faulty.settings["cloud"], topic_name, range(PARTITIONS), 300)
        faulty.proxy("cloud").heal()
        finished(faulty, plan, topic_name, feeding, sending)
        assert peak_memory(worker) < 256 << 20


@pytest.mark.soak
def test_a_target_that_is_away_and_comes_back(faulty, topic_name, tmp_path):
    """Nobody listens: tried again, the flow's lag grows, nothing is loud."""
    plan, send, sending = begun(faulty, topic_name)
    with workers(plan, "cloud", tmp_path) as start, Feeding(send, 700) as feeding:
        worker = start()
        wait_progress(faulty.settings, plan, topic_name, PARTITIONS, 300)
        faulty.proxy("cloud").refuse()

        def arrived() -> int:
            return copied(faulty.settings["cloud"], topic_name, list(range(PARTITIONS)))

        seen = [arrived()]
        while len(seen) < 4 or len(set(seen[-4:])) > 1:  # what was under way arrives
            time.sleep(1)
            seen.append(arrived())
        time.sleep(2)
        assert arrived() == seen[-1]
        assert worker.runs()
        faulty.proxy("cloud").accept()
        finished(faulty, plan, topic_name, feeding, sending)


def peak_memory(worker) -> int:
    """The largest resident size the worker ever had, in bytes."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    (kib,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(kib) * 1024
