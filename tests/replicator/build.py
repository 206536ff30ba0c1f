"""Batches as a source broker stores them, and how to look at them, for the tests of the replicator."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from watershed.clusters.record_batch import (
    ABORT,
    COMMIT,
    BatchRecord,
    assign_batch_offset,
    build_batch,
    build_marker_batch,
    compute_batch_crc,
)
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.topology.egress_compression import EgressCompression

NOW = 1_790_000_000_000
GZIP = EgressCompression("gzip", 6)  # fake clusters can look into it


def data(
    base: int,
    count: int = 1,
    *,
    producer_id: int = -1,
    transactional: bool = False,
    epoch: int = 0,
    size: int = 5,
    offsets: Sequence[int] | None = None,
    span: int | None = None,
    codec: str = "none",
) -> bytes:
    """`count` records from `base` on. offsets: deltas of the records that compaction left, of `span` offsets."""
    deltas = range(count) if offsets is None else offsets
    records = [BatchRecord(delta, NOW + delta, b"k%d" % (base + delta), b"v" * size) for delta in deltas]
    batch = build_batch(
        records,
        producer_id=producer_id,
        epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
        codec=codec,
        last_offset_delta=None if span is None else span - 1,
    )
    return assign_batch_offset(batch, base, epoch)


def transactional(base: int, count: int, producer_id: int) -> bytes:
    return data(base, count, producer_id=producer_id, transactional=True)


def commit(base: int, producer_id: int) -> bytes:
    return assign_batch_offset(build_marker_batch(producer_id, 0, COMMIT, NOW), base, 0)


def abort(base: int, producer_id: int) -> bytes:
    return assign_batch_offset(build_marker_batch(producer_id, 0, ABORT, NOW), base, 0)


def emptied(base: int, span: int = 1, *, producer_id: int = 9, control: bool = False) -> bytes:
    """What the cleaner keeps of a producer's last batch: the header alone (DefaultRecordBatch.writeEmptyHeader)."""
    batch = build_batch(
        [],
        producer_id=producer_id,
        epoch=0,
        base_sequence=-1 if control else 0,
        transactional=control,
        control=control,
        last_offset_delta=span - 1,
    )
    return assign_batch_offset(batch, base, 0)


def with_attributes(batch: bytes, bits: int) -> bytes:
    changed = bytearray(batch)
    (before,) = struct.unpack_from(">h", changed, 21)
    struct.pack_into(">h", changed, 21, before | bits)
    return bytes(changed)


def with_crc(batch: bytes) -> bytes:
    """With the CRC that belongs to the bytes as they are now."""
    return batch[:17] + struct.pack(">I", compute_batch_crc(batch)) + batch[21:]


def damaged(batch: bytes) -> bytes:
    """A bit of the payload is another one; the CRC does not match any more."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def old_format(base: int, magic: int, size: int = 100) -> bytes:
    """A message set entry of format v0 or v1 that holds nothing sensible."""
    return struct.pack(">qiIb", base, size - 12, 0, magic) + bytes(size - 17)


def answer(*batches: bytes) -> memoryview:
    return memoryview(b"".join(batches))


def batch_of(stored_batch: bytes) -> RawBatch:
    (found,) = decode_batches(memoryview(stored_batch))
    return found
