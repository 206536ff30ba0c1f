"""Whole records of a range, for people who look into a difference: nothing else of the proof holds keys or values."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from clusters.varints import read_zigzag
from spark.errors import NotReadable
from spark.fingerprint import print_slices
from spark.reading.batches import CorruptBatch, locate
from spark.reading.ranges import PartitionAddress, read_batches
from spark.reading.schema_ids import translated
from spark.reading.spans import Span
from spark.reading.xxh64 import Bytes

_Header = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record as it is stored, with schema ids as the flow writes them. timestamp: ms; fp, key_hash: as in a proof."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[_Header, ...]
    fp: int
    key_hash: int


def whole_records(address: PartitionAddress, span: Span, offsets: Collection[int]) -> Iterator[WholeRecord]:
    """The committed records of `span` at these offsets, in log order. Raises Expired, NotReadable, ClusterError."""
    wanted = sorted(set(offsets))
    for batch in read_batches(address, span):
        here = {at for at in wanted if batch.base_offset <= at <= batch.last_offset}
        if not here:
            continue
        try:
            slices = translated(locate([batch]), address.ids)
            prints = print_slices(slices, timestamps=address.timestamps)
        except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
            raise NotReadable(f"{address}: {error}") from None
        for row, offset in enumerate(slices.offset.tolist()):
            if offset not in here:
                continue
            key = _cut(slices.data, slices.key_at[row], slices.key_len[row])
            value = _cut(slices.data, slices.value_at[row], slices.value_len[row])
            packed = _cut(slices.data, slices.headers_at[row], slices.headers_len[row]) or b"\x00"
            stamp, fp, key_hash = int(slices.ts[row]), int(prints.fp[row]), int(prints.kh[row])
            yield WholeRecord(offset, stamp, key, value, tuple(_headers(packed)), fp, key_hash)


def _cut(data: Bytes, at: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(data[at : at + length].tobytes())


def _headers(packed: bytes) -> Iterator[_Header]:
    """As a record batch stores them: count, then for each the length and bytes of name and value (-1: null)."""
    count, at = read_zigzag(packed, 0)
    for _ in range(count):
        length, at = read_zigzag(packed, at)
        name, at = packed[at : at + length], at + length
        length, at = read_zigzag(packed, at)
        yield name, None if length < 0 else packed[at : at + length]
        at += max(length, 0)
