"""Real brokers, real records, real worker processes: what the fault tests share."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as WirePartition

from tests.replicator.status_view import read_statuses
from tests.replicator.worker_forks import fork_worker
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import compute_slot
from watershed.clusters.errors import ClusterError
from watershed.clusters.partition_status_records import read_status_reports
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.worker_heartbeats import add_worker_latencies
from watershed.replicator.apply import apply_plan
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.ledger import read_ledger
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, encode_plan, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

Record = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def settings_of(lab) -> dict[str, ConnectionSettings]:
    return {
        alias: ConnectionSettings(alias=alias, bootstrap=tuple(cluster.bootstrap.split(",")))
        for alias, cluster in lab.clusters.items()
    }


def plan_for(settings, name: str, *topics: str, routes=(("onprem", "cloud"),), **flow) -> Plan:
    flows = tuple(
        PlanFlow(
            id=f"{source}-to-{target}-{name}",  # all tests share the clusters' flows
            source=source,
            target=target,
            topics=TopicSelection(include=tuple(Selector("literal", topic) for topic in topics)),
            engine="process",
            discovery_ms=1_000,
            **flow,
        )
        for source, target in routes
    )
    clusters = tuple(PlanCluster(alias, each.bootstrap) for alias, each in settings.items())
    return seal_plan(Plan(topology=name, clusters=clusters, flows=flows))


def applied(settings, plan: Plan) -> Plan:
    apply_plan(plan, settings.__getitem__)
    return plan


class WorkerProcess:
    """A worker in a process of its own, ended with the test. `prelude`: Python statements it runs first."""

    def __init__(self, plan: Plan, target: str, directory: Path, prelude: str = "") -> None:
        name = f"worker-{time.monotonic_ns()}"
        path, self.log = directory / f"{name}.json", directory / f"{name}.log"  # another worker may be reading its own
        path.write_text(encode_plan(plan))
        self._process = fork_worker(path, target, prelude, self.log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait()


@contextmanager
def workers(plan: Plan, target: str, directory: Path, prelude: str = "") -> Iterator[Callable[[], WorkerProcess]]:
    started: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        started.append(WorkerProcess(plan, target, directory, prelude))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.stop()


def producer(settings: ConnectionSettings, **extra) -> Producer:
    return Producer(settings.librdkafka({"linger.ms": 5, "queue.buffering.max.messages": 1_000_000} | extra))


def put(into: Producer, topic: str, count: int, start: int = 0, size: int = 60) -> None:
    """`count` records, numbered from `start`, over the topic's partitions by key, with headers and nulls mixed in."""
    for number in range(start, start + count):
        value = None if number % 97 == 0 else json.dumps({"n": number}).encode() + b"." * size
        headers = [("n", str(number).encode()), ("empty", None)] if number % 5 == 0 else None
        while True:
            try:
                into.produce(topic, value, key=f"key-{number % 501}".encode(), headers=headers)
                break
            except BufferError:
                into.poll(0.05)
    into.poll(0)


