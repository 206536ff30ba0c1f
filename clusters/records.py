"""Reading a topic from its start to its end: as stored, as JSON records, or as their newest values."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as WirePartition

from clusters import librdkafka
from clusters.admin import Admin
from clusters.errors import ProtocolError, TopicMissing
from clusters.librdkafka import Complaints
from clusters.names import TopicPartition
from clusters.reader import of_a_group, reader
from clusters.settings import ConnectionSettings
from clusters.surface import Isolation

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of a control topic; value None is a tombstone. timestamp_ms is the writer's clock."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: Value | None


def read_log(
    settings: ConnectionSettings,
    topic: str,
    partitions: Iterable[int] | None = None,
    from_offset: int | Mapping[int, int] | None = None,
    *,
    timeout: float = 15.0,
    whole: bool = False,
) -> Iterator[ControlRecord]:
    """Every committed record from the log start (or `from_offset`) up to the ends at the time of the call.

    Records of one partition come in order; partitions are mixed. `timeout` bounds each wait for progress.
    whole: up to the log ends rather than the last stable offsets: what was acknowledged before the call is seen, even
    while somebody else's transaction is open below it, at the price of waiting until that has ended.
    Raises `TopicMissing`, `Unreachable`, and `ProtocolError` for a record that is not ours.
    """
    with Admin(settings, timeout=timeout) as admin:
        if partitions is None:
            found = admin.topic(topic)
            if found is None:
                raise _not_there(settings, topic)
            partitions = range(found.partitions)
        isolation: Isolation = "read_uncommitted" if whole else "read_committed"
        ranges = admin.offsets((TopicPartition(topic, number) for number in partitions), isolation)
    todo: dict[int, tuple[int, int]] = {}  # partition -> from, to
    for (_, number), span in ranges.items():
        wanted = from_offset.get(number, 0) if isinstance(from_offset, Mapping) else from_offset or 0
        if max(span.start, wanted) < span.end:
            todo[number] = (max(span.start, wanted), span.end)
    return (control_record(settings, message) for message in messages(settings, topic, todo, timeout))


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


def messages(
    settings: ConnectionSettings, topic: str, todo: Mapping[int, tuple[int, int]], timeout: float
) -> Iterator[Message]:
    """Every committed record as it is stored. `todo`: partition → (from, to), offsets. See `read_log`."""
    if not todo:
        return
    complaints = Complaints()
    consumer = reader(settings, {"fetch.wait.max.ms": 50, "error_cb": complaints})
    try:
        consumer.assign([WirePartition(topic, number, start) for number, (start, _) in todo.items()])
        ends = {number: end for number, (_, end) in todo.items()}
        deadline = time.monotonic() + timeout
        while ends:
            message = consumer.poll(0.5)
            if message is None:
                if time.monotonic() > deadline:
                    silence = KafkaError(KafkaError._TIMED_OUT, f"nothing for {timeout:g} s")
                    raise librdkafka.cluster_error(settings, silence, complaints, doing=f"reading {topic}")
                continue
            deadline = time.monotonic() + timeout
            number, offset, problem = message.partition() or 0, message.offset() or 0, message.error()
            if problem is None:
                if number in ends and offset < ends[number]:
                    yield message
            elif of_a_group(problem):
                continue
            elif problem.code() != KafkaError._PARTITION_EOF:
                raise librdkafka.cluster_error(
                    settings, problem, complaints, doing=f"reading {topic}", topic=topic, partition=number
                )
            # An end-of-partition event carries the next offset, a record its own.
            if number in ends and offset + (problem is None) >= ends[number]:
                del ends[number]
    except KafkaException as error:
        reason = librdkafka.reason(error)
        raise librdkafka.cluster_error(settings, reason, complaints, doing=f"reading {topic}", topic=topic) from None
    finally:
        consumer.close()


def control_record(settings: ConnectionSettings, message: Message) -> ControlRecord:
    """Raises `ProtocolError` for one that is not ours."""
    topic, number, offset = message.topic() or "?", message.partition() or 0, message.offset() or 0
    try:
        key, payload = (message.key() or b"").decode(), message.value()
        value = None if payload is None else json.loads(payload)
        if not key or not (value is None or isinstance(value, dict)):
            raise ValueError
    except ValueError:
        raise ProtocolError(
            f"{topic}-{number} offset {offset} on cluster {settings.alias} is not a Watershed record (a JSON "
            f"object under a key). Only Watershed may write to {topic}: find the writer and deny it by an ACL.",
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
