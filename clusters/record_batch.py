"""Record batches of format v2 in plain Python: building, reading headers, reading records.

For tests, for `FakeCluster` and for looking at a single batch; the data plane never reads records.
Layout: https://kafka.apache.org/documentation/#recordbatch. All numbers big-endian; the CRC-32C covers everything
from the attributes (byte 21) to the end. Codecs: none and gzip are built and read, the others only passed on.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import crc32c

from watershed.clusters.errors import ProtocolError
from watershed.clusters.varints import decode_zigzag, encode_zigzag

RECORD_BATCH_HEADER_BYTES = 61
BATCH_CRC_START = 21
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
MAX_SEQUENCE = (1 << 31) - 1
ABORT, COMMIT = 0, 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")

BatchBuffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The 61 bytes before the records. `length` counts the bytes after itself; `size` is the whole batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, base offset and length field included."""
        return self.length + 12

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record, even if compaction removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """-1 without a producer id; wraps from 2³¹−1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        """The codec's number (bits 0 to 2 of the attributes; `CODEC_IDS`)."""
        return self.attributes & 0x07

    @property
    def is_transactional(self) -> bool:
        """Bit 4 of the attributes."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Bit 5 of the attributes: a transaction marker, which consumers never see."""
        return bool(self.attributes & _CONTROL)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One record. In `build_batch`, `offset` is the offset within the batch (its delta)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def build_batch(
    records: Sequence[BatchRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: str = "none",
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon: int | None = None,
) -> bytes:
    """A batch as a producer sends it. Offsets with gaps, or a larger `last_offset_delta`, make a compacted one.

    delete_horizon: when the cleaner may remove its tombstones; it stands in place of the first timestamp (KIP-534).
    """
    first = delete_horizon if delete_horizon is not None else records[0].timestamp if records else -1
    body = b"".join(_record(record, first) for record in records)
    if codec == "gzip":
        body = gzip.compress(body, mtime=0)
    elif codec != "none":
        raise ValueError(f"codec {codec} cannot be built here; none and gzip can")
    attributes = CODEC_IDS[codec] | _TRANSACTIONAL * transactional | _CONTROL * control
    attributes |= DELETE_HORIZON * (delete_horizon is not None)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset if records else 0
    newest = max((record.timestamp for record in records), default=-1)
    rest = _AFTER_CRC.pack(
        attributes, last_offset_delta, first, newest, producer_id, epoch, base_sequence, len(records)
    )
    crc = crc32c.crc32c(rest + body)
    start = struct.pack(">qiibI", base_offset, RECORD_BATCH_HEADER_BYTES - 12 + len(body), leader_epoch, 2, crc)
    return start + rest + body


def build_simple_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = 1_700_000_000_000,
    codec: str = "none",
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch of these values, one millisecond apart, at the offsets 0, 1, 2, ..."""
    named = keys or [None] * len(values)
    records = [
        BatchRecord(at, timestamp + at, key, value) for at, (key, value) in enumerate(zip(named, values, strict=True))
    ]
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        epoch=epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def build_marker_batch(producer_id: int, epoch: int, kind: int, timestamp: int, coordinator_epoch: int = 0) -> bytes:
    """A control batch as a transaction coordinator writes it; kind COMMIT or ABORT. Takes one offset."""
    record = BatchRecord(0, timestamp, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch))
    return build_batch([record], producer_id=producer_id, epoch=epoch, transactional=True, control=True)


def decode_batch_header(buffer: BatchBuffer, at: int = 0) -> BatchHeader:
    """Raises `ProtocolError` when fewer than 61 bytes are left or the format is not v2."""
    if len(buffer) - at < RECORD_BATCH_HEADER_BYTES:
        raise ProtocolError(
            f"{len(buffer) - at} bytes are no record batch: its header alone has {RECORD_BATCH_HEADER_BYTES}"
        )
    found = BatchHeader(*_HEADER.unpack_from(buffer, at))
    if found.magic != 2:
        raise ProtocolError(f"record batch of format v{found.magic}; only v2 can be read here")
    return found


def split_batches(buffer: BatchBuffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Whole batches, one after the other; a batch cut off at the end is left out."""
    view, at = memoryview(buffer), 0
    while len(view) - at >= RECORD_BATCH_HEADER_BYTES:
        found = decode_batch_header(view, at)
        if at + found.size > len(view):
            return
        yield found, view[at : at + found.size]
        at += found.size


def decode_batch_records(batch: BatchBuffer) -> list[BatchRecord]:
    """The records of one whole batch with their offsets and timestamps. `ProtocolError` for bytes that are none."""
    found, body = decode_batch_header(batch), bytes(memoryview(batch)[RECORD_BATCH_HEADER_BYTES:])
    if found.codec == CODEC_IDS["gzip"]:
        body = gzip.decompress(body)
    elif found.codec != CODEC_IDS["none"]:
        raise ProtocolError(f"records of codec {found.codec} cannot be read here; none and gzip can")
    records, at = [], 0
    try:
        for _ in range(found.count):
            size, at = decode_zigzag(body, at)
            records.append(_parse(found, body, at))
            at += size
    except (IndexError, ValueError):
        raise ProtocolError(f"the batch at offset {found.base_offset} holds broken records") from None
    if at != len(body):
        raise ProtocolError(f"the batch at offset {found.base_offset} holds {len(body) - at} bytes too many")
    return records


def compute_batch_crc(batch: BatchBuffer) -> int:
    """The CRC-32C that the header of these bytes should hold."""
    return int(crc32c.crc32c(memoryview(batch)[BATCH_CRC_START:]))


def assign_batch_offset(batch: BatchBuffer, base_offset: int, leader_epoch: int) -> bytes:
    """As a broker keeps it: offset and leader epoch filled in (both are outside the CRC)."""
    kept = bytearray(batch)
    struct.pack_into(">q", kept, 0, base_offset)
    struct.pack_into(">i", kept, 12, leader_epoch)
    return bytes(kept)


def _record(record: BatchRecord, first_timestamp: int) -> bytes:
    headers = b"".join(_sized(name.encode()) + _sized(content) for name, content in record.headers)
    body = b"".join(
        (
            b"\0",
            encode_zigzag(record.timestamp - first_timestamp),
            encode_zigzag(record.offset),
            _sized(record.key),
            _sized(record.value),
            encode_zigzag(len(record.headers)),
            headers,
        )
    )
    return encode_zigzag(len(body)) + body


def _parse(found: BatchHeader, body: bytes, at: int) -> BatchRecord:
    timestamp, at = decode_zigzag(body, at + 1)
    offset, at = decode_zigzag(body, at)
    key, at = _bytes(body, at)
    value, at = _bytes(body, at)
    count, at = decode_zigzag(body, at)
    headers = []
    for _ in range(count):
        name, at = _bytes(body, at)
        content, at = _bytes(body, at)
        headers.append(((name or b"").decode(), content))
    when = found.max_timestamp if found.attributes & LOG_APPEND_TIME else found.base_timestamp + timestamp
    return BatchRecord(found.base_offset + offset, when, key, value, tuple(headers))


def _sized(content: bytes | None) -> bytes:
    return encode_zigzag(-1) if content is None else encode_zigzag(len(content)) + content


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_zigzag(body, at)
    if size < 0:
        return None, at
    if at + size > len(body):
        raise IndexError
    return body[at : at + size], at + size
