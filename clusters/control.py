"""The four control topics on a flow's target cluster, written and read as JSON records (design 01).

Desired state, ledger, status and journal live beside the copied data, so that a failover needs neither the source
nor Airflow's database.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as WirePartition

from clusters import librdkafka
from clusters.admin import Admin
from clusters.errors import ClusterError, ProtocolError, TopicExists, TopicMissing
from clusters.librdkafka import Complaints
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from clusters.surface import Administration

FLOWS = "watershed.flows"
LEDGER = "watershed.ledger"
STATUS = "watershed.status"
JOURNAL = "watershed.journal"
SLOTS = 16

# Segments roll early and small so that compaction really happens; replays at a start stay short.
_COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.2",
    "compression.type": "producer",
}
_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    FLOWS: (1, _COMPACT),
    LEDGER: (SLOTS, _COMPACT),
    STATUS: (SLOTS, _COMPACT),
    JOURNAL: (1, _FOR_EVER),
}

Done = Callable[[ClusterError | None, int], None]
Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of a control topic; value None is a tombstone. timestamp_ms is the writer's clock."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: Value | None


def ensure_control_topics(admin: Administration) -> None:
    """Create what is missing; safe when several processes do it at once. min(3, brokers) replicas.

    Raises `TopicExists` when a topic of that name has another partition count or cleanup policy.
    """
    existing = {name: topic for name in _TOPICS if (topic := admin.topic(name)) is not None}
    replicas = min(3, admin.brokers()) if len(existing) < len(_TOPICS) else 1
    durable = {"min.insync.replicas": "2"} if replicas == 3 else {}
    for name, (partitions, configs) in _TOPICS.items():
        if name not in existing or existing[name].partitions != partitions:
            admin.create_topic(name, partitions, replicas, configs | durable)
    for name, configs in admin.topic_configs(_TOPICS).items():
        wanted = _TOPICS[name][1]["cleanup.policy"]
        found = configs.get("cleanup.policy", "delete")
        if found != wanted:
            raise TopicExists(
                f"topic {name} exists with cleanup.policy={found}, Watershed needs {wanted}: with another policy its "
                f"records get lost. Set it with kafka-configs, or remove the topic if it is not Watershed's.",
                topic=name,
            )


def slot_of(flow: str, topic: str, partition: int) -> int:
    """The slot (partition of ledger and status) of a source partition. Stable over versions: CRC-32 mod SLOTS."""
    return zlib.crc32(f"{flow}|{topic}|{partition}".encode()) % SLOTS


class ControlWriter:
    """Writes control records, acknowledged by all in-sync replicas and idempotent. May be shared by threads."""

    def __init__(
        self, settings: ConnectionSettings, client_id: str = "watershed", *, timeout: float = 15.0
    ) -> None:
        self.settings = settings
        self.timeout = timeout
        self._complaints = Complaints()
        self._failure: ClusterError | None = None
        self._producer = Producer(
            settings.librdkafka(
                {
                    "client.id": client_id,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 1,
                    "compression.type": "lz4",
                    "message.timeout.ms": int(timeout * 1000),
                    "request.timeout.ms": int(timeout * 1000),
                    "error_cb": self._complaints,
                }
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self._producer.purge()

    def put(self, topic: str, key: str, value: Value | None, partition: int | None = None) -> int:
        """Write one record and wait for its acknowledgement; its offset. value None writes a tombstone.

        Raises `ClusterError`; after `Unreachable` the record may or may not be there.
        """
        outcome: list[tuple[ClusterError | None, int]] = []
        landed = threading.Event()

        def done(error: ClusterError | None, offset: int) -> None:
            outcome.append((error, offset))
            landed.set()

        self.put_nowait(topic, key, value, partition, on_done=done)
        deadline = time.monotonic() + self.timeout + 2  # message.timeout.ms reports first
        while not landed.is_set():
            self._producer.poll(0.01)
            if time.monotonic() > deadline:
                raise self.settings.unreachable(
                    f"no acknowledgement for a record of {topic} in {self.timeout:g} s"
                )
        error, offset = outcome[0]
        if error is not None:
            raise error
        return offset

    def put_nowait(
        self,
        topic: str,
        key: str,
        value: Value | None,
        partition: int | None = None,
        on_done: Done | None = None,
    ) -> None:
        """Write one record without waiting. `on_done(error or None, offset or -1)` is called from a later call of
        any method of this writer, on that caller's thread; without it the next `flush` raises the first failure."""
        payload = None if value is None else encode(value)
        delivered = self._delivered(topic, on_done)
        where = {} if partition is None else {"partition": partition}
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                self._producer.produce(topic, payload, key.encode(), on_delivery=delivered, **where)
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise self.settings.unreachable(f"the queue for {topic} does not drain") from None
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._error(librdkafka.reason(error), topic, partition) from None
        self._producer.poll(0)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything written is acknowledged. Raises the first failure that nobody was told about."""
        limit = self.timeout if timeout is None else timeout
        left = self._producer.flush(limit)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if left:
            raise self.settings.unreachable(f"{left} control records are not acknowledged after {limit:g} s")

    def _delivered(self, topic: str, on_done: Done | None) -> Callable[[KafkaError | None, Message], None]:
        def delivered(problem: KafkaError | None, message: Message) -> None:
            error = self._error(problem, topic, message.partition()) if problem else None
            offset = message.offset()
            if on_done is not None:
                on_done(error, -1 if error or offset is None else offset)
            elif error is not None and self._failure is None:
                self._failure = error

        return delivered

    def _error(self, problem: KafkaError, topic: str, partition: int | None) -> ClusterError:
        return librdkafka.cluster_error(
            self.settings,
            problem,
            self._complaints,
            doing=f"writing to {topic}",
            topic=topic,
            partition=partition,
        )


def read_log(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None = None,
    from_offset: int | Mapping[int, int] | None = None,
    *,
    timeout: float = 15.0,
) -> Iterator[ControlRecord]:
    """Every committed record from the log start (or `from_offset`) up to the ends at the time of the call.

    Records of one partition come in order; partitions are mixed. `timeout` bounds each wait for progress.
    Raises `TopicMissing`, `Unreachable`, and `ProtocolError` for a record that is not ours.
    """
    with Admin(settings, timeout=timeout) as admin:
        if partitions is None:
            found = admin.topic(topic)
            if found is None:
                raise _not_there(settings, topic)
            partitions = range(found.partitions)
        ranges = admin.offsets(TopicPartition(topic, number) for number in partitions)
    todo: dict[int, tuple[int, int]] = {}  # partition -> from, to
    for (_, number), span in ranges.items():
        wanted = from_offset.get(number, 0) if isinstance(from_offset, Mapping) else from_offset or 0
        if max(span.start, wanted) < span.end:
            todo[number] = (max(span.start, wanted), span.end)
    return _records(settings, topic, todo, timeout)


def latest(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    timeout: float = 15.0,
) -> dict[str, Value]:
    """The newest value of every key, as compaction would leave it; keys deleted by a tombstone are absent."""
    view: dict[str, Value] = {}
    for record in read_log(settings, topic, partitions, timeout=timeout):
        if record.value is None:
            view.pop(record.key, None)
        else:
            view[record.key] = record.value
    return view


def encode(value: Value) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8. Equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _records(
    settings: ConnectionSettings, topic: str, todo: dict[int, tuple[int, int]], timeout: float
) -> Iterator[ControlRecord]:
    if not todo:
        return
    complaints = Complaints()
    consumer = Consumer(
        settings.librdkafka(
            {
                "group.id": f"watershed-reader-{uuid.uuid4()}",  # required by librdkafka, never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "error_cb": complaints,
            }
        )
    )
    try:
        consumer.assign([WirePartition(topic, number, start) for number, (start, _) in todo.items()])
        ends = {number: end for number, (_, end) in todo.items()}
        deadline = time.monotonic() + timeout
        while ends:
            messages = consumer.consume(500, timeout=0.5)
            if messages:
                deadline = time.monotonic() + timeout
            elif time.monotonic() > deadline:
                silence = KafkaError(KafkaError._TIMED_OUT, f"nothing for {timeout:g} s")
                raise librdkafka.cluster_error(
                    settings, silence, complaints, doing=f"reading {topic}", topic=topic
                )
            for message in messages:
                number, offset = message.partition() or 0, message.offset() or 0
                problem = message.error()
                if problem is None:
                    if number in ends and offset < ends[number]:
                        yield _record(settings, topic, number, offset, message)
                elif problem.code() != KafkaError._PARTITION_EOF:
                    raise librdkafka.cluster_error(
                        settings, problem, complaints, doing=f"reading {topic}", topic=topic, partition=number
                    )
                # An end-of-partition event carries the next offset, a record its own.
                if number in ends and offset + (problem is None) >= ends[number]:
                    del ends[number]
    finally:
        consumer.close()


def _record(
    settings: ConnectionSettings, topic: str, number: int, offset: int, message: Message
) -> ControlRecord:
    try:
        key, payload = (message.key() or b"").decode(), message.value()
        value = None if payload is None else json.loads(payload)
        if not key or not (value is None or isinstance(value, dict)):
            raise ValueError
    except ValueError:
        raise ProtocolError(
            f"{topic}-{number} offset {offset} on cluster {settings.alias} is not a Watershed record (a JSON object "
            f"under a key). Only Watershed may write to {topic}: find the writer and restrict it with an ACL.",
            alias=settings.alias,
            topic=topic,
            partition=number,
        ) from None
    return ControlRecord(number, offset, message.timestamp()[1], key, value)


def _not_there(settings: ConnectionSettings, topic: str) -> TopicMissing:
    return TopicMissing(
        f"cluster {settings.alias} has no topic {topic}. `topology apply` creates the control topics.",
        alias=settings.alias,
        topic=topic,
    )
