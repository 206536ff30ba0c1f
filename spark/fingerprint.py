"""Fingerprints of many records at once, and sums of them that can be merged: what "the same records" means.

The definition, record by record, is `clusters.record_fingerprint`, which workers use, too. `SPARK_SQL` is the same in
Spark SQL (the golden test holds all of them together).

An accidental equality of two different chunks has a chance of about 2**-64; an adversary can forge it (XXH64 is no
cryptographic hash), which the report says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from watershed.clusters.record_fingerprint import (
    FINGERPRINT_SEED,
    NOT_NULL_SEED,
    NULL_HASH,
    UINT64_MASK,
    HeaderPair,
    encode_headers_bin,
    fingerprint_record,
)
from watershed.spark.reading.xxh64 import I64, U64, ByteArray, hash_longs, hash_slices

# Columns key, value, headers_bin (BINARY) and timestamp_ms (BIGINT).
SPARK_SQL = {
    "kh": "xxhash64(cast(key is null as int), key)",
    "vh": "xxhash64(cast(value is null as int), value)",
    "hh": "xxhash64(headers_bin)",
    "fp": "xxhash64(kh, vh, hh, timestamp_ms)",
}

ORDER_WEIGHT_STEP = 0xD1342543DE82EF95  # 5 modulo 8: its powers repeat after 2**62 at the earliest
_NEAR = 1 << 17  # powers that are kept, 1 MiB
_NO_HEADERS = fingerprint_record(None, None, b"\x00", 0).hh


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """One record as a consumer sees it; `timestamp` in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[HeaderPair, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordFingerprints:
    """Fingerprints of n records in log order; every array has shape (n,). `ts` in ms, `size` in bytes of key + value.

    stamps: the timestamps where `ts` is all 0 because the copy has others; they only describe."""

    offset: I64
    fp: U64
    kh: U64
    vh: U64
    hh: U64
    ts: I64
    size: I64
    stamps: I64 | None = None

    def __len__(self) -> int:
        return len(self.fp)

    @property
    def times(self) -> I64:
        """The timestamps as stored, judged or not."""
        return self.ts if self.stamps is None else self.stamps

    def between(self, start: int, end: int) -> RecordFingerprints:
        """Those with start <= offset < end."""
        low, high = np.searchsorted(self.offset, (start, end)).tolist()
        if low == 0 and high == len(self):
            return self
        return self.take(slice(low, high))

    def without(self, spans: Sequence[tuple[int, int]]) -> RecordFingerprints:
        """Those at none of these offsets (first, end), which are in order and apart from one another."""
        if not spans:
            return self
        first, end = np.array(spans, dtype=np.int64).T
        at = np.searchsorted(first, self.offset, side="right") - 1  # the span that begins last before each
        keep = (at < 0) | (self.offset >= end[np.maximum(at, 0)])
        if keep.all():
            return self
        return self.take(keep)

    def take(self, rows: slice | I64 | npt.NDArray[np.bool_]) -> RecordFingerprints:
        """The records at these indices, or under this mask."""
        return RecordFingerprints(
            self.offset[rows],
            self.fp[rows],
            self.kh[rows],
            self.vh[rows],
            self.hh[rows],
            self.ts[rows],
            self.size[rows],
            None if self.stamps is None else self.stamps[rows],
        )


def join_fingerprints(parts: Sequence[RecordFingerprints]) -> RecordFingerprints:
    """One run of parts of a log that follow one another. Real timestamps are kept, compared or not."""
    if not parts:
        return _NO_RECORDS
    without_stamps = all(part.stamps is None for part in parts)
    return RecordFingerprints(
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.fp for part in parts]),
        np.concatenate([part.kh for part in parts]),
        np.concatenate([part.vh for part in parts]),
        np.concatenate([part.hh for part in parts]),
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.size for part in parts]),
        None if without_stamps else np.concatenate([part.times for part in parts]),
    )


