"""The quarantine: what a target does not take is kept on the target cluster, with its coordinates.

One topic a cluster, `watershed.quarantine`, without an end to its retention. A record is acknowledged there before
anything behind it is copied, at least once: after a crash it may stand there twice, under the same key
(`flow|topic|partition|offset`), so repeats are easily told. Records of one partition come in its order, all in one
partition of the quarantine (its slot). A record too large even for the quarantine is kept without its value (decision
0021).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_messages
from watershed.clusters.control_topics import SLOT_COUNT, compute_slot
from watershed.clusters.errors import ClusterError
from watershed.clusters.librdkafka import LibrdkafkaErrors
from watershed.clusters.record_fingerprint import encode_headers_bin, fingerprint_record
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.partition_key import PartitionKey

_QUARANTINE = "watershed.quarantine"
MAX_WHOLE_RECORD_BYTES = (
    64 << 20
)  # bytes of key, value and headers that are kept whole; socket.request.max.bytes is 100 MiB
_ROOM = 1 << 20  # for our own headers and the front of the batch
_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(MAX_WHOLE_RECORD_BYTES + _ROOM),
    "message.timestamp.type": "CreateTime",
}
_OURS = "watershed."
_LAST_OF_OURS = "watershed.key"  # behind it stand the record's own headers
_PATIENCE_S = 60.0

_Headers = list[tuple[str, str | bytes | None]]


@dataclass(slots=True)
class QuarantineWriter:
    """Writes for one target cluster; connects when the first record is refused. May be shared by threads."""

    settings: ConnectionSettings
    _producer: Producer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _complaints: LibrdkafkaErrors = field(default_factory=LibrdkafkaErrors)

    def keep(self, key: PartitionKey, rejected: Sequence[RejectedRecord]) -> None:
        """Write them and wait until the brokers hold them. Raises ClusterError; then some may be there."""
        with self._lock:
            refused = self._write(key, rejected, whole=True)
            for error in self._write(key, refused, whole=False):
                raise ClusterError(f"{_QUARANTINE} does not take source offset {error.source_offset} of {key.topic}")

    def _write(self, key: PartitionKey, rejected: Sequence[RejectedRecord], *, whole: bool) -> list[RejectedRecord]:
        """Returns those that are too large for the topic as it is."""
        too_large: list[RejectedRecord] = []
        failures: list[KafkaError] = []
        left = len(rejected)

        def done(record: RejectedRecord, problem: KafkaError | None, _message: Message | None = None) -> None:
            nonlocal left
            left -= 1
            if problem is not None and problem.code() == KafkaError.MSG_SIZE_TOO_LARGE and whole:
                too_large.append(record)
            elif problem is not None:
                failures.append(problem)

        deadline = time.monotonic() + _PATIENCE_S
        for record in rejected:
            value, headers = encode_rejected_record(
                key, record, whole=whole and measure_rejected_record(record) <= MAX_WHOLE_RECORD_BYTES
            )
            name = build_quarantine_key(key, record.source_offset).encode()
            slot = compute_slot(key.flow, key.topic, key.partition)
            self._put(name, value, headers, slot, partial(done, record), deadline)
        deadline = time.monotonic() + _PATIENCE_S
        while left:
            self._connected().poll(0.05)
            if time.monotonic() > deadline:
                raise self.settings.unreachable(f"no acknowledgement for records of {_QUARANTINE}")
        if failures:
            raise librdkafka.build_cluster_error(
                self.settings, failures[0], self._complaints, doing=f"writing to {_QUARANTINE}", topic=_QUARANTINE
            )
        return too_large

    def _put(
        self,
        name: bytes,
        value: bytes | None,
        headers: _Headers,
        slot: int,
        done: Callable[..., None],
        deadline: float,
    ) -> None:
        """Hand one record to the client library; waits while that holds as many as it may. Raises ClusterError."""
        while True:
            try:
                self._connected().produce(_QUARANTINE, value, name, slot, headers=headers, on_delivery=done)
            except BufferError:
                if time.monotonic() > deadline:
                    raise self.settings.unreachable(f"the queue for {_QUARANTINE} does not drain") from None
                self._connected().poll(0.1)
            except KafkaException as error:
                done(librdkafka.extract_kafka_error(error))
                return
            else:
                return

    def _connected(self) -> Producer:
        if self._producer is None:
            with Admin(self.settings) as admin:
                if admin.topic(_QUARANTINE) is None:
                    admin.create_topic(_QUARANTINE, SLOT_COUNT, min(3, admin.brokers()), _CONFIGS)
            self._producer = Producer(
                self.settings.librdkafka(
                    {
                        "client.id": "watershed-quarantine",
                        "acks": "all",
                        "enable.idempotence": True,
                        "linger.ms": 1,
                        "message.max.bytes": MAX_WHOLE_RECORD_BYTES + _ROOM,
                        "message.timeout.ms": int(_PATIENCE_S * 500),
                        "error_cb": self._complaints,
                    }
                )
            )
        return self._producer


def build_quarantine_key(key: PartitionKey, offset: int) -> str:
    """Key of a rejected record in the quarantine topic: `flow|topic|partition|offset` of the source."""
    return f"{key.flow}|{key.topic}|{key.partition}|{offset}"


def measure_rejected_record(record: RejectedRecord) -> int:
    """Bytes of its key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def encode_rejected_record(key: PartitionKey, record: RejectedRecord, *, whole: bool) -> tuple[bytes | None, _Headers]:
    """Value and headers of the record in the quarantine: ours first, then its own as they were. A record that is not
    kept whole leaves its value, key and headers out and says how large they were."""
    headers: _Headers = [
        ("watershed.flow", key.flow.encode()),
        ("watershed.topic", key.topic.encode()),
        ("watershed.target_topic", key.target_topic.encode()),
        ("watershed.partition", str(key.partition).encode()),
        ("watershed.offset", str(record.source_offset).encode()),
        ("watershed.timestamp", str(record.timestamp).encode()),
        ("watershed.reason", record.reason.encode()),
        ("watershed.size", str(measure_rejected_record(record)).encode()),
        ("watershed.whole", b"yes" if whole else b"no"),
        ("watershed.fingerprint", f"{_fingerprint(record):016x}".encode()),
    ]
    if not whole:
        return None, headers
    headers.append((_LAST_OF_OURS, record.key))
    # Names are text for the client library; one that is no UTF-8 could not have come from a Java producer.
    headers += [(name.decode(errors="replace"), value) for name, value in record.headers]
    return record.value, headers


