"""Record batches as stored (magic 2) -> positions of their records, many batches at a time.

A batch: baseOffset i64, length i32, leaderEpoch i32, magic i8, crc u32, attributes i16, lastOffsetDelta i32,
firstTimestamp i64, maxTimestamp i64, producerId i64, producerEpoch i16, baseSequence i32, count i32, payload
(Kafka protocol, "Record Batch"; KIP-98). The payload is one compressed block of records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from watershed.clusters.bounded_gzip import gunzip
from watershed.clusters.varints import decode_zigzag
from watershed.spark.fingerprint import RecordSlices
from watershed.spark.reading.xxh64 import I64, ByteArray

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER_STRUCT.size  # 61
MAGIC_POSITION = 16
CRC_START_POSITION = 21  # what the CRC is over begins here

_MOST = 128 << 20  # bytes that one batch may hold when it is opened, as for the replicator
_PIECE = 1 << 20  # bytes opened at a time
_SNAPPY_JAVA = b"\x82SNAPPY\x00"


class CorruptBatch(Exception):
    """A batch that its own checksum or lengths contradict; carries its base offset."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"corrupt record batch at offset {offset}: {why}")
        self.offset = offset


class OldMessageFormat(ValueError):
    """Messages of a format before magic 2 (Kafka 0.11), which have no batches."""

    def __init__(self, offset: int, magic: int) -> None:
        super().__init__(
            f"the message at offset {offset} has format v{magic} (before Kafka 0.11); a proof reads v2 and newer. "
            "Let retention remove it, or write the topic anew, then prove again"
        )


@dataclass(frozen=True, slots=True)
class BatchView:
    """A record batch (magic 2): what its header says, and its bytes as stored. Timestamps in ms."""

    base_offset: int
    last_offset: int
    first_timestamp: int
    max_timestamp: int
    attributes: int
    producer_id: int
    count: int
    raw: memoryview

    @property
    def control(self) -> bool:
        """A transaction marker (attributes, bit 5)."""
        return bool(self.attributes & 0x20)

    @property
    def transactional(self) -> bool:
        """Written in a transaction (attributes, bit 4)."""
        return bool(self.attributes & 0x10)

    @property
    def append_time(self) -> bool:
        """Its records have the broker's append time, `max_timestamp` (attributes, bit 3)."""
        return bool(self.attributes & 0x08)

    def payload(self) -> bytes | memoryview:
        """Records, decompressed."""
        return decompress_bounded(self.attributes & 7, self.raw[HEADER_BYTES:], self.base_offset)


def decode_batch_view(records: memoryview, start: int, end: int) -> BatchView:
    """The batch that stands in these bytes, unchecked."""
    base, _, _, _, _, attributes, delta, first, newest, producer, _, _, count = HEADER_STRUCT.unpack_from(
        records, start
    )
    return BatchView(base, base + delta, first, newest, attributes, producer, count, records[start:end])


def is_abort_marker(body: bytes | memoryview) -> bool:
    """Whether the record of a control batch says ABORT (its key: version i16, type i16 = 0). The cleaner may have left
    an empty batch of a marker, for the sake of its producer: that ends nothing (CompletedFetch of the Java consumer).
    """
    if not len(body):
        return False
    at = 0
    for _ in range(4):  # record length, then attributes, timestamp delta, offset delta
        at = _skip_varint(body, at)
    at = _skip_varint(body, at)  # key length
    return int.from_bytes(body[at + 2 : at + 4], "big") == 0


