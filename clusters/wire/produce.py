"""Produce v13 (topic ids), question and answer in our own code.

The writer never copies a batch: it returns the pieces for one scatter-gather `sendmsg`.
Layout: ProduceRequest.json and ProduceResponse.json in clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable

from clusters.varints import decode_uvarint, encode_uvarint
from clusters.wire.flexible_fields import decode_compact_string, skip_tagged_fields
from clusters.wire.messages import ProducedPartition, ProducePartition

_Piece = bytes | bytearray | memoryview

_ALL_REPLICAS = b"\xff\xff"  # acks -1
_I32 = struct.Struct(">i")
_ANSWER = struct.Struct(">ihqqq")  # index, error, base offset, append time, log start offset


def encode_produce_request(
    partitions: Iterable[ProducePartition], timeout_ms: int, transactional_id: str | None = None
) -> list[_Piece]:
    """The request body as pieces in order. With batches of a transaction comes its transactional id.

    Raises ValueError when a partition is named twice: the broker keeps the partitions of a request in a map and
    would silently drop one of the two batches.
    """
    by_topic: dict[uuid.UUID, dict[int, ProducePartition]] = defaultdict(dict)
    for part in partitions:
        topic = by_topic[part.topic_id]
        if part.partition in topic:
            raise ValueError(f"partition {part.partition} of topic {part.topic_id} stands twice in one Produce")
        topic[part.partition] = part
    pieces: list[_Piece] = []
    head = bytearray(_nullable(transactional_id))
    head += _ALL_REPLICAS
    head += _I32.pack(timeout_ms)
    head += encode_uvarint(len(by_topic) + 1)
    for topic_id, topic in by_topic.items():
        head += topic_id.bytes
        head += encode_uvarint(len(topic) + 1)
        for index, part in topic.items():
            head += _I32.pack(index)
            head += encode_uvarint(sum(map(len, part.batch)) + 1)
            pieces.append(bytes(head))
            pieces.extend(part.batch)
            head = bytearray(b"\x00")  # tags of the partition
        head += b"\x00"  # tags of the topic
    head += b"\x00"  # tags of the request
    pieces.append(bytes(head))
    return pieces


def decode_produce_response(body: memoryview) -> tuple[int, list[ProducedPartition]]:
    """(throttle time in ms, partitions) of a Produce v13 answer body (behind the response header).

    Raises struct.error, IndexError, OverflowError or ValueError when the bytes are not such an answer.
    """
    answers: list[ProducedPartition] = []
    topics, at = decode_uvarint(body, 0)
    for _ in range(topics - 1):
        topic_id = uuid.UUID(bytes=bytes(body[at : at + 16]))
        count, at = decode_uvarint(body, at + 16)
        for _ in range(count - 1):
            index, error, base, append_time, log_start = _ANSWER.unpack_from(body, at)
            errors, at = decode_uvarint(body, at + _ANSWER.size)
            found: list[tuple[int, str]] = []
            for _ in range(errors - 1):
                (batch_index,) = _I32.unpack_from(body, at)
                text, at = decode_compact_string(body, at + _I32.size)
                found.append((batch_index, text))
                at = skip_tagged_fields(body, at)
            message, at = decode_compact_string(body, at)
            at = skip_tagged_fields(body, at)
            answers.append(
                ProducedPartition(topic_id, index, error, base, log_start, message, tuple(found), append_time)
            )
        at = skip_tagged_fields(body, at)
    (throttle,) = _I32.unpack_from(body, at)
    return throttle, answers


def _nullable(text: str | None) -> bytes:
    """A compact nullable string: its length plus one, 0 for null."""
    encoded = (text or "").encode()
    return b"\x00" if text is None else encode_uvarint(len(encoded) + 1) + encoded
