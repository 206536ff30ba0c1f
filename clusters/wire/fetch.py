"""Fetch, question and answer in our own code: it is asked a thousand times a second.

Version 13 names topics by id (KIP-516), 4 to 12 by name; from 12 on versions are flexible (KIP-482). The parser hands
out the record batches as views into the one buffer the answer was received into: no copy, which is why it is ours
(6 µs an answer where the schema library copies every byte; docs/research/batches.md, §3).
Layout: FetchRequest.json and FetchResponse.json in clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from watershed.clusters.varints import decode_uvarint
from watershed.clusters.wire.fetch_session import SessionQuestion
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition
from watershed.clusters.wire.versioned_fields import (
    decode_bytes,
    decode_count,
    decode_text,
    encode_count,
    encode_text,
    skip_tagged_fields,
)

FETCH_BY_ID: Final = 13  # the first version that names topics by id
FETCH_WITH_EPOCHS: Final = 12  # the first whose answer tells where a log diverged from what was read (KIP-595)
_FLEXIBLE: Final = 12
_WITH_REPLICA: Final = 11  # the first whose answer may name another replica to read from (KIP-392)
_WITH_SESSION: Final = 7  # the first with fetch sessions (KIP-227) and an error of the whole answer
_WITH_LOG_START: Final = 5
_QUESTION = struct.Struct(">iiiib")  # replica, max wait ms, min bytes, max bytes, isolation
_SESSION = struct.Struct(">ii")  # session id and epoch
_WANTED = {  # of a partition: index, then what the version has, then the most bytes
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iqqi"),
    9: struct.Struct(">iiqqi"),
    12: struct.Struct(">iiqiqib"),
}
_TOP = struct.Struct(">ihi")  # throttle ms, error, session id
_PARTITION = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_OLD_PARTITION = struct.Struct(">ihqq")  # without the log start offset
_I32 = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_DIVERGING = struct.Struct(">iq")  # epoch, end offset


class FetchResponse(NamedTuple):
    """The whole of an answer. error: of the answer as a whole. session_id: 0 where there is none."""

    throttle_ms: int
    error: int
    partitions: list[FetchedPartition]
    session_id: int = 0


def encode_fetch_request(
    version: int,
    question: SessionQuestion,
    name_of: Callable[[uuid.UUID], str],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation: int,
    rack: str = "",
) -> bytes:
    """The request body of a Fetch as a consumer sends it, in a version from 4 to 13; below 7 there are no sessions.
    rack: where it stands (KIP-392, from version 11 on). Below 12 a question has no `last_epoch`: brokers cannot tell
    that a log diverged."""
    flexible = version >= _FLEXIBLE
    by_topic: dict[uuid.UUID, list[FetchPartition]] = defaultdict(list)
    for part in question.partitions:
        by_topic[part.topic_id].append(part)
    body = bytearray(_QUESTION.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation))
    body += _SESSION.pack(question.id, question.epoch) if version >= _WITH_SESSION else b""
    body += encode_count(len(by_topic), flexible)
    for topic_id, parts in by_topic.items():
        body += topic_id.bytes if version >= FETCH_BY_ID else encode_text(name_of(topic_id), flexible)
        body += encode_count(len(parts), flexible)
        for part in parts:
            body += _encode_partition(version, part)
        body += b"\0" if flexible else b""  # tags of the topic
    body += _encode_forgotten(version, question.forgotten, name_of) if version >= _WITH_SESSION else b""
    body += encode_text(rack, flexible) if version >= _WITH_REPLICA else b""
    body += b"\0" if flexible else b""
    return bytes(body)


def _encode_forgotten(
    version: int, forgotten: Iterable[tuple[uuid.UUID, int]], name_of: Callable[[uuid.UUID], str]
) -> bytes:
    flexible = version >= _FLEXIBLE
    by_topic: dict[uuid.UUID, list[int]] = defaultdict(list)
    for topic_id, number in forgotten:
        by_topic[topic_id].append(number)
    body = bytearray(encode_count(len(by_topic), flexible))
    for topic_id, numbers in by_topic.items():
        body += topic_id.bytes if version >= FETCH_BY_ID else encode_text(name_of(topic_id), flexible)
        body += encode_count(len(numbers), flexible)
        body += struct.pack(f">{len(numbers)}i", *numbers)
        body += b"\0" if flexible else b""  # tags of the topic
    return bytes(body)


def _encode_partition(version: int, part: FetchPartition) -> bytes:
    if version >= _FLEXIBLE:
        return _WANTED[12].pack(part.partition, -1, part.offset, part.last_epoch, -1, part.max_bytes, 0)
    if version >= 9:
        return _WANTED[9].pack(part.partition, -1, part.offset, -1, part.max_bytes)
    if version >= _WITH_LOG_START:
        return _WANTED[5].pack(part.partition, part.offset, -1, part.max_bytes)
    return _WANTED[4].pack(part.partition, part.offset, part.max_bytes)


def decode_fetch_response(version: int, body: memoryview, id_of: Callable[[str], uuid.UUID]) -> FetchResponse:
    """What an answer body (behind the response header) says.

    Raises struct.error, IndexError, OverflowError, KeyError or ValueError when the bytes are not such an answer.
    """
    flexible = version >= _FLEXIBLE
    if version >= _WITH_SESSION:
        throttle, error, session_id = _TOP.unpack_from(body, 0)
        at = _TOP.size
    else:
        (throttle,), error, session_id, at = _I32.unpack_from(body, 0), 0, 0, _I32.size
    answers: list[FetchedPartition] = []
    topics, at = decode_count(body, at, flexible)
    for _ in range(topics):
        if version >= FETCH_BY_ID:
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
    return FetchResponse(throttle, error, answers, session_id)


def _decode_partition(version: int, body: memoryview, at: int, topic_id: uuid.UUID) -> tuple[FetchedPartition, int]:
    flexible = version >= _FLEXIBLE
    if version >= _WITH_LOG_START:
        index, error, high, stable, log_start = _PARTITION.unpack_from(body, at)
        at += _PARTITION.size
    else:
        index, error, high, stable = _OLD_PARTITION.unpack_from(body, at)
        log_start, at = -1, at + _OLD_PARTITION.size
    count, at = decode_count(body, at, flexible)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(body, at))
        at = skip_tagged_fields(body, at + _ABORTED.size, flexible)
    preferred = -1
    if version >= _WITH_REPLICA:
        (preferred,) = _I32.unpack_from(body, at)
        at += _I32.size
    records, at = decode_bytes(body, at, flexible)
    diverging: tuple[int, int] | None = None
    if flexible:
        diverging, at = _decode_tags(body, at)
    return (
        FetchedPartition(
            topic_id, index, error, high, stable, log_start, records, tuple(aborted), diverging, preferred
        ),
        at,
    )


def _decode_tags(body: memoryview, at: int) -> tuple[tuple[int, int] | None, int]:
    """Where the log diverged, which is a tagged field (KIP-595), and the position behind all of them."""
    diverging: tuple[int, int] | None = None
    tags, at = decode_uvarint(body, at)
    for _ in range(tags):
        tag, at = decode_uvarint(body, at)
        size, at = decode_uvarint(body, at)
        if tag == 0:
            epoch, end = _DIVERGING.unpack_from(body, at)
            diverging = (epoch, end) if end >= 0 else None
        at += size
    return diverging, at