def require_magic_2(records: memoryview) -> None:
    """Raises OldMessageFormat when what begins here has a format before magic 2 (the byte is at the same place in
    all)."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != 2:
        raise OldMessageFormat(int.from_bytes(records[:8], "big", signed=True), records[MAGIC_POSITION])


def split_checked_batches(records: memoryview) -> Iterator[BatchView]:
    """Whole batches of a fetch answer; a cut-off last one is left out. The CRC32C of each is checked.

    Raises CorruptBatch, OldMessageFormat.
    """
    at, end = 0, len(records)
    require_magic_2(records)  # old messages may be shorter than a header
    while end - at >= HEADER_BYTES:
        base, length, _, magic, crc, attributes, delta, first, newest, producer, _, _, count = (
            HEADER_STRUCT.unpack_from(records, at)
        )
        if magic != 2:
            require_magic_2(records[at:])
        if length < HEADER_BYTES - 12:
            raise CorruptBatch(base, f"a length of {length} bytes")
        if at + 12 + length > end:
            return
        raw = records[at : at + 12 + length]
        if crc32c(raw[CRC_START_POSITION:]) != crc:
            raise CorruptBatch(base, "checksum differs")
        yield BatchView(base, base + delta, first, newest, attributes, producer, count, raw)
        at += 12 + length


_SMALLEST = 7  # bytes of a record: length, attributes, two deltas, the lengths of key and value, the number of headers


def decompress_bounded(codec: int, block: memoryview, offset: int) -> bytes | memoryview:
    """Payload of a batch by its codec number: 0 none, 1 gzip, 2 snappy, 3 lz4 (frame), 4 zstd.

    Raises CorruptBatch for what holds more than _MOST bytes, and ValueError, OSError for what is no such data: a small
    batch may hold gigabytes, and anybody who may write to the topic can make one.
    """
    if codec == 0:
        return block
    if codec == 1:
        return gunzip(block, _MOST)
    if codec == 2:
        return _snappy(bytes(block), offset)
    if codec in (3, 4):
        with pa.CompressedInputStream(pa.py_buffer(block), {3: "lz4", 4: "zstd"}[codec]) as stream:
            opened, left = [], _MOST
            while piece := stream.read(_PIECE):
                opened.append(piece)
                left -= len(piece)
                if left < 0:
                    raise _too_large(offset)
            return opened[0] if len(opened) == 1 else b"".join(opened)
    raise CorruptBatch(offset, f"unknown compression {codec}")


def locate_records(batches: list[BatchView]) -> RecordSlices:
    """Positions of all records of the batches, in order. Shapes (n,), n = total count. Raises CorruptBatch, and
    ValueError, IndexError, OSError, EOFError for a payload that is none."""
    bases, counts, firsts, newest = (
        np.array(column, dtype=np.int64)
        for column in zip(*((b.base_offset, b.count, b.first_timestamp, b.max_timestamp) for b in batches), strict=True)
    )
    append_time = np.array([batch.append_time for batch in batches])
    return locate_payload_records([batch.payload() for batch in batches], bases, counts, firsts, newest, append_time)


def locate_payload_records(
    bodies: Sequence[bytes | memoryview],
    bases: I64,
    counts: I64,
    firsts: I64,
    newest: I64,
    append_time: npt.NDArray[np.bool_],
) -> RecordSlices:
    """The same of decompressed payloads, and what their headers say; of each batch one, in every argument."""
    joined = np.frombuffer(b"".join((*bodies, bytes(16))), dtype=np.uint8)
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    impossible = np.flatnonzero((counts < 0) | (counts * _SMALLEST > lengths))
    if len(impossible):  # memory is taken for what is announced
        first = int(impossible[0])
        raise CorruptBatch(int(bases[first]), f"{int(counts[first])} records in {int(lengths[first])} bytes")
    ends = np.cumsum(lengths)
    body_at, starts = _walk(joined, ends, counts, bases)

    at = starts + 1  # behind the attributes byte
    ts_delta, at = _varints(joined, at)
    offset_delta, at = _varints(joined, at)
    key_len, key_at = _varints(joined, at)
    value_len, value_at = _varints(joined, key_at + np.maximum(key_len, 0))
    headers_at = value_at + np.maximum(value_len, 0)
    stamps = np.repeat(firsts, counts) + ts_delta
    if append_time.any():
        stamps = np.where(np.repeat(append_time, counts), np.repeat(newest, counts), stamps)
    if (headers_at > body_at).any() or (key_len < -1).any() or (value_len < -1).any():
        raise CorruptBatch(int(bases[0]), "record lengths exceed their record")
    return RecordSlices(
        joined,
        np.repeat(bases, counts) + offset_delta,
        stamps,
        key_at,
        key_len,
        value_at,
        value_len,
        headers_at,
        body_at - headers_at,
    )


EncodedHeader: TypeAlias = tuple[bytes, bytes | None]  # name and value of a record header


def decode_headers_bin(raw: bytes) -> Iterator[EncodedHeader]:
    """Headers of a record as a batch stores them: their count, then length and bytes of name and value (-1: null)."""
    count, at = decode_zigzag(raw, 0)
    for _ in range(count):
        size, at = decode_zigzag(raw, at)
        name, at = raw[at : at + size], at + size
        size, at = decode_zigzag(raw, at)
        yield name, None if size < 0 else raw[at : at + size]
        at += max(size, 0)


def _walk(data: ByteArray, ends: I64, counts: I64, bases: I64) -> tuple[I64, I64]:
    """(end, start behind the length) of every record: each says where the next begins, so batches walk in step."""
    if len(bases) < 24:
        return _walk_one_by_one(data, ends, counts, bases)
    first = np.cumsum(counts) - counts  # index of a batch's first record in the answer
    starts = np.empty(int(counts.sum()), dtype=np.int64)
    stops = np.empty_like(starts)
    order = np.argsort(-counts, kind="stable")
    at = np.concatenate(([0], ends[:-1])).astype(np.int64)[order]
    slot, left, limit = first[order], counts[order], ends[order]
    for step in range(int(left[0]) if len(left) else 0):
        live = int(np.searchsorted(-left, -step, side="left"))  # those with left > step
        length, body = _varints(data, at[:live])
        starts[slot[:live] + step] = body
        at[:live] = body + length
        stops[slot[:live] + step] = at[:live]
        if (length < 6).any() or (at[:live] > limit[:live]).any():
            raise CorruptBatch(int(bases[0]), "a record is longer than its batch")
    return stops, starts


def _walk_one_by_one(data: ByteArray, ends: I64, counts: I64, bases: I64) -> tuple[I64, I64]:
    raw, starts, stops, at = data.tobytes(), [], [], 0
    for base, end, count in zip(bases.tolist(), ends.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            byte = raw[at]
            at += 1
            length, shift = byte & 0x7F, 7
            while byte & 0x80:
                byte = raw[at]
                at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
            length >>= 1  # zigzag; never negative
            starts.append(at)
            at += length
            stops.append(at)
            if at > end:
                raise CorruptBatch(base, "a record is longer than its batch")
    return np.array(stops, dtype=np.int64), np.array(starts, dtype=np.int64)


def _varints(data: ByteArray, at: I64) -> tuple[I64, I64]:
    """(value, position behind) of the zigzag varint at every position."""
    byte = data[at].astype(np.int64)
    value = byte & 0x7F
    behind = at + 1
    more = np.flatnonzero(byte & 0x80)
    shift = 7
    while len(more):
        byte = data[behind[more]].astype(np.int64)
        value[more] |= (byte & 0x7F) << shift
        behind[more] += 1
        shift += 7
        more = more[(byte & 0x80) != 0]
        if shift > 63 and len(more):
            raise ValueError("varint longer than 10 bytes")
    return (value >> 1) & 0x7FFFFFFFFFFFFFFF ^ -(value & 1), behind


def _skip_varint(body: bytes | memoryview, at: int) -> int:
    while body[at] & 0x80:
        at += 1
    return at + 1


def _snappy(block: bytes, offset: int) -> bytes:
    codec, left = pa.Codec("snappy"), _MOST
    if not block.startswith(_SNAPPY_JAVA):
        return bytes(codec.decompress(block, _snappy_size(block, left, offset)))
    at, out = 16, []  # magic 8, version 4, compatible 4; then (size i32, raw snappy) blocks
    while at < len(block):
        size = int.from_bytes(block[at : at + 4], "big")
        piece = block[at + 4 : at + 4 + size]
        out.append(bytes(codec.decompress(piece, _snappy_size(piece, left, offset))))
        left -= len(out[-1])
        at += 4 + size
    return b"".join(out)


def _snappy_size(block: bytes, left: int, offset: int) -> int:
    """Uncompressed size: the plain varint of at most 5 bytes that raw snappy begins with."""
    size, shift = 0, 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > left:
        raise _too_large(offset)
    return size


def _too_large(offset: int) -> CorruptBatch:
    return CorruptBatch(offset, f"it holds more than {_MOST} bytes, which is more than a proof opens")
