"""Fetch v13 (topic ids, KIP-516): request by the schema library, answer by our own parser.

The parser hands out the record batches as views into the one buffer the answer was received into: no copy,
which is why it is ours (6 µs an answer where the schema library copies every byte; research page on batches, §3).
Layout: clients/src/main/resources/common/message/FetchResponse.json.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable

from kio.schema.fetch.v13 import request as schema
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from clusters.wire.messages import FetchedPartition, FetchPartition

API_KEY = 1
VERSION = 13

_TOP = struct.Struct(">ihi")  # throttle ms, error, session id
_PARTITION = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_DIVERGING = struct.Struct(">iq")  # epoch, end offset
_EMPTY = memoryview(b"")


def fetch_request(
    partitions: Iterable[FetchPartition], *, max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int
) -> schema.FetchRequest:
    """A sessionless Fetch as a consumer sends it."""
    by_topic: dict[uuid.UUID, list[FetchPartition]] = defaultdict(list)
    for part in partitions:
        by_topic[part.topic_id].append(part)
    return schema.FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=i32Timedelta.parse(datetime.timedelta(milliseconds=max_wait_ms)),
        min_bytes=i32(min_bytes),
        max_bytes=i32(max_bytes),
        isolation_level=i8(isolation),
        session_id=i32(0),
        session_epoch=i32(-1),
        topics=tuple(
            schema.FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    schema.FetchPartition(
                        partition=i32(part.partition),
                        fetch_offset=i64(part.offset),
                        last_fetched_epoch=i32(part.last_epoch),
                        partition_max_bytes=i32(part.max_bytes),
                    )
                    for part in parts
                ),
            )
            for topic_id, parts in by_topic.items()
        ),
        forgotten_topics_data=(),
        rack_id="",
    )


def parse_fetch_answer(body: memoryview) -> tuple[int, list[FetchedPartition]]:
    """(top-level error code, partitions) of a Fetch v13 answer body (behind the response header).

    Raises struct.error, IndexError or ValueError when the bytes are not such an answer.
    """
    _throttle, error, _session = _TOP.unpack_from(body, 0)
    at = _TOP.size
    answers: list[FetchedPartition] = []
    topics, at = _uvarint(body, at)
    for _ in range(topics - 1):
        topic_id = uuid.UUID(bytes=bytes(body[at : at + 16]))
        at += 16
        count, at = _uvarint(body, at)
        for _ in range(count - 1):
            answer, at = _partition(body, at, topic_id)
            answers.append(answer)
        at = _skip_tags(body, at)
    return error, answers


def _partition(body: memoryview, at: int, topic_id: uuid.UUID) -> tuple[FetchedPartition, int]:
    index, error, high, stable, log_start = _PARTITION.unpack_from(body, at)
    at += _PARTITION.size
    count, at = _uvarint(body, at)  # 0 is null, n is n - 1 entries
    aborted: list[tuple[int, int]] = []
    for _ in range(count - 1):
        aborted.append(_ABORTED.unpack_from(body, at))
        at = _skip_tags(body, at + _ABORTED.size)
    at += 4  # preferred read replica: only asked for with a rack id
    length, at = _uvarint(body, at)
    records = body[at : at + length - 1] if length > 1 else _EMPTY
    at += max(length - 1, 0)
    diverging: tuple[int, int] | None = None
    tags, at = _uvarint(body, at)
    for _ in range(tags):
        tag, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        if tag == 0:
            epoch, end = _DIVERGING.unpack_from(body, at)
            diverging = (epoch, end) if end >= 0 else None
        at += size
    return (
        FetchedPartition(topic_id, index, error, high, stable, log_start, records, tuple(aborted), diverging),
        at,
    )


def _uvarint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _skip_tags(body: memoryview, at: int) -> int:
    tags, at = _uvarint(body, at)
    for _ in range(tags):
        _tag, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        at += size
    return at
