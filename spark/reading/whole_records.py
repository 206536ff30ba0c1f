"""Whole records of a range, for `topology verify --explain`. No other part of a proof holds keys or values."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from watershed.spark.errors import NotReadable
from watershed.spark.fingerprint import RecordFingerprints, RecordSlices, fingerprint_slices
from watershed.spark.reading.batch_decoding import CorruptBatch, EncodedHeader, decode_headers_bin, locate_records
from watershed.spark.reading.fetch_answers import PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.provenance_rewrite import add_provenance_headers
from watershed.spark.reading.range_reader import read_record_batches
from watershed.spark.reading.schema_id_rewrite import rewrite_schema_ids
from watershed.spark.reading.xxh64 import ByteArray


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record as it is stored, with schema ids as the flow writes them. timestamp: ms; fp, key_hash: as in a proof."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[EncodedHeader, ...]
    fp: int
    key_hash: int


def read_whole_records(address: PartitionAddress, span: OffsetRange, offsets: Collection[int]) -> Iterator[WholeRecord]:
    """The committed records of `span` at these offsets, in log order.

    Raises OffsetsExpired, NotReadable, ClusterError.
    """
    wanted = sorted(set(offsets))
    for batch in read_record_batches(address, span):
        here = {at for at in wanted if batch.base_offset <= at <= batch.last_offset}
        if not here:
            continue
        try:
            slices = add_provenance_headers(rewrite_schema_ids(locate_records([batch]), address.ids), address.header)
            prints = fingerprint_slices(slices, timestamps=address.timestamps)
        except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
            raise NotReadable(f"{address}: {error}") from None
        yield from build_whole_records(slices, prints, here)


def build_whole_records(
    slices: RecordSlices, prints: RecordFingerprints, offsets: Collection[int]
) -> Iterator[WholeRecord]:
    """Those at these offsets. prints: of all records of `slices`."""
    for row, offset in enumerate(slices.offset.tolist()):
        if offset not in offsets:
            continue
        key = _cut(slices.data, slices.key_at[row], slices.key_len[row])
        value = _cut(slices.data, slices.value_at[row], slices.value_len[row])
        packed = _cut(slices.data, slices.headers_at[row], slices.headers_len[row]) or b"\x00"
        stamp, fp, key_hash = int(slices.ts[row]), int(prints.fp[row]), int(prints.kh[row])
        yield WholeRecord(offset, stamp, key, value, tuple(decode_headers_bin(packed)), fp, key_hash)


def _cut(data: ByteArray, at: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(data[at : at + length].tobytes())
