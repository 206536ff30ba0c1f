"""Filler: batches of empty records that move the end of a target's log to the offset where a copy begins."""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import Final

from crc32c import crc32c

from watershed.clusters.varints import encode_zigzag
from watershed.replicator.batch.codecs import ZSTD, CodecError, compress_payload, decompress_payload
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import CURRENT_MAGIC, RawBatch
from watershed.replicator.batch.records import encode_key_and_value

# Records in a batch. Never more: the broker keeps an object a record, and dies of 12 million.
FILLER_BATCH_RECORDS: Final = 100_000
FILLER_TIMESTAMP: Final = 0  # ms, of every record
_FRONT = struct.Struct(">qiibI")
_BACK = struct.Struct(">hiqqqhii")


def is_filler_batch(batch: RawBatch) -> bool:
    """Whether a stored batch holds nothing but empty records, as `build_filler_batch` makes them, or is a transaction's
    marker."""
    if batch.control:
        return True
    if batch.transactional or batch.records != batch.end - batch.base or batch.records > FILLER_BATCH_RECORDS:
        return False
    expected = _empty_records(batch.records)  # at most 1 MB: what holds more is nobody's filler, and is not opened
    try:
        return decompress_payload(batch.codec, batch.data[BATCH_HEADER_BYTES:], len(expected)) == expected
    except CodecError:
        return False


def build_filler_batch(count: int, producer_id: int, epoch: int, sequence: int) -> tuple[bytes, bytes]:
    """A batch of `count` empty records of the year 1970, as (header, payload)."""
    header, payload = _template(count)
    return rewrite_header(header, producer_id=producer_id, epoch=epoch, sequence=sequence), payload


@lru_cache(maxsize=64)
def _template(count: int) -> tuple[bytes, bytes]:
    if not 0 < count <= FILLER_BATCH_RECORDS:
        raise ValueError(f"a filler batch of {count} records; 1 to {FILLER_BATCH_RECORDS} are allowed")
    payload = compress_payload(ZSTD, _empty_records(count))
    back = _BACK.pack(ZSTD, count - 1, FILLER_TIMESTAMP, FILLER_TIMESTAMP, -1, -1, -1, count)
    front = _FRONT.pack(0, BATCH_HEADER_BYTES - 12 + len(payload), -1, CURRENT_MAGIC, crc32c(payload, crc32c(back)))
    return front + back, payload


def _empty_records(count: int) -> bytes:
    """No key, no value, no headers, deltas of time 0 and of offset 0, 1, 2, …"""
    length = count * len(_empty_record(0)) + max(count - 64, 0) + max(count - 8192, 0)  # where zigzag takes a byte more
    return _most_empty_records()[:length]


@cache
def _most_empty_records() -> bytes:
    return b"".join(map(_empty_record, range(FILLER_BATCH_RECORDS)))


def _empty_record(index: int) -> bytes:
    record = b"\0\0" + encode_zigzag(index) + encode_key_and_value(None, None)
    return encode_zigzag(len(record)) + record


@cache
def count_fitting_records(max_batch: int) -> int:
    """How many records a batch of so many bytes holds at most."""
    count = FILLER_BATCH_RECORDS
    while count > 1 and sum(map(len, _template(count))) > max_batch:
        count //= 2
    return count
