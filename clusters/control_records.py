"""Reading a topic from its start to its end: as stored, as JSON records, or as their newest values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as WirePartition

from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import ReadIsolation
from watershed.clusters.control_values import (
    ControlValue,
    InvalidControlRecord,
    decode_control_value,
    log_invalid_record,
)
from watershed.clusters.errors import TopicMissing
from watershed.clusters.librdkafka import LibrdkafkaErrors
from watershed.clusters.partition_consumer import bound_read_ahead, build_partition_consumer, is_group_error
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition

_T = TypeVar("_T")

_READ_TOGETHER = 1_000  # records that the client library hands over in one call, at most


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of a control topic; value None is a tombstone. timestamp_ms is the writer's clock.

    why: empty, or why the record is not valid (`clusters.control_values`); the value is None then.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: ControlValue | None
    why: str = ""

    def invalid(self, cluster: str, topic: str, why: str = "") -> InvalidControlRecord:
        """The entry for the log. why: the reason that the reader found, instead of the record's own."""
        return InvalidControlRecord(cluster, topic, self.partition, self.offset, self.key, why or self.why)


class StoredControlRecord(NamedTuple):
    """One record of a control topic as it is stored: a quarter of the memory of a `ControlRecord`, and most records of
    a log that is not compacted yet are never decoded. value None is a tombstone."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None

    def decode(self) -> ControlRecord:
        """Decodes key and value. A record that is not valid carries the reason in `why`."""
        value, why = None, ""
        try:
            key = self.key.decode()
            value = None if self.value is None else decode_control_value(self.value)
            if not key:
                raise ValueError("it has no key")
        except ValueError as error:
            key = self.key.decode(errors="replace")
            value, why = None, "its key is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return ControlRecord(self.partition, self.offset, self.timestamp_ms, key, value, why)


def read_control_log(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None = None,
    from_offset: int | Mapping[int, int] | None = None,
    *,
    timeout: float = 15.0,
    whole: bool = False,
    invalid: bool = False,
) -> Iterator[ControlRecord]:
    """Every committed record from the log start (or `from_offset`) up to the ends at the time of the call.

    Records of one partition come in order; partitions are mixed. `timeout` bounds each wait for progress.
    whole: up to the log ends rather than the last stable offsets: what was acknowledged before the call is seen, even
    while somebody else's transaction is open below it, at the price of waiting until that has ended.
    invalid: yield records that are not valid too, with the reason in `why`; without it they are logged and left out.
    Raises `TopicMissing`, `Unreachable`.
    """
    stored = read_stored_records(settings, topic, partitions, from_offset, timeout=timeout, whole=whole)
    records = (record.decode() for record in stored)
    return records if invalid else _valid(settings, topic, records)


def read_stored_records(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None = None,
    from_offset: int | Mapping[int, int] | None = None,
    *,
    timeout: float = 15.0,
    whole: bool = False,
) -> Iterator[StoredControlRecord]:
    """As `read_control_log`, without decoding: for callers who need the newest record of each key only."""
    isolation: ReadIsolation = "read_uncommitted" if whole else "read_committed"
    todo = _find_ranges(settings, topic, partitions, from_offset, isolation, timeout)
    return map(_keep_bytes, read_messages(settings, topic, todo, timeout))


def _find_ranges(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None,
    from_offset: int | Mapping[int, int] | None,
    isolation: ReadIsolation,
    timeout: float,
) -> dict[int, tuple[int, int]]:
    """What is there to be read: partition → (first offset, end offset). Raises `TopicMissing`, `Unreachable`."""
    with Admin(settings, timeout=timeout) as admin:
        if partitions is None:
            found = admin.topic(topic)
            if found is None:
                raise _not_there(settings, topic)
            partitions = range(found.partitions)
        ranges = admin.offsets((TopicPartition(topic, number) for number in partitions), isolation)
    todo: dict[int, tuple[int, int]] = {}
    for (_, number), span in ranges.items():
        wanted = from_offset.get(number, 0) if isinstance(from_offset, Mapping) else from_offset or 0
        if max(span.start, wanted) < span.end:
            todo[number] = (max(span.start, wanted), span.end)
    return todo


def _valid(settings: ConnectionSettings, topic: str, records: Iterable[ControlRecord]) -> Iterator[ControlRecord]:
    for record in records:
        if record.why:
            log_invalid_record(record.invalid(settings.alias, topic))
        else:
            yield record


def read_latest_values(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    prefix: str = "",
    timeout: float = 15.0,
) -> dict[str, ControlValue]:
    """The newest value of every key that begins with `prefix`, as compaction would leave it; keys deleted by a
    tombstone are absent.

    Only the newest record of a key is decoded: before compaction a topic holds many times as many. Where one of these
    is not valid, all are read again, for the key's earlier value still counts.
    """
    newest: dict[bytes, StoredControlRecord] = {}
    begins = prefix.encode()
    for stored in read_stored_records(settings, topic, partitions, timeout=timeout):
        if stored.key.startswith(begins):
            newest[stored.key] = stored
    records = [stored.decode() for stored in newest.values()]
    if any(record.why for record in records):
        every = read_control_log(settings, topic, partitions, timeout=timeout)
        records = [record for record in every if record.key.startswith(prefix)]
    latest = {record.key: record for record in records}
    return {key: record.value for key, record in latest.items() if record.value is not None}


def read_latest_records(
    settings: ConnectionSettings,
    topic: str,
    read: Callable[[ControlValue, str], _T],
    wanted: Callable[[str], bool],
    partitions: Iterable[int] | None = None,
    unreadable: dict[str, ValueError] | None = None,
) -> dict[str, _T]:
    """Returns the newest value of every `wanted` key, parsed by `read`.

    A value that `read` cannot parse is logged and changes nothing: the key's earlier value still counts, as long as
    compaction has left it. unreadable: is filled with the keys whose newest value is such a one.
    """
    view: dict[str, _T] = {}
    refused: dict[str, ValueError] = {} if unreadable is None else unreadable
    for record in read_control_log(settings, topic, partitions):
        if wanted(record.key):
            refused.pop(record.key, None)
            if record.value is None:
                view.pop(record.key, None)
            else:
                try:
                    view[record.key] = read(record.value, record.key)
                except ValueError as error:
                    refused[record.key] = error
                    log_invalid_record(record.invalid(settings.alias, topic, str(error)))
    return view


def read_messages(
    settings: ConnectionSettings, topic: str, todo: Mapping[int, tuple[int, int]], timeout: float
) -> Iterator[Message]:
    """Yields every committed record as it is stored, unread. `todo`: partition → (first offset, end offset).

    timeout: seconds to wait for the next record of any partition. Raises `TopicMissing`, `Unreachable`.
    """
    if not todo:
        return
    complaints = LibrdkafkaErrors()
    consumer = build_partition_consumer(
        settings, {"fetch.wait.max.ms": 50, "error_cb": complaints, **bound_read_ahead(len(todo))}
    )
    try:
        consumer.assign([WirePartition(topic, number, start) for number, (start, _) in todo.items()])
        ends = {number: end for number, (_, end) in todo.items()}
        while ends:
            for message in _poll_messages(consumer, timeout):
                number, offset, problem = message.partition() or 0, message.offset() or 0, message.error()
                if problem is None:
                    if offset < ends.get(number, -1):
                        yield message
                elif is_group_error(problem):
                    continue
                elif problem.code() != KafkaError._PARTITION_EOF:
                    raise librdkafka.build_cluster_error(
                        settings, problem, complaints, doing=f"reading {topic}", topic=topic, partition=number
                    )
                # An end-of-partition event carries the next offset, a record its own.
                if number in ends and offset + (problem is None) >= ends[number]:
                    del ends[number]
    except KafkaException as error:
        reason = librdkafka.extract_kafka_error(error)
        raise librdkafka.build_cluster_error(
            settings, reason, complaints, doing=f"reading {topic}", topic=topic
        ) from None
    finally:
        consumer.close()


def _poll_messages(consumer: Consumer, timeout: float) -> list[Message]:
    """The next record or event, and those behind it that are there already: each call gives Python's lock away, and a
    busy worker waits for it. Raises KafkaException (timed out) after so many seconds without one."""
    deadline = time.monotonic() + timeout
    while (message := consumer.poll(0.5)) is None:
        if time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing for {timeout:g} s"))
    return [message, *consumer.consume(_READ_TOGETHER, 0)]


def decode_control_record(message: Message) -> ControlRecord:
    """Decodes key and value. A record that is not valid carries the reason in `why`."""
    return _keep_bytes(message).decode()


def _keep_bytes(message: Message) -> StoredControlRecord:
    return StoredControlRecord(
        message.partition() or 0, message.offset() or 0, message.timestamp()[1], message.key() or b"", message.value()
    )


def _not_there(settings: ConnectionSettings, topic: str) -> TopicMissing:
    return TopicMissing(
        f"cluster {settings.alias} has no topic {topic}. `topology apply` creates the control topics.",
        alias=settings.alias,
        topic=topic,
    )
