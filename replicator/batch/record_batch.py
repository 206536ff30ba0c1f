"""One record batch as fetched, and how a Fetch answer falls into batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.errors import BadBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
_SIZE, _SIZE_AT = struct.Struct(">i"), 8  # bytes of a batch behind this field
_OLD_TIMESTAMP = struct.Struct(">q")
CODEC_BITS: Final = 0x07
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
_CRC_AT, _OLD_CRC_AT = 17, 12  # of a batch; of a message in format v0 or v1
MAGIC_BYTE_AT: Final = 16  # in every format, also where the whole message is shorter than our header
CURRENT_MAGIC: Final = 2  # the format that brokers store since Kafka 0.11
UNKNOWN_RECORD_COUNT: Final = -1  # records of an old message: it has to be opened to be counted


class RawBatch(NamedTuple):
    """One batch; `data` is the whole of it, `end` the source offset behind everything that it covers.

    spans: (first source offset, records) for each stretch of consecutive source offsets in it; empty means one
    stretch from `base`. Only a repacked batch has spans. saved: bytes that it had more before we compressed it.

    A message of format v0 or v1 is a batch too, with `records` UNKNOWN_RECORD_COUNT; of a compressed one `base` is the
    offset of the last record in it, as its front says.
    """

    base: int
    end: int
    leader_epoch: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    data: memoryview
    spans: tuple[tuple[int, int], ...] = ()
    saved: int = 0

    @property
    def control(self) -> bool:
        """True for a batch of transaction markers."""
        return bool(self.attributes & CONTROL)

    @property
    def transactional(self) -> bool:
        """True for a batch that was written in a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> int:
        """Compression codec: the lowest three bits of the attributes."""
        return self.attributes & CODEC_BITS

    def source_offset(self, index: int) -> int:
        """The source offset of the record at `index`."""
        for first, records in self.spans:
            if index < records:
                return first + index
            index -= records
        return self.base + index


class BatchChecksum(NamedTuple):
    """A batch as a log stores it: another one at the same offset has another checksum (the CRC-32 of its own front)."""

    base: int
    checksum: bytes
    size: int  # bytes

    @staticmethod
    def of(batch: RawBatch) -> BatchChecksum:
        """Of a batch that was fetched and not repacked."""
        at = _CRC_AT if batch.data[MAGIC_BYTE_AT] == CURRENT_MAGIC else _OLD_CRC_AT
        return BatchChecksum(batch.base, bytes(batch.data[at : at + 4]), len(batch.data))


def decode_batches(fetched: memoryview) -> Iterator[RawBatch]:
    """The whole batches in `fetched`; one that is cut off at the end is left out.

    Raises BadBatch for a format that does not exist.
    """
    at, size = 0, len(fetched)
    while at + MAGIC_BYTE_AT < size:
        base, length = _LENGTH.unpack_from(fetched, at)
        stop, magic = at + 12 + length, fetched[at + MAGIC_BYTE_AT]
        if not 0 <= magic <= CURRENT_MAGIC:
            raise BadBatch(f"is in message format v{magic}, which this version does not know", base, "unsupported")
        if stop > size or (magic == CURRENT_MAGIC and at + BATCH_HEADER_BYTES > size):
            return
        if stop < at + (BATCH_HEADER_BYTES if magic == CURRENT_MAGIC else MAGIC_BYTE_AT + 2):
            raise BadBatch(f"is {12 + length} bytes long, shorter than its own header", base)
        yield _message(fetched[at:stop], base) if magic < CURRENT_MAGIC else decode_batch(fetched, at, stop)
        at = stop


def walk_batch_lengths(fetched: memoryview) -> list[int]:
    """Where batches begin, and where the last of them ends. Ends in front of the first that is cut off, or whose length
    no batch of the current format has."""
    at, last, size, edges = 0, len(fetched) - BATCH_HEADER_BYTES, len(fetched), [0]
    read, add = _SIZE.unpack_from, edges.append
    while at <= last:
        (length,) = read(fetched, at + _SIZE_AT)
        at += 12 + length
        if length < BATCH_HEADER_BYTES - 12 or at > size:
            break
        add(at)
    return edges


def decode_batch(fetched: memoryview, at: int, stop: int) -> RawBatch:
    """The batch of the current format that begins at byte `at` and ends at `stop`."""
    base, _length, epoch, _magic, _crc, attributes, delta, _first, newest, pid, pepoch, sequence, count = (
        _HEADER.unpack_from(fetched, at)
    )
    return RawBatch(
        base, base + delta + 1, epoch, attributes, newest, pid, pepoch, sequence, count, fetched[at:stop]
    )  # fmt: skip


def _message(data: memoryview, offset: int) -> RawBatch:
    """An entry of an old message set: offset, size, CRC-32, magic, attributes, v1: timestamp, key, value."""
    known = data[MAGIC_BYTE_AT] == 1 and len(data) >= MAGIC_BYTE_AT + 10
    return RawBatch(
        base=offset,
        end=offset + 1,
        leader_epoch=-1,
        attributes=data[MAGIC_BYTE_AT + 1] & (CODEC_BITS | LOG_APPEND_TIME),
        max_timestamp=_OLD_TIMESTAMP.unpack_from(data, MAGIC_BYTE_AT + 2)[0] if known else -1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=UNKNOWN_RECORD_COUNT,
        data=data,
    )
