"""The four control topics on a flow's target cluster, written and read as JSON records.

Desired state, ledger, status and journal live beside the copied data, so that a failover needs neither the
source nor Airflow's database.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from watershed.clusters import librdkafka
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ClusterError, TopicExists
from watershed.clusters.librdkafka import LibrdkafkaErrors
from watershed.clusters.secret_rotation import SecretRotation
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.versions import Api

FLOWS_TOPIC = "watershed.flows"
LEDGER_TOPIC = "watershed.ledger"
STATUS_TOPIC = "watershed.status"
JOURNAL_TOPIC = "watershed.journal"
SLOT_COUNT = 16
_ASKED_S: Final = 5.0  # for one answer of a broker

# Segments roll early and small so that compaction really happens; replays at a start stay short.
_COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.2",
    "compression.type": "producer",
}
# What replaces small ledger records deletes them, seventeen at a time. Readers follow within seconds, and one that
# missed a tombstone would only read again what a block repeats.
_SHORT_TOMBSTONES = {"delete.retention.ms": "3600000"}
# One entry holds the positions of all groups of a wave on both sides: thirty groups that read a thousand partitions
# each go beyond the usual 1 MiB. 8 MiB (compressed) is the most that hosted clusters let a topic have.
_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "8388608"}
_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    FLOWS_TOPIC: (1, _COMPACT),
    LEDGER_TOPIC: (SLOT_COUNT, _COMPACT | _SHORT_TOMBSTONES),
    STATUS_TOPIC: (SLOT_COUNT, _COMPACT),
    JOURNAL_TOPIC: (1, _FOR_EVER),
}

WriteCallback = Callable[[ClusterError | None, int], None]


@dataclass(frozen=True, slots=True)
class ControlTopic:
    """One of Watershed's own topics, as it is created. configs: its own, by Kafka's key."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]


def list_control_topics(brokers: int) -> list[ControlTopic]:
    """The topics that a flow's target has, as they are created there: min(3, brokers) replicas."""
    replicas = min(3, brokers)
    durable = {"min.insync.replicas": "2"} if replicas == 3 else {}
    return [ControlTopic(name, count, replicas, configs | durable) for name, (count, configs) in _TOPICS.items()]


def ensure_control_topics(admin: ClusterProtocol) -> None:
    """Create what is missing; safe when several processes do it at once. min(3, brokers) replicas.

    Raises `TopicExists` when a topic of that name has another partition count or cleanup policy.
    """
    existing = {name: topic for name in _TOPICS if (topic := admin.topic(name)) is not None}
    for each in list_control_topics(admin.brokers() if len(existing) < len(_TOPICS) else 1):
        if each.name not in existing or existing[each.name].partitions != each.partitions:
            admin.create_topic(each.name, each.partitions, each.replicas, each.configs)
    for name, configs in admin.topic_configs(_TOPICS).items():
        wanted = _TOPICS[name][1]["cleanup.policy"]
        found = configs.get("cleanup.policy", "delete")
        if found != wanted:
            raise TopicExists(
                f"topic {name} exists with cleanup.policy={found}, Watershed needs {wanted}: with any other "
                f"its records get lost. Set it with kafka-configs, or remove the topic if it is not Watershed's.",
                topic=name,
            )


def compute_slot(flow: str, topic: str, partition: int) -> int:
    """The slot (partition of ledger and status) of a source partition. Stable for ever: CRC-32 mod SLOTS."""
    return zlib.crc32(f"{flow}|{topic}|{partition}".encode()) % SLOT_COUNT


