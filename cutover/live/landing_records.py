"""Reading single records for the landing test: what a consumer of a position would see next, as a fingerprint."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as WirePartition

from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.librdkafka import LibrdkafkaErrors, build_cluster_error
from watershed.clusters.partition_consumer import build_partition_consumer, is_group_error
from watershed.clusters.registry.schema_id_translation import TopicSchemaIds, rewrite_schema_id
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition


def read_first_records(
    settings: ConnectionSettings,
    admin: ClusterProtocol,
    at: Mapping[TopicPartition, int],
    timeout: float = 30.0,
    ids: Mapping[str, TopicSchemaIds] | None = None,
) -> dict[TopicPartition, str | None]:
    """Fingerprint of the first committed record at or after each offset; None when there is none (yet). ids: by topic,
    the schema ids that a flow rewrites: its source's records are taken as they arrive.

    Raises Unreachable when a partition brings nothing within `timeout` seconds, and other ClusterErrors.
    """
    found: dict[TopicPartition, str | None] = dict.fromkeys(at)
    spans = admin.offsets(at, "read_committed")
    waiting = {place: max(offset, spans[place].start) for place, offset in at.items()}
    waiting = {place: offset for place, offset in waiting.items() if offset < spans[place].end}
    if not waiting:
        return found
    complaints = LibrdkafkaErrors()
    few = {"max.partition.fetch.bytes": 65536, "queued.max.messages.kbytes": 1024}  # one record of each is wanted
    consumer = build_partition_consumer(settings, {"fetch.wait.max.ms": 50, "error_cb": complaints, **few})
    try:
        consumer.assign([WirePartition(place.topic, place.partition, offset) for place, offset in waiting.items()])
        deadline = time.monotonic() + timeout
        while waiting:
            message = consumer.poll(0.5)
            if message is None:
                if time.monotonic() > deadline:
                    names = ", ".join(str(place) for place in sorted(waiting))
                    raise settings.unreachable(f"no record of {names} within {timeout:g} s")
                continue
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            problem = message.error()
            if problem is not None and is_group_error(problem):
                continue
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                raise build_cluster_error(settings, problem, complaints, doing=f"reading {place}", topic=place.topic)
            if waiting.pop(place, None) is not None:
                found[place] = (
                    None if problem is not None else fingerprint_message(message, (ids or {}).get(place.topic))
                )
                consumer.pause([WirePartition(place.topic, place.partition)])
    finally:
        consumer.close()
    return found


def fingerprint_message(message: Message, ids: TopicSchemaIds | None = None) -> str:
    """SHA-256 over key, value, headers and timestamp, each with its length and whether it is null."""
    digest = hashlib.sha256()
    key, value = _bytes(message.key()), _bytes(message.value())
    if ids is not None:
        key, value = rewrite_schema_id(key, ids.key), rewrite_schema_id(value, ids.value)
    pieces: list[bytes | None] = [key, value]
    headers = message.headers() or []
    for name, content in headers.items() if isinstance(headers, dict) else headers:
        pieces += [_bytes(name), _bytes(content)]
    pieces.append(str(message.timestamp()).encode())
    for piece in pieces:
        digest.update(b"-" if piece is None else b"+" + len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
