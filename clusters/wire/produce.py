"""Produce v13 (topic ids): request by our own writer, answer by the schema library.

The writer never copies a batch: it returns the pieces for one scatter-gather `sendmsg`.
Layout: clients/src/main/resources/common/message/ProduceRequest.json.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable

from kio.schema.produce.v13.response import ProduceResponse

from clusters.wire.messages import ProducedPartition, ProducePartition

API_KEY = 0
VERSION = 13

Piece = bytes | bytearray | memoryview

_ALL_REPLICAS = b"\xff\xff"  # acks -1
_I32 = struct.Struct(">i")


def produce_body(
    partitions: Iterable[ProducePartition], timeout_ms: int, transactional_id: str | None = None
) -> list[Piece]:
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
    pieces: list[Piece] = []
    head = bytearray(_nullable(transactional_id))
    head += _ALL_REPLICAS
    head += _I32.pack(timeout_ms)
    head += _uvarint(len(by_topic) + 1)
    for topic_id, topic in by_topic.items():
        head += topic_id.bytes
        head += _uvarint(len(topic) + 1)
        for index, part in topic.items():
            head += _I32.pack(index)
            head += _uvarint(sum(map(len, part.batch)) + 1)
            pieces.append(bytes(head))
            pieces.extend(part.batch)
            head = bytearray(b"\x00")  # tags of the partition
        head += b"\x00"  # tags of the topic
    head += b"\x00"  # tags of the request
    pieces.append(bytes(head))
    return pieces


def produced(answer: ProduceResponse) -> list[ProducedPartition]:
    """The answer as plain rows."""
    return [
        ProducedPartition(
            topic_id=topic.topic_id or uuid.UUID(int=0),
            partition=int(part.index),
            error=int(part.error_code),
            base_offset=int(part.base_offset),
            log_start=int(part.log_start_offset),
            message=part.error_message or "",
            record_errors=tuple(
                (int(each.batch_index), each.batch_index_error_message or "") for each in part.record_errors
            ),
        )
        for topic in answer.responses
        for part in topic.partition_responses
    ]


def _nullable(text: str | None) -> bytes:
    """A compact nullable string: its length plus one, 0 for null."""
    encoded = (text or "").encode()
    return b"\x00" if text is None else _uvarint(len(encoded) + 1) + encoded


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
