"""Messages of the formats v0 and v1, which a broker keeps as they were written before Kafka 0.11 (KIP-724).

A message: offset, size, CRC-32 of what follows, magic, attributes, in v1 a timestamp, key, value. A compressed one is
a wrapper: its value is a set of messages of the same format, its offset that of the last of them. In v1 their offsets
count from the first, in v0 they are the offsets themselves. There are no headers, and in v0 no timestamps (-1).
Source: org.apache.kafka.common.record.LegacyRecord and AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from watershed.replicator.batch.codecs import (
    LZ4,
    CodecError,
    DecompressedTooLarge,
    decompress_payload,
    repair_lz4_frame,
)
from watershed.replicator.batch.record_batch import (
    CODEC_BITS,
    LOG_APPEND_TIME,
    MAGIC_BYTE_AT,
    UNKNOWN_RECORD_COUNT,
    RawBatch,
)
from watershed.replicator.batch.records import RawRecord, decode_records, encode_key_and_value
from watershed.replicator.errors import BadBatch, OversizedBatch

_FRONT = struct.Struct(">qiIBB")  # offset, size, crc, magic, attributes
_CRC_FROM = MAGIC_BYTE_AT
_I32, _I64 = struct.Struct(">i"), struct.Struct(">q")
_NO_TIMESTAMP = -1


class _Message(NamedTuple):
    offset: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def decode_legacy_records(batch: RawBatch, most: int | None = None) -> list[RawRecord]:
    """The records of one entry of an old message set. most: bytes that it may hold (codecs.MOST). Raises BadBatch with
    its source offset; OversizedBatch for one that holds more."""
    data = bytes(batch.data)
    magic = data[MAGIC_BYTE_AT]
    if zlib.crc32(memoryview(data)[_CRC_FROM:]) != _FRONT.unpack_from(data)[2]:
        raise BadBatch("is damaged, its CRC does not match", batch.base, passing=True)
    try:
        (outer,) = _messages(data, magic)
        if outer.attributes & CODEC_BITS == 0:
            return [RawRecord(outer.offset, outer.timestamp, encode_key_and_value(outer.key, outer.value))]
        return list(_unwrapped(outer, magic, most))
    except DecompressedTooLarge as error:
        raise OversizedBatch(f"in format v{magic} {error}", batch.base) from None
    except (CodecError, struct.error, IndexError) as error:
        reason = str(error) if isinstance(error, CodecError) else "holds messages that are cut off"
        raise BadBatch(f"in format v{magic} {reason}", batch.base) from None


def decode_records_of_any_format(batch: RawBatch, most: int | None = None) -> list[RawRecord]:
    """`decode_legacy_records` for formats v0 and v1, `decode_records` for the current one. Raises as they do."""
    decode = decode_legacy_records if batch.records == UNKNOWN_RECORD_COUNT else decode_records
    return decode(batch, most)


def _unwrapped(outer: _Message, magic: int, most: int | None) -> Iterator[RawRecord]:
    codec = outer.attributes & CODEC_BITS
    packed = outer.value or b""
    if codec == LZ4 and magic == 0:
        packed = repair_lz4_frame(packed)
    inner = list(_messages(decompress_payload(codec, packed, most), magic))
    if not inner:
        raise CodecError("wraps no message at all")
    shift = outer.offset - inner[-1].offset if magic == 1 else 0
    before = -1
    for message in inner:
        offset = message.offset + shift
        if message.attributes & CODEC_BITS or not before < offset <= outer.offset:
            raise CodecError("wraps messages that contradict it")
        stamped = magic == 1 and outer.attributes & LOG_APPEND_TIME
        timestamp = outer.timestamp if stamped else message.timestamp
        yield RawRecord(offset, timestamp, encode_key_and_value(message.key, message.value))
        before = offset


def _messages(data: bytes, magic: int) -> Iterator[_Message]:
    at = 0
    while at < len(data):
        offset, size, _crc, found, attributes = _FRONT.unpack_from(data, at)
        stop = at + 12 + size
        if found != magic or stop > len(data):
            raise CodecError(f"holds a message of format v{found} and {size} bytes where it ends")
        at += _FRONT.size
        timestamp = _NO_TIMESTAMP
        if magic == 1:
            (timestamp,) = _I64.unpack_from(data, at)
            at += 8
        key, at = _sized(data, at)
        value, at = _sized(data, at)
        if at != stop:
            raise CodecError("holds a message that contradicts its size")
        yield _Message(offset, attributes, timestamp, key, value)


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _I32.unpack_from(data, at)
    at += 4
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size