def read_all(settings: ConnectionSettings, topic: str, partitions: int) -> dict[int, list[tuple[int, Record]]]:
    """Every committed record by partition as (offset, record), up to the log ends of the moment."""
    where = [TopicPartition(topic, number) for number in range(partitions)]
    with Admin(settings) as admin:
        ranges = admin.offsets(where)
    found: dict[int, list[tuple[int, Record]]] = {number: [] for number in range(partitions)}
    open_ends = {key.partition: span.end for key, span in ranges.items() if span.end > span.start}
    consumer = Consumer(
        settings.librdkafka(
            {
                "group.id": "test-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
    )
    try:
        consumer.assign(
            [WirePartition(topic, number, ranges[TopicPartition(topic, number)].start) for number in open_ends]
        )
        deadline = time.monotonic() + 180
        while open_ends:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end: {open_ends}"
            for message in consumer.consume(5000, timeout=0.05):
                number, offset, error = message.partition(), message.offset(), message.error()
                if error is None:
                    record = (message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))
                    found[number].append((offset, record))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                if number in open_ends and offset + (error is None) >= open_ends[number]:
                    del open_ends[number]
    finally:
        consumer.close()
    return found


def wait_copied(settings, plan: Plan, topic: str, partitions: int, timeout: float = 180) -> None:
    """Until the ledger says that everything committed on the source is on the target. Leaders may move."""
    flow = plan.flows[0]
    source, target = settings[flow.source], settings[flow.target]
    here = [TopicPartition(topic, number) for number in range(partitions)]
    there = [TopicPartition(flow.target_topic(topic), number) for number in range(partitions)]
    slots = {compute_slot(flow.id, topic, number) for number in range(partitions)}
    deadline = time.monotonic() + timeout
    seen, before, looked = "", None, time.monotonic() - 0.5
    with Admin(source) as at_source, Admin(target) as at_target:
        while time.monotonic() < deadline:
            try:
                ends = {key.partition: span.end for key, span in at_source.offsets(here).items()}
                target_ends = {key.partition: span.end for key, span in at_target.offsets(there).items()}
                # To read the ledger takes a consumer of its own: seldom while the logs still move.
                moves, before = (ends, target_ends) != before, (ends, target_ends)
                if time.monotonic() < looked + (2 if moves else 0.5):
                    time.sleep(0.25)
                    continue
                ledger, looked = read_ledger(target, flow=flow.id, slots=slots), time.monotonic()
            except ClusterError as error:
                seen = str(error)
                time.sleep(0.2)
                continue
            known = {key.partition for key in ledger.copies() if key.topic == topic}
            try:
                positions = {
                    number: ledger.map(flow.id, topic, number).source_position(target_ends[number]) for number in known
                }
            except ReplicatorError as error:  # the log was still being filled when its end was asked for
                seen = str(error)
                continue
            if positions == ends:
                return
            seen = f"source ends {ends}, copied through {positions}"
    told = [
        f"{each.partition}: {each.state} {each.error or ''}" for each in read_statuses(target) if each.topic == topic
    ]
    raise AssertionError(f"not copied within {timeout} s: {seen}; {told}")


def wait_progress(settings, plan: Plan, topic: str, partitions: int, records: int, timeout: float = 180) -> None:
    """Until at least `records` offsets of the topic exist on the target. Leaders may move."""
    target = settings[plan.flows[0].target]
    where = [TopicPartition(topic, number) for number in range(partitions)]
    deadline = time.monotonic() + timeout
    seen = ""
    with Admin(target) as admin:
        while True:
            try:
                found = sum(span.end for span in admin.offsets(where).values())
                if found >= records:
                    return
                seen = f"{found} offsets"
            except ClusterError as error:
                seen = str(error)
            assert time.monotonic() < deadline, f"fewer than {records} records copied within {timeout} s: {seen}"
            time.sleep(0.2)


def wait_latencies(settings, plan: Plan, records: int, timeout: float = 60) -> dict[int, int]:
    """Until the workers' heartbeats tell the latencies of so many records of the last seconds."""
    flow = plan.flows[0]
    deadline, counts = time.monotonic() + timeout, {}
    while time.monotonic() < deadline:
        now = int(time.time() * 1000)
        heartbeats = read_status_reports(settings[flow.target]).heartbeats
        counts = add_worker_latencies(heartbeats, now).get(flow.id, {})
        if sum(counts.values()) >= records:
            return counts
        time.sleep(0.3)
    raise AssertionError(f"latencies of {sum(counts.values())} records, {records} were copied")


def wait_decided(settings: ConnectionSettings, topic: str, timeout: float = 180) -> None:
    """Until each transaction that has records in the topic now has its markers there: coordinators answer before."""
    deadline = time.monotonic() + timeout
    with Admin(settings) as admin:
        found = admin.topic(topic)
        assert found is not None, f"no topic {topic}"
        where = [TopicPartition(topic, number) for number in range(found.partitions)]
        ends = {place: span.end for place, span in admin.offsets(where, "read_uncommitted").items()}
        while any(span.end < ends[place] for place, span in admin.offsets(where).items()):
            assert time.monotonic() < deadline, f"a transaction in {topic} stays open"
            time.sleep(0.05)


def wait_end(settings: ConnectionSettings, topic: str, partition: int, end: int, timeout: float = 180) -> None:
    """Until the partition ends at `end`, with the markers that coordinators write behind their answers."""
    where, deadline = TopicPartition(topic, partition), time.monotonic() + timeout
    with Admin(settings) as admin:
        while (found := admin.offsets([where], "read_uncommitted")[where].end) < end:
            assert time.monotonic() < deadline, f"{where} ends at {found}, not at {end}"
            time.sleep(0.02)


def end_of(settings: ConnectionSettings, topic: str, partition: int) -> int:
    where = TopicPartition(topic, partition)
    with Admin(settings) as admin:
        return admin.offsets([where], "read_uncommitted")[where].end


def assert_exact_copy(settings, plan: Plan, topic: str, partitions: int) -> int:
    """Same records in the same order, once each, and the offset map right at every offset. Returns the count."""
    flow = plan.flows[0]
    here = read_all(settings[flow.source], topic, partitions)
    there = read_all(settings[flow.target], flow.target_topic(topic), partitions)
    ledger = read_ledger(settings[flow.target], flow=flow.id)
    total = 0
    for number in range(partitions):
        assert [record for _, record in there[number]] == [record for _, record in here[number]], f"partition {number}"
        offsets = ledger.map(flow.id, topic, number)
        end = there[number][-1][0] + 1 if there[number] else 0
        for (source_offset, _), (target_offset, _) in zip(here[number], there[number], strict=True):
            assert offsets.to_target(source_offset, end) == target_offset
            assert offsets.to_source(target_offset) == source_offset
        total += len(here[number])
    return total
