"""Produce, question and answer in our own code: version 13 names topics by id (KIP-516), 3 to 12 by name; from 9 on
versions are flexible (KIP-482).

The writer never copies a batch: it returns the pieces for one scatter-gather `sendmsg`.
Layout: ProduceRequest.json and ProduceResponse.json in clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from watershed.clusters.wire.messages import ProducedPartition, ProducePartition
from watershed.clusters.wire.versioned_fields import (
    decode_count,
    decode_text,
    encode_count,
    encode_text,
    skip_tagged_fields,
)

_Piece = bytes | bytearray | memoryview

PRODUCE_BY_ID: Final = 13  # the first version that names topics by id
_FLEXIBLE: Final = 9
_WITH_ERRORS: Final = 8  # the first that names the records which were refused (KIP-467)
_WITH_LOG_START: Final = 5
_ALL_REPLICAS = b"\xff\xff"  # acks -1
_I32 = struct.Struct(">i")
_ANSWER = struct.Struct(">ihqqq")  # index, error, base offset, append time, log start offset
_OLD_ANSWER = struct.Struct(">ihqq")  # without the log start offset


def encode_produce_request(
    version: int,
    partitions: Iterable[ProducePartition],
    name_of: Callable[[uuid.UUID], str],
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[_Piece]:
    """The request body, in a version from 3 to 13, as pieces in order. With batches of a transaction comes its
    transactional id.

    Raises ValueError when a partition is named twice: the broker keeps the partitions of a request in a map and
    would silently drop one of the two batches.
    """
    flexible = version >= _FLEXIBLE
    no_tags = b"\x00" if flexible else b""
    by_topic: dict[uuid.UUID, dict[int, ProducePartition]] = defaultdict(dict)
    for part in partitions:
        topic = by_topic[part.topic_id]
        if part.partition in topic:
            raise ValueError(f"partition {part.partition} of topic {part.topic_id} stands twice in one Produce")
        topic[part.partition] = part
    pieces: list[_Piece] = []
    head = bytearray(encode_text(transactional_id, flexible))
    head += _ALL_REPLICAS
    head += _I32.pack(timeout_ms)
    head += encode_count(len(by_topic), flexible)
    for topic_id, topic in by_topic.items():
        head += topic_id.bytes if version >= PRODUCE_BY_ID else encode_text(name_of(topic_id), flexible)
        head += encode_count(len(topic), flexible)
        for index, part in topic.items():
            head += _I32.pack(index)
            head += encode_count(sum(map(len, part.batch)), flexible)
            pieces.append(bytes(head))
            pieces.extend(part.batch)
            head = bytearray(no_tags)  # of the partition
        head += no_tags  # of the topic
    head += no_tags  # of the request
    pieces.append(bytes(head))
    return pieces


def decode_produce_response(
    version: int, body: memoryview, id_of: Callable[[str], uuid.UUID]
) -> tuple[int, list[ProducedPartition]]:
    """(throttle time in ms, partitions) of an answer body (behind the response header).

    Raises struct.error, IndexError, OverflowError, KeyError or ValueError when the bytes are not such an answer.
    """
    flexible = version >= _FLEXIBLE
    answers: list[ProducedPartition] = []
    topics, at = decode_count(body, 0, flexible)
    for _ in range(topics):
        if version >= PRODUCE_BY_ID:
            topic_id = uuid.UUID(bytes=bytes(body[at : at + 16]))
            at += 16
        else:
            name, at = decode_text(body, at, flexible)
            topic_id = id_of(name)
        count, at = decode_count(body, at, flexible)
        for _ in range(count):
            answer, at = _decode_partition(version, body, at, topic_id)
            answers.append(answer)
        at = skip_tagged_fields(body, at, flexible)
    (throttle,) = _I32.unpack_from(body, at)
    return throttle, answers


def _decode_partition(version: int, body: memoryview, at: int, topic_id: uuid.UUID) -> tuple[ProducedPartition, int]:
    flexible = version >= _FLEXIBLE
    if version >= _WITH_LOG_START:
        index, error, base, append_time, log_start = _ANSWER.unpack_from(body, at)
        at += _ANSWER.size
    else:
        index, error, base, append_time = _OLD_ANSWER.unpack_from(body, at)
        log_start, at = -1, at + _OLD_ANSWER.size
    found: list[tuple[int, str]] = []
    message = ""
    if version >= _WITH_ERRORS:
        errors, at = decode_count(body, at, flexible)
        for _ in range(errors):
            (batch_index,) = _I32.unpack_from(body, at)
            text, at = decode_text(body, at + _I32.size, flexible)
            found.append((batch_index, text))
            at = skip_tagged_fields(body, at, flexible)
        message, at = decode_text(body, at, flexible)
    at = skip_tagged_fields(body, at, flexible)
    answer = ProducedPartition(topic_id, index, error, base, log_start, message, tuple(found), append_time)
    return answer, at
