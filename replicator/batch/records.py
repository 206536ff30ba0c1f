"""Records as byte slices: taken out of batches, and laid into new ones. Keys and values are never looked into.

Layout of a v2 record: length, attributes (one byte, unused), timestamp delta, offset delta, key, value, headers;
numbers are zigzag varints. All that a repack changes stands in front, so the rest travels as one slice.
Source: org.apache.kafka.common.record.DefaultRecord and DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from crc32c import crc32c

from watershed.clusters.varints import decode_zigzag, encode_zigzag
from watershed.replicator.batch.codecs import CodecError, DecompressedTooLarge, compress_payload, decompress_payload
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, CRC_STARTS_AT
from watershed.replicator.batch.record_batch import CURRENT_MAGIC, LOG_APPEND_TIME, RawBatch
from watershed.replicator.errors import BadBatch, OversizedBatch

_CRC = struct.Struct(">I")
_FRONT = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BACK = struct.Struct(">hiqqqhii")  # attributes … record count
_FIRST_TIME = struct.Struct(">q")
_CRC_AT, _FIRST_TIME_AT = 17, 27
MAX_RECORD_OVERHEAD_BYTES: Final = (
    24  # at most, of one record in front of `rest`: length 5, attributes 1, timestamp 10, offset 5
)

# Records of one batch that are opened, about 200 bytes of memory each. Producers batch by bytes, 16 KiB by default: so
# many are made to be opened (18 million records of 7 bytes are a batch of 8 KiB, packed).
_MOST_RECORDS: Final = 1_000_000


class RawRecord(NamedTuple):
    """offset and timestamp (ms) as a consumer sees them; rest: key, value and headers as they are encoded."""

    offset: int
    timestamp: int
    rest: bytes


class _RecordFields(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def decode_records(batch: RawBatch, most: int | None = None) -> list[RawRecord]:
    """The records of a v2 batch, which was checked against its CRC first: a damaged one must not get a new CRC. most:
    bytes that it may hold (codecs.MOST).

    Raises BadBatch with the batch's source offset; OversizedBatch for one that holds more, or more than _MOST_RECORDS.
    """
    data = batch.data
    (crc,) = _CRC.unpack_from(data, _CRC_AT)
    if crc != crc32c(data[CRC_STARTS_AT:]):
        raise BadBatch("is damaged, its CRC does not match", batch.base, passing=True)
    (first_time,) = _FIRST_TIME.unpack_from(data, _FIRST_TIME_AT)
    if batch.records > _MOST_RECORDS:
        raise OversizedBatch(f"holds {batch.records} records, more than {_MOST_RECORDS}", batch.base)
    try:
        body = decompress_payload(batch.codec, data[BATCH_HEADER_BYTES:], most)
        found = decode_record_bodies(body, batch.records, batch.base, first_time)
    except DecompressedTooLarge as error:
        raise OversizedBatch(str(error), batch.base) from None
    except (ValueError, IndexError) as error:
        reason = str(error) if isinstance(error, ValueError) else "holds records that are cut off"
        raise BadBatch(reason, batch.base) from None
    if found and found[-1].offset >= batch.end:
        raise BadBatch(f"holds offset {found[-1].offset}, behind its own end {batch.end}", batch.base)
    if batch.attributes & LOG_APPEND_TIME:
        found = [RawRecord(offset, batch.max_timestamp, rest) for offset, _, rest in found]
    if found and not (min(map(_time, found)) >= _OLDEST and max(map(_time, found)) <= _NEWEST):
        found = [RawRecord(offset, _wrapped(time), rest) for offset, time, rest in found]
    return found


def decode_record_bodies(body: bytes, count: int, base: int, first_time: int) -> list[RawRecord]:
    """`count` records that fill `body`. Raises ValueError or IndexError when they do not."""
    found: list[RawRecord] = []
    add, make = found.append, RawRecord._make
    at, before, end = 0, base - 1, len(body)
    for _ in range(count):
        size = body[at]
        if size < 0x80:
            at += 1
            size = (size >> 1) ^ -(size & 1)
        else:
            size, at = decode_zigzag(body, at)
        stop = at + size
        at += 1  # attributes
        time = body[at]
        if time < 0x80:
            at += 1
            time = (time >> 1) ^ -(time & 1)
        else:
            time, at = decode_zigzag(body, at)
        delta = body[at]
        if delta < 0x80:
            at += 1
            delta = (delta >> 1) ^ -(delta & 1)
        else:
            delta, at = decode_zigzag(body, at)
        offset = base + delta
        if at > stop or stop > end or offset <= before:
            raise CodecError("holds records that contradict its header")
        add(make((offset, first_time + time, body[at:stop])))
        at, before = stop, offset
    if at != end:
        raise CodecError(f"holds {end - at} bytes behind its last record")
    return found


def build_raw_batch(records: Sequence[RawRecord], codec: int, end: int, leader_epoch: int = -1) -> RawBatch:
    """A batch of these records (at least one) without a producer, offset deltas 0, 1, 2, …; its spans say where the
    records stood. `end` is the source offset behind everything that it covers."""
    base, first_time, _ = records[0]
    newest, expected = first_time, base
    spans: list[tuple[int, int]] = []
    span_from = 0
    pieces: list[bytes] = []
    add = pieces.append
    small, smallest = _SMALL, len(_SMALL)
    for index, (offset, timestamp, rest) in enumerate(records):
        if offset != expected:
            spans.append((expected - index + span_from, index - span_from))
            span_from = index
        expected = offset + 1
        time = timestamp - first_time
        if timestamp > newest:
            newest = timestamp
        times = small[time] if 0 <= time < smallest else encode_zigzag(_wrapped(time))
        index_bytes = small[index] if index < smallest else encode_zigzag(index)
        front = b"\0" + times + index_bytes
        size = len(front) + len(rest)
        add(small[size] if size < smallest else encode_zigzag(size))
        add(front)
        add(rest)
    count = len(records)
    spans.append((expected - count + span_from, count - span_from))
    return assemble_raw_batch(b"".join(pieces), codec, spans, (first_time, newest), end, leader_epoch)


def assemble_raw_batch(
    records: bytes, codec: int, spans: Sequence[tuple[int, int]], times: tuple[int, int], end: int, leader_epoch: int
) -> RawBatch:
    """A batch of `records`, which are encoded and not compressed yet. times: of the first and of the newest one (ms).
    spans: see `RawBatch`; they say what the base offset is and how many records there are."""
    base, count = spans[0][0], sum([records for _, records in spans])
    body = compress_payload(codec, records)
    data = memoryview(b"".join((*encode_batch_front(body, codec, base, count, times, leader_epoch), body)))
    return RawBatch(base, end, leader_epoch, codec, times[1], -1, -1, -1, count, data, tuple(spans))


def encode_batch_front(
    body: bytes | memoryview, codec: int, base: int, count: int, times: tuple[int, int], leader_epoch: int
) -> tuple[bytes, bytes]:
    """What stands in front of `body`, the records of a batch without a producer, compressed already. base: its base
    offset; times: of the first and of the newest record (ms)."""
    back = _BACK.pack(codec, count - 1, *times, -1, -1, -1, count)
    crc = crc32c(body, crc32c(back))
    return _FRONT.pack(base, BATCH_HEADER_BYTES - 12 + len(body), leader_epoch, CURRENT_MAGIC, crc), back


def _wrapped(time: int) -> int:
    """As Java's long, in which consumers add a record's time to its batch's, and producers take one from the other."""
    return (time - _OLDEST & 0xFFFF_FFFF_FFFF_FFFF) + _OLDEST


def decode_record_fields(rest: bytes) -> _RecordFields:
    """Key, value and headers of a record, for those that leave the copy. Raises IndexError, ValueError."""
    key, at = _sized(rest, 0)
    value, at = _sized(rest, at)
    count, at = decode_zigzag(rest, at)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _sized(rest, at)
        content, at = _sized(rest, at)
        headers.append((name or b"", content))
    return _RecordFields(key, value, tuple(headers))


def encode_key_and_value(key: bytes | None, value: bytes | None) -> bytes:
    """The `rest` of a record without headers."""
    return b"".join((_with_size(key), _with_size(value), b"\0"))


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_zigzag(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _with_size(content: bytes | None) -> bytes:
    return encode_zigzag(-1) if content is None else encode_zigzag(len(content)) + content


_OLDEST, _NEWEST = -(1 << 63), (1 << 63) - 1
_time = itemgetter(1)
_SMALL: Final = tuple(encode_zigzag(number) for number in range(8192))