class ControlWriter:
    """Writes control records, acknowledged by all in-sync replicas. May be shared by threads.

    It is idempotent, but where brokers do not take that; there, one request is under way at a time, so records keep
    their order, and one that is sent again stands twice with the same key and value.
    """

    def __init__(self, settings: ConnectionSettings, client_id: str = "watershed", *, timeout: float = 15.0) -> None:
        self.settings = settings
        self.timeout = timeout
        self._complaints = LibrdkafkaErrors()
        self._failure: ClusterError | None = None
        self._client_id = client_id
        self._lock = threading.Lock()  # held while a message goes to the producer, so that none goes to an old one
        self._rotation = SecretRotation(settings)
        self._producer = self._made()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self._producer.purge()

    def put(self, topic: str, key: str, value: ControlValue | None, partition: int | None = None) -> int:
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
            self.poll(0.01)
            if time.monotonic() > deadline:
                raise self.settings.unreachable(f"no acknowledgement for a record of {topic} in {self.timeout:g} s")
        error, offset = outcome[0]
        if error is not None:
            raise error
        return offset

    def put_nowait(
        self,
        topic: str,
        key: str,
        value: ControlValue | None,
        partition: int | None = None,
        on_done: WriteCallback | None = None,
    ) -> None:
        """Write one record without waiting. `on_done(error or None, offset or -1)` is called from a later call
        of any method of this writer, on that caller's thread, and must not call the writer itself (the client
        library crashes when it is entered from its own callback); without it the next `flush` raises the first
        failure."""
        payload = None if value is None else encode_control_value(value)
        self.put_bytes_nowait(topic, key.encode(), payload, partition, on_done)

    def put_bytes_nowait(
        self,
        topic: str,
        key: bytes,
        payload: bytes | None,
        partition: int | None = None,
        on_done: WriteCallback | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """As `put_nowait`, for records of other tools' topics. timestamp_ms: of the record; 0: now."""
        delivered = self._delivered(topic, on_done)
        number = -1 if partition is None else partition  # -1: by the key's hash
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                with self._lock:
                    self._renew()
                    self._producer.produce(topic, payload, key, number, delivered, timestamp=timestamp_ms)
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise self.settings.unreachable(f"the queue for {topic} does not drain") from None
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._error(librdkafka.extract_kafka_error(error), topic, partition) from None
        self._producer.poll(0)

    def poll(self, timeout: float) -> None:
        """Call the `on_done` of whatever was acknowledged; wait up to `timeout` seconds for something."""
        with self._lock:
            self._renew()
            producer = self._producer
        producer.poll(timeout)

    @property
    def waiting(self) -> int:
        """How many records are not acknowledged, or their `on_done` not called."""
        return len(self._producer)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything written is acknowledged. Raises the first failure nobody was told about."""
        limit = self.timeout if timeout is None else timeout
        left = self._producer.flush(limit)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if left:
            raise self.settings.unreachable(f"{left} control records are not acknowledged after {limit:g} s")

    def _renew(self) -> None:
        """New secrets into the producer; new certificates need a new one, which waits until nothing is under way."""
        if self._rotation.spent(self._producer) and len(self._producer) == 0:
            renewed = self._rotation.replace_client(self._made)
            if renewed is not None:
                self._rotation, self._producer = renewed

    def _made(self) -> Producer:
        idempotent = can_write_idempotently(self.settings)
        return Producer(
            self.settings.librdkafka(
                {
                    "client.id": self._client_id,
                    "acks": "all",
                    "enable.idempotence": idempotent,
                    "linger.ms": 1,
                    "compression.type": "lz4",
                    "message.max.bytes": 64 << 20,  # before compression; the topic's own limit decides
                    "message.timeout.ms": int(self.timeout * 1000),
                    "request.timeout.ms": int(self.timeout * 1000),
                    "topic.metadata.propagation.max.ms": 3000,
                    "error_cb": self._complaints,
                }
                | ({} if idempotent else {"max.in.flight": 1})
            )
        )

    def _delivered(self, topic: str, on_done: WriteCallback | None) -> Callable[[KafkaError | None, Message], None]:
        def delivered(problem: KafkaError | None, message: Message) -> None:
            error = self._error(problem, topic, message.partition()) if problem else None
            offset = message.offset()
            if on_done is not None:
                on_done(error, -1 if error or offset is None else offset)
            elif error is not None and self._failure is None:
                self._failure = error

        return delivered

    def _error(self, problem: KafkaError, topic: str, partition: int | None) -> ClusterError:
        return librdkafka.build_cluster_error(
            self.settings,
            problem,
            self._complaints,
            doing=f"writing to {topic}",
            topic=topic,
            partition=partition,
        )


def can_write_idempotently(settings: ConnectionSettings) -> bool:
    """Whether the brokers take idempotent producers. True also where none answers: whoever writes is told then."""
    try:
        with closing(open_connection(settings, timeout_s=_ASKED_S)) as connection:
            return Api.INIT_PRODUCER_ID in connection.versions.ranges
    except ClusterError:
        return True


def encode_control_value(value: ControlValue) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8. Equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
