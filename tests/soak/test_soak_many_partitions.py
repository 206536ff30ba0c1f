"""Thousands of partitions under traffic: a worker of two is killed, a broker too; 200 topics grow, 50 are made anew.

Nothing may be lost or doubled, and what is not touched goes on: for each phase the longest delay of a record of the
partitions that it touches is printed, and the delays of all others. SOAK_PARTITIONS: how many (5,000), twenty a topic.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from tests.replicator.faults import Faulty, faulty_clusters
from tests.replicator.real import WorkerProcess, applied, plan_for, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import compute_slot
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import clusters as lab_clusters
from watershed.replicator.transport.stall_detector import WORKER_SESSION_MS
from watershed.topology.plan import Plan

NODES = {"onprem": 1, "cloud": 3}
PARTITIONS = int(os.environ.get("SOAK_PARTITIONS", "5000"))
A_TOPIC = 20  # partitions
TOPICS = [f"orders-{number:03d}" for number in range(PARTITIONS // A_TOPIC)]
RECREATED = TOPICS[-len(TOPICS) // 5 :]  # 50 of 250
GROWING = TOPICS[: -len(RECREATED)]
RATE = int(os.environ.get("SOAK_RATE", "500"))  # records a second, one partition after the other
ALLOWED_S = WORKER_SESSION_MS / 1000 + 5
VALUE = struct.Struct(">qd")  # number of the record, when it was written (monotonic seconds)

Place = tuple[str, int]


class Traffic:
    """Writes numbered records to the source, and reads the target as it grows."""

    def __init__(self, source: ConnectionSettings, target: ConnectionSettings) -> None:
        self._source, self._target = source, target
        self.places = [(topic, number) for number in range(A_TOPIC) for topic in TOPICS]
        self._read_at_target = list(self.places)  # those that come later are only judged at the end
        self.acked: dict[Place, list[int]] = defaultdict(list)
        self.written = self.arrived = 0
        self.delays: list[tuple[float, float, Place]] = []  # written at, seconds until it arrived, where
        self._failed: list[object] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._write, self._read)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(200)

    def check(self) -> None:
        assert not self._failed, self._failed[:3]
        assert self._ended.is_set() or all(thread.is_alive() for thread in self._threads)

    def _write(self) -> None:
        sending = Producer(
            self._source.librdkafka(
                {"linger.ms": 5, "acks": "all", "enable.idempotence": True, "compression.type": "none"}
            )
        )
        began, followed = time.monotonic(), set(self._read_at_target)
        for number in itertools.count():
            if self._ended.is_set():
                break
            time.sleep(max(began + number / RATE - time.monotonic(), 0))
            place = self.places[number % len(self.places)]

            def done(error: KafkaError | None, _message: Any, place: Place = place, number: int = number) -> None:
                if error is None:
                    self.acked[place].append(number)
                else:
                    self._failed.append(error)

            sending.poll(0)
            try:
                sending.produce(place[0], VALUE.pack(number, time.monotonic()), partition=place[1], on_delivery=done)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise  # a new partition is known a little later
            else:
                self.written += place in followed
        sending.flush(120)

    def _read(self) -> None:
        reader = Consumer(
            self._target.librdkafka(
                {
                    "group.id": "soak",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    # librdkafka has no fetch sessions: each of its questions names all partitions. At each record that
                    # would be most of what the brokers do.
                    "fetch.min.bytes": 100_000,
                    "fetch.wait.max.ms": 100,
                }
            )
        )
        reader.assign([WirePartition(topic, number, 0) for topic, number in self._read_at_target])
        while not self._ended.is_set():
            for message in reader.consume(1_000, timeout=0.05):
                if message.error() is None:
                    _, at = VALUE.unpack(message.value() or b"")
                    self.delays.append((at, time.monotonic() - at, (message.topic() or "", message.partition() or 0)))
                    self.arrived += 1
        reader.close()


@contextmanager
def phase(name: str, traffic: Traffic, touched: Callable[[Place], bool], away: Callable[[], float]) -> Iterator[None]:
    """Prints what the records that were written meanwhile had to wait for. away: seconds for which no worker could have
    helped, because the broker was not there."""
    began = time.monotonic()
    yield
    ended, written = time.monotonic(), traffic.written
    until(lambda: traffic.arrived >= written - RATE, 240)  # what was written in it has arrived
    mine = [(delay, place) for at, delay, place in list(traffic.delays) if began <= at <= ended]
    hit = sorted((delay, place) for delay, place in mine if touched(place))
    other = sorted(delay for delay, place in mine if not touched(place))
    longest, where = hit[-1] if hit else (0.0, ("", 0))
    allowed = ALLOWED_S + away()
    print(
        f"{name}: {ended - began:.0f} s; {len(hit)} records of touched partitions, the longest waited {longest:.1f} s "
        f"({where[0]}-{where[1]}; allowed {allowed:.1f}: {'held' if longest <= allowed else 'MISSED'}); "
        f"{len(other)} of others, {_tell(other)}",
        flush=True,
    )
    traffic.check()


def _tell(delays: list[float]) -> str:
    if not delays:
        return "none"
    p50, p99 = (delays[min(int(len(delays) * share), len(delays) - 1)] for share in (0.5, 0.99))
    held = "held" if p99 <= 1 else "MISSED"
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms (allowed 1,000: {held}), longest {delays[-1]:.1f} s"


def until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.5)


def read_numbers(settings: ConnectionSettings, places: list[Place]) -> dict[Place, list[int]]:
    """The numbers of all records, in their order, by partition."""
    with Admin(settings, timeout=60) as admin:
        spans = admin.offsets(TopicPartition(*place) for place in places)
    ends = {tuple(place): span.end for place, span in spans.items() if span.end > span.start}
    found: dict[Place, list[int]] = {place: [] for place in places}
    reader = Consumer(
        settings.librdkafka(
            {
                "group.id": "soak-all",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
    )
    reader.assign([WirePartition(topic, number, spans[TopicPartition(topic, number)].start) for topic, number in ends])
    deadline = time.monotonic() + 240
    while ends:
        assert time.monotonic() < deadline, f"{len(ends)} partitions could not be read to their ends"
        for message in reader.consume(5_000, timeout=0.1):
            place, error = (message.topic() or "", message.partition() or 0), message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            if error is None:
                found[place].append(VALUE.unpack(message.value() or b"")[0])
            if (message.offset() or 0) + (error is None) >= ends.get(place, -1):
                ends.pop(place, None)
    reader.close()
    return found


def create_topics(settings: ConnectionSettings, names: list[str]) -> None:
    with Admin(settings, timeout=60) as admin:
        for name in names:
            admin.create_topic(name, A_TOPIC, 1)


def states(faulty: Faulty) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for report in read_statuses(faulty.settings["cloud"]):
        found[report.state] += 1
    return dict(found)


def test_faults_at_size(minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSHED_LAB_JVM", f"{os.environ.get('WATERSHED_LAB_JVM', '')} -Xmx1g".strip())
    with faulty_clusters(tmp_path / "clusters", NODES) as faulty:
        source, target = faulty.settings["onprem"], faulty.settings["cloud"]
        began = time.monotonic()
        create_topics(source, TOPICS)
        print(f"\n{len(TOPICS) * A_TOPIC} partitions made in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        plan = applied(faulty.settings, plan_for(faulty.settings, "size", *TOPICS, replication_factor=1))
        print(f"applied in {time.monotonic() - began:.0f} s", flush=True)
        with workers(plan, "cloud", tmp_path) as start:
            first, second = start(), start()
            began = time.monotonic()
            until(lambda: states(faulty) == {"running": len(TOPICS) * A_TOPIC}, 240)
            print(f"all are copied {time.monotonic() - began:.0f} s after two workers began", flush=True)
            with Traffic(source, target) as traffic:
                kept = go_through(faulty, plan, traffic, first, second, start)
                traffic.end()
                traffic.check()
            judge(faulty, traffic, kept)


def go_through(
    faulty: Faulty,
    plan: Plan,
    traffic: Traffic,
    first: WorkerProcess,
    second: WorkerProcess,
    start: Callable[[], WorkerProcess],
) -> dict[Place, list[int]]:
    """All faults. Returns what the target held of the topics that were made anew."""
    source, target = faulty.settings["onprem"], faulty.settings["cloud"]
    with phase("nothing happens", traffic, lambda _place: False, lambda: 0.0):
        time.sleep(20)

    with Admin(target) as admin:
        owners = read_slot_owners(admin, plan.topology)
    statuses = read_statuses(target)
    dying = {report.slot for report in statuses if report.pid == first.pid}
    assert dying
    assert len(set(owners.values())) == 2
    flow = plan.flows[0].id
    with phase("a worker is killed", traffic, lambda place: compute_slot(flow, *place) in dying, lambda: 0.0):
        first.kill()
        time.sleep(45)
    start()
    time.sleep(20)
    assert second.runs()

    led_by_two = find_led_by(target, 2)
    down = 0.0
    with phase("a broker of the target is killed", traffic, lambda place: place in led_by_two, lambda: down):
        before = time.monotonic()
        lab_clusters.kill_lab_broker(faulty.home, "cloud", 2)
        time.sleep(3)
        lab_clusters.restart_lab_broker(faulty.home, "cloud", 2)
        down = time.monotonic() - before
        time.sleep(45)
    print(f"  it was away for {down:.0f} s", flush=True)

    with phase(f"{len(GROWING)} topics grow", traffic, lambda place: place[0] in GROWING, lambda: 0.0):
        with Admin(source, timeout=60) as admin:
            for topic in GROWING:
                admin.create_partitions(topic, A_TOPIC + 1)
        traffic.places = [*traffic.places, *((topic, A_TOPIC) for topic in GROWING)]
        time.sleep(45)

    kept_places = [place for place in traffic.places if place[0] in RECREATED]
    traffic.places = [place for place in traffic.places if place[0] not in RECREATED]
    time.sleep(2)
    whole = {place: list(traffic.acked[place]) for place in kept_places}
    until(lambda: read_numbers(target, kept_places) == whole, 240)
    with phase(f"{len(RECREATED)} topics are made anew", traffic, lambda _place: False, lambda: 0.0):
        client = AdminClient(source.librdkafka())
        for deleted in client.delete_topics(RECREATED, operation_timeout=60).values():
            deleted.result(120)
        time.sleep(2)
        create_topics(source, RECREATED)
        sending = Producer(source.librdkafka())
        for topic, number in kept_places:
            sending.produce(topic, VALUE.pack(-1, time.monotonic()), partition=number)
        assert sending.flush(60) == 0
        halted = {"source_recreated": len(kept_places)}
        until(lambda: {state: count for state, count in states(faulty).items() if state != "running"} == halted, 240)
        time.sleep(20)
    return whole


def find_led_by(settings: ConnectionSettings, broker: int) -> set[Place]:
    listed = AdminClient(settings.librdkafka()).list_topics(timeout=30)
    return {
        (name, number)
        for name in TOPICS
        for number, part in listed.topics[name].partitions.items()
        if part.leader == broker
    }


def judge(faulty: Faulty, traffic: Traffic, kept: dict[Place, list[int]]) -> None:
    """Every record that was acknowledged is on the target once, in its order; nothing of the new topics is."""
    source, target = faulty.settings["onprem"], faulty.settings["cloud"]
    copied = [place for place in traffic.places if place[0] not in RECREATED]
    wanted = {place: traffic.acked[place] for place in copied}
    assert read_numbers(source, copied) == wanted
    last: dict[Place, list[int]] = {}

    def is_copied() -> bool:
        last.update(read_numbers(target, copied))
        return last == wanted

    until(is_copied, 240)
    assert read_numbers(target, list(kept)) == kept
    print(f"{sum(map(len, wanted.values())) + sum(map(len, kept.values())):,} records exact", flush=True)
