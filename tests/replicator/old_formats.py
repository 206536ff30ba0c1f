"""A builder of messages in the formats v0 and v1, as clients before Kafka 0.11 wrote them and brokers kept them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import cramjam
import xxhash

LOG_APPEND_TIME = 0x08


@dataclass(frozen=True)
class Old:
    """offset: the absolute one, except inside a v1 wrapper, where it counts from the first."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = -1


def message(magic: int, each: Old, attributes: int = 0) -> bytes:
    body = struct.pack(">BB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", each.timestamp)
    for field in (each.key, each.value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", each.offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(
    magic: int,
    offset: int,
    inner: Sequence[Old],
    codec: str,
    *,
    timestamp: int = -1,
    append_time: bool = False,
    inner_magic: int | None = None,
) -> bytes:
    """`offset`: that of the last message in it, as the broker wrote it."""
    raw = b"".join(message(magic if inner_magic is None else inner_magic, each) for each in inner)
    number = ("none", "gzip", "snappy", "lz4").index(codec)
    attributes = number | (LOG_APPEND_TIME if append_time else 0)
    return message(magic, Old(offset, None, packed(raw, codec, magic), timestamp), attributes)


def packed(raw: bytes, codec: str, magic: int) -> bytes:
    if codec == "gzip":
        return gzip.compress(raw)
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(raw))
    frame = bytearray(cramjam.lz4.compress(raw))
    if magic == 0:  # KAFKA-3160: the checksum covered the magic bytes too
        at = 6 + 8 * bool(frame[4] & 0x08)
        frame[at] = xxhash.xxh32_intdigest(bytes(frame[:at])) >> 8 & 0xFF
    return bytes(frame)