def _fingerprint(record: RejectedRecord) -> int:
    return fingerprint_record(record.key, record.value, encode_headers_bin(record.headers), record.timestamp).fp


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record in the quarantine. offset, timestamp (ms): as on the source. size: bytes it had there. whole: its key,
    value and headers are kept; otherwise only these coordinates are, and its fingerprint
    (`clusters.record_fingerprint`; None
    in what an older worker wrote)."""

    flow: str
    topic: str
    target_topic: str
    partition: int
    offset: int
    timestamp: int
    reason: str
    size: int
    whole: bool
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)
    fingerprint: int | None = None


def read_quarantine(settings: ConnectionSettings, flow: str) -> list[QuarantinedRecord]:
    """What is in quarantine for one flow, by topic, partition and offset, each record once. Raises ClusterError."""
    found: dict[bytes, QuarantinedRecord] = {}
    prefix = f"{flow}|".encode()
    for message in _messages(settings):
        name = _bytes(message.key()) or b""
        if name.startswith(prefix):
            found[name] = _quarantined(message)
    return sorted(found.values(), key=lambda each: (each.topic, each.partition, each.offset))


def _quarantined(message: Message) -> QuarantinedRecord:
    raw_headers = cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    headers = [(name, _bytes(value)) for name, value in raw_headers]
    last = next((at for at, (name, _) in enumerate(headers) if name == _LAST_OF_OURS), len(headers) - 1)
    ours = {name.removeprefix(_OURS): value for name, value in headers[: last + 1]}

    def text(name: str) -> str:
        return (ours.get(name) or b"").decode(errors="replace")

    whole = text("whole") == "yes"
    return QuarantinedRecord(
        flow=text("flow"),
        topic=text("topic"),
        target_topic=text("target_topic"),
        partition=int(text("partition")),
        offset=int(text("offset")),
        timestamp=int(text("timestamp")),
        reason=text("reason"),
        size=int(text("size")),
        whole=whole,
        key=ours.get("key"),
        value=_bytes(message.value()),
        headers=tuple(headers[last + 1 :]) if whole else (),
        fingerprint=int(text("fingerprint"), 16) if "fingerprint" in ours else None,
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _messages(settings: ConnectionSettings) -> Iterator[Message]:
    with Admin(settings) as admin:
        topic = admin.topic(_QUARANTINE)
        if topic is None:
            return iter(())
        ranges = admin.offsets(TopicPartition(_QUARANTINE, number) for number in range(topic.partitions))
    todo = {key.partition: (span.start, span.end) for key, span in ranges.items() if span.start < span.end}
    return read_messages(settings, _QUARANTINE, todo, _PATIENCE_S)
