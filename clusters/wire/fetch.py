"""Fetch v13 (topic ids, KIP-516), question and answer in our own code: it is asked a thousand times a second.

The parser hands out the record batches as views into the one buffer the answer was received into: no copy,
which is why it is ours (6 µs an answer where the schema library copies every byte; docs/research/batches.md, §3).
Layout: FetchRequest.json and FetchResponse.json in clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable

from clusters.varints import decode_uvarint, encode_uvarint
from clusters.wire.flexible_fields import skip_tagged_fields
from clusters.wire.messages import FetchedPartition, FetchPartition

_QUESTION = struct.Struct(">iiiibii")  # replica, max wait ms, min bytes, max bytes, isolation, session id and epoch
_WANTED = struct.Struct(">iiqiqib")  # index, leader epoch, offset, last epoch, log start, max bytes, no tags
_TOP = struct.Struct(">ihi")  # throttle ms, error, session id
_PARTITION = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_DIVERGING = struct.Struct(">iq")  # epoch, end offset
_EMPTY = memoryview(b"")


def encode_fetch_request(
    partitions: Iterable[FetchPartition],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation: int,
    rack: str = "",
) -> bytes:
    """The request body of a sessionless Fetch as a consumer sends it. rack: where it stands (KIP-392)."""
    by_topic: dict[uuid.UUID, list[FetchPartition]] = defaultdict(list)
    for part in partitions:
        by_topic[part.topic_id].append(part)
    body = bytearray(_QUESTION.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, 0, -1))
    body += encode_uvarint(len(by_topic) + 1)
    for topic_id, parts in by_topic.items():
        body += topic_id.bytes
        body += encode_uvarint(len(parts) + 1)
        for part in parts:
            body += _WANTED.pack(part.partition, -1, part.offset, part.last_epoch, -1, part.max_bytes, 0)
        body += b"\0"  # tags of the topic
    place = rack.encode()
    body += b"\1" + encode_uvarint(len(place) + 1) + place + b"\0"  # no forgotten topics, rack, no tags
    return bytes(body)


def decode_fetch_response(body: memoryview) -> tuple[int, int, list[FetchedPartition]]:
    """(throttle time in ms, top-level error code, partitions) of a Fetch v13 answer body (behind the response header).

    Raises struct.error, IndexError, OverflowError or ValueError when the bytes are not such an answer.
    """
    throttle, error, _session = _TOP.unpack_from(body, 0)
    at = _TOP.size
    answers: list[FetchedPartition] = []
    topics, at = decode_uvarint(body, at)
    for _ in range(topics - 1):
        topic_id = uuid.UUID(bytes=bytes(body[at : at + 16]))
        at += 16
        count, at = decode_uvarint(body, at)
        for _ in range(count - 1):
            answer, at = _partition(body, at, topic_id)
            answers.append(answer)
        at = skip_tagged_fields(body, at)
    return throttle, error, answers


def _partition(body: memoryview, at: int, topic_id: uuid.UUID) -> tuple[FetchedPartition, int]:
    index, error, high, stable, log_start = _PARTITION.unpack_from(body, at)
    at += _PARTITION.size
    count, at = decode_uvarint(body, at)  # 0 is null, n is n - 1 entries
    aborted: list[tuple[int, int]] = []
    for _ in range(count - 1):
        aborted.append(_ABORTED.unpack_from(body, at))
        at = skip_tagged_fields(body, at + _ABORTED.size)
    preferred = int.from_bytes(body[at : at + 4], "big", signed=True)
    at += 4
    length, at = decode_uvarint(body, at)
    records = body[at : at + length - 1] if length > 1 else _EMPTY
    at += max(length - 1, 0)
    diverging: tuple[int, int] | None = None
    tags, at = decode_uvarint(body, at)
    for _ in range(tags):
        tag, at = decode_uvarint(body, at)
        size, at = decode_uvarint(body, at)
        if tag == 0:
            epoch, end = _DIVERGING.unpack_from(body, at)
            diverging = (epoch, end) if end >= 0 else None
        at += size
    return (
        FetchedPartition(
            topic_id, index, error, high, stable, log_start, records, tuple(aborted), diverging, preferred
        ),
        at,
    )