_NO_NUMBERS: I64 = np.empty(0, dtype=np.int64)
_NO_HASHES: U64 = np.empty(0, dtype=np.uint64)
_NO_RECORDS = RecordFingerprints(_NO_NUMBERS, _NO_HASHES, _NO_HASHES, _NO_HASHES, _NO_HASHES, _NO_NUMBERS, _NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class ChunkSum:
    """Sums over a run of records; `+` joins two neighbouring runs, left one first.

    m_lo, m_hi: sums of the low and the high 32 bit halves of fp (exact, so they hold the true sum of a multiset).
    order: sum of ORDER_WEIGHT_STEP**ordinal * fp modulo 2**64, ordinals from 1 (with the ordinal itself as weight,
    A B B A would be B A A B). kh, vh, hh: sums modulo 2**64. ts: sum of ms.
    since, until: lowest and highest timestamp in ms, -1 for none; they only describe.
    """

    n: int = 0
    m_lo: int = 0
    m_hi: int = 0
    order: int = 0
    kh: int = 0
    vh: int = 0
    hh: int = 0
    ts: int = 0
    size: int = 0
    since: int = -1
    until: int = -1

    def __add__(self, other: ChunkSum) -> ChunkSum:
        return ChunkSum(
            self.n + other.n,
            self.m_lo + other.m_lo,
            self.m_hi + other.m_hi,
            (self.order + pow(ORDER_WEIGHT_STEP, self.n, UINT64_MASK + 1) * other.order) & UINT64_MASK,
            (self.kh + other.kh) & UINT64_MASK,
            (self.vh + other.vh) & UINT64_MASK,
            (self.hh + other.hh) & UINT64_MASK,
            self.ts + other.ts,
            self.size + other.size,
            min(self.since, other.since) if min(self.since, other.since) >= 0 else max(self.since, other.since),
            max(self.until, other.until),
        )

    def add_in_place(self, other: ChunkSum) -> ChunkSum:
        """The sum of both, where each record counts by its offset (`sum_fingerprints` with a base)."""
        return replace(self + other, order=(self.order + other.order) & UINT64_MASK)

    def has_same_records(self, other: ChunkSum) -> bool:
        """The same multiset of records, in whatever order."""
        return (self.n, self.m_lo, self.m_hi) == (other.n, other.m_lo, other.m_hi)

    def equals(self, other: ChunkSum) -> bool:
        """The same records in the same order."""
        return self.has_same_records(other) and self.order == other.order


@cache
def _powers() -> U64:
    found = np.full(_NEAR, ORDER_WEIGHT_STEP, dtype=np.uint64)
    found[0] = 1
    return np.multiply.accumulate(found)


def compute_order_weights(ordinals: I64) -> U64:
    """ORDER_WEIGHT_STEP**ordinal modulo 2**64 of each; shape (n,), ordinals >= 0 and rising."""
    if len(ordinals) and ordinals[-1] - ordinals[0] < _NEAR:
        first = int(ordinals[0])
        return _powers()[ordinals - first] * np.uint64(pow(ORDER_WEIGHT_STEP, first, UINT64_MASK + 1))
    found = np.ones(len(ordinals), dtype=np.uint64)
    left, square = ordinals.astype(np.uint64), ORDER_WEIGHT_STEP
    while left.any():
        found *= np.where(left & np.uint64(1), np.uint64(square), np.uint64(1))
        left, square = left >> np.uint64(1), square * square & UINT64_MASK
    return found


def sum_fingerprints(prints: RecordFingerprints, *, base: int | None = None) -> ChunkSum:
    """Sums of a run. base: `order` counts each record by its offset behind `base`, not by its ordinal; such sums
    are joined by `ChunkSum.add_in_place`, because their weights do not depend on what stands before."""
    n = len(prints)
    if n == 0:
        return ChunkSum()
    ordinals = np.arange(1, n + 1, dtype=np.int64) if base is None else prints.offset - (base - 1)
    known = prints.times[prints.times >= 0]  # -1: written without
    return ChunkSum(
        n,
        int((prints.fp & np.uint64(0xFFFFFFFF)).sum()),
        int((prints.fp >> np.uint64(32)).sum()),
        int((compute_order_weights(ordinals) * prints.fp).sum()),
        int(prints.kh.sum()),
        int(prints.vh.sum()),
        int(prints.hh.sum()),
        int(prints.times.sum()),
        int(prints.size.sum()),
        int(known.min()) if len(known) else -1,
        int(known.max()) if len(known) else -1,
    )


def fingerprint_records(
    records: Iterable[ConsumedRecord], first_offset: int = 0, *, timestamps: bool = True
) -> RecordFingerprints:
    """Fingerprints one record at a time, with the C library: the plain form that the fast ones are tested against."""
    rows = []
    for offset, record in enumerate(records, first_offset):
        stamp = record.timestamp if timestamps else 0
        told = fingerprint_record(record.key, record.value, encode_headers_bin(record.headers), stamp)
        rows.append((offset, *told, stamp, len(record.key or b"") + len(record.value or b"")))
    columns = list(zip(*rows, strict=True)) or [()] * 7
    unsigned = [np.array(column, dtype=np.uint64) for column in columns[1:5]]
    offsets, stamps, sizes = (np.array(columns[at], dtype=np.int64) for at in (0, 5, 6))
    return RecordFingerprints(offsets, unsigned[0], unsigned[1], unsigned[2], unsigned[3], stamps, sizes)


@dataclass(frozen=True, slots=True)
class RecordSlices:
    """n records as positions in one buffer; lengths -1 mean null. `data` needs 8 spare bytes at its end."""

    data: ByteArray
    offset: I64
    ts: I64
    key_at: I64
    key_len: I64
    value_at: I64
    value_len: I64
    headers_at: I64
    headers_len: I64


def fingerprint_slices(slices: RecordSlices, *, timestamps: bool = True) -> RecordFingerprints:
    """Fingerprints of all records at once. `timestamps` False: the target stamps append times, leave them out."""
    n = len(slices.offset)
    seeds = np.full(n, FINGERPRINT_SEED, dtype=np.uint64)
    kh = _nullable(slices.data, slices.key_at, slices.key_len)
    vh = _nullable(slices.data, slices.value_at, slices.value_len)
    hh = np.full(n, _NO_HEADERS, dtype=np.uint64)
    some = np.flatnonzero(slices.headers_len > 1)
    if len(some):
        at, length = slices.headers_at[some], slices.headers_len[some]
        hh[some] = hash_slices(slices.data, at, length, seeds[some])
    ts = slices.ts if timestamps else np.zeros(n, dtype=np.int64)
    fp = hash_longs(ts.view(np.uint64), hash_longs(hh, hash_longs(vh, hash_longs(kh, seeds))))
    size = np.maximum(slices.key_len, 0) + np.maximum(slices.value_len, 0)
    return RecordFingerprints(slices.offset, fp, kh, vh, hh, ts, size, None if timestamps else slices.ts)


def _nullable(data: ByteArray, at: I64, length: I64) -> U64:
    present = length >= 0
    if present.all():
        return hash_slices(data, at, length, np.full(len(at), NOT_NULL_SEED, dtype=np.uint64))
    result = np.full(len(at), NULL_HASH, dtype=np.uint64)
    some = np.flatnonzero(present)
    result[some] = hash_slices(data, at[some], length[some], np.full(len(some), NOT_NULL_SEED, dtype=np.uint64))
    return result
