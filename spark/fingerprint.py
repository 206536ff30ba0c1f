"""Record fingerprint, version 1: what "the same record" means, and sums of it that can be merged.

    kh = xxh64(key is null as int, key)          value is null and key is null are part of the hash: Spark SQL and
    vh = xxh64(value is null as int, value)      XXH64 chaining skip NULL, so null and empty would be equal without
    hh = xxh64(headers_bin)                      order and repeats of headers count
    fp = xxh64(kh, vh, hh, timestamp in ms)      every chain starts at seed 42

`headers_bin` is the header part of a record exactly as stored (magic 2): varint count, then for every header varint
length and bytes of the name, varint length (-1 for null) and bytes of the value. Not in a fingerprint: offset,
partition, compression, batch boundaries, producer id, leader epoch. `SPARK_SQL` is the same in Spark SQL (the golden
test holds both together). Design 04; measured facts behind it: research/verification §2.

An accidental equality of two different chunks has a chance of about 2**-64; an adversary can forge it (XXH64 is no
cryptographic hash), which the report says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from spark.xxh64 import I64, U64, Bytes, hash_longs, hash_slices

VERSION = 1
SEED = 42
MASK = 0xFFFFFFFFFFFFFFFF

# Columns key, value, headers_bin (BINARY) and timestamp_ms (BIGINT).
SPARK_SQL = {
    "kh": "xxhash64(cast(key is null as int), key)",
    "vh": "xxhash64(cast(value is null as int), value)",
    "hh": "xxhash64(headers_bin)",
    "fp": "xxhash64(kh, vh, hh, timestamp_ms)",
}

_PRESENT = xxhash.xxh64_intdigest(b"\x00\x00\x00\x00", SEED)
_NULL = xxhash.xxh64_intdigest(b"\x01\x00\x00\x00", SEED)
_NO_HEADERS = xxhash.xxh64_intdigest(b"\x00", SEED)

Header = tuple[str | bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer sees it; `timestamp` in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Prints:
    """Fingerprints of n records in log order; every array has shape (n,). `ts` in ms, `size` is key + value bytes."""

    offset: I64
    fp: U64
    kh: U64
    vh: U64
    hh: U64
    ts: I64
    size: int

    def __len__(self) -> int:
        return len(self.fp)

    def between(self, start: int, end: int) -> Prints:
        """Those with start <= offset < end. Sizes are shared out in proportion (they only describe)."""
        low, high = np.searchsorted(self.offset, (start, end)).tolist()
        if low == 0 and high == len(self):
            return self
        size = self.size * (high - low) // max(1, len(self))
        cut = slice(low, high)
        return Prints(self.offset[cut], self.fp[cut], self.kh[cut], self.vh[cut], self.hh[cut], self.ts[cut], size)


@dataclass(frozen=True, slots=True)
class ChunkSum:
    """Sums over a run of records; `+` joins two neighbouring runs, left one first.

    m_lo, m_hi: sums of the low and the high 32 bit halves of fp (exact, so they hold the true sum of a multiset).
    order: sum of ordinal * fp modulo 2**64, ordinals from 1. kh, vh, hh: sums modulo 2**64. ts: sum of ms.
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

    def __add__(self, other: ChunkSum) -> ChunkSum:
        total = other.m_lo + (other.m_hi << 32)
        return ChunkSum(
            self.n + other.n,
            self.m_lo + other.m_lo,
            self.m_hi + other.m_hi,
            (self.order + other.order + self.n * total) & MASK,
            (self.kh + other.kh) & MASK,
            (self.vh + other.vh) & MASK,
            (self.hh + other.hh) & MASK,
            self.ts + other.ts,
            self.size + other.size,
        )

    def same_records(self, other: ChunkSum) -> bool:
        """The same multiset of records, in whatever order."""
        return (self.n, self.m_lo, self.m_hi) == (other.n, other.m_lo, other.m_hi)

    def equals(self, other: ChunkSum) -> bool:
        """The same records in the same order."""
        return self.same_records(other) and self.order == other.order

    def altered_components(self, other: ChunkSum) -> tuple[str, ...]:
        """Which of key, value, headers, timestamp differ in sum; meaningful when n is equal."""
        names = (("key", "kh"), ("value", "vh"), ("headers", "hh"), ("timestamp", "ts"))
        return tuple(name for name, field in names if getattr(self, field) != getattr(other, field))


def sum_prints(prints: Prints) -> ChunkSum:
    n = len(prints)
    if n == 0:
        return ChunkSum()
    ordinals = np.arange(1, n + 1, dtype=np.uint64)
    return ChunkSum(
        n,
        int((prints.fp & np.uint64(0xFFFFFFFF)).sum()),
        int((prints.fp >> np.uint64(32)).sum()),
        int((ordinals * prints.fp).sum()),
        int(prints.kh.sum()),
        int(prints.vh.sum()),
        int(prints.hh.sum()),
        int(prints.ts.sum()),
        prints.size,
    )


def headers_bin(headers: Sequence[Header] | None) -> bytes:
    """Headers as bytes, as a record batch stores them."""
    if not headers:
        return b"\x00"
    out = bytearray(varint(len(headers)))
    for name, value in headers:
        raw = name.encode() if isinstance(name, str) else name
        out += varint(len(raw)) + raw
        out += varint(-1) if value is None else varint(len(value)) + value
    return bytes(out)


def varint(number: int) -> bytes:
    """Zigzag varint of Kafka's record format (KIP-98)."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def print_records(records: Iterable[Record], first_offset: int = 0, *, timestamps: bool = True) -> Prints:
    """Fingerprints one record at a time, with the C library: the plain form that the fast ones are tested against."""
    digest, rows, size = xxhash.xxh64_intdigest, [], 0
    for offset, record in enumerate(records, first_offset):
        kh = _NULL if record.key is None else digest(record.key, _PRESENT)
        vh = _NULL if record.value is None else digest(record.value, _PRESENT)
        hh = digest(headers_bin(record.headers), SEED)
        fp = digest(kh.to_bytes(8, "little"), SEED)
        for part in (vh, hh, (record.timestamp if timestamps else 0) & MASK):
            fp = digest(part.to_bytes(8, "little"), fp)
        rows.append((offset, fp, kh, vh, hh, record.timestamp if timestamps else 0))
        size += len(record.key or b"") + len(record.value or b"")
    columns = list(zip(*rows, strict=True)) or [()] * 6
    unsigned = [np.array(column, dtype=np.uint64) for column in columns[1:5]]
    offsets, stamps = np.array(columns[0], dtype=np.int64), np.array(columns[5], dtype=np.int64)
    return Prints(offsets, unsigned[0], unsigned[1], unsigned[2], unsigned[3], stamps, size)


@dataclass(frozen=True, slots=True)
class Slices:
    """n records as positions in one buffer; lengths -1 mean null. `data` needs 8 spare bytes at its end."""

    data: Bytes
    offset: I64
    ts: I64
    key_at: I64
    key_len: I64
    value_at: I64
    value_len: I64
    headers_at: I64
    headers_len: I64


def print_slices(slices: Slices, *, timestamps: bool = True) -> Prints:
    """Fingerprints of all records at once. `timestamps` False: the target stamps append times, leave them out."""
    n = len(slices.offset)
    seeds = np.full(n, SEED, dtype=np.uint64)
    kh = _nullable(slices.data, slices.key_at, slices.key_len)
    vh = _nullable(slices.data, slices.value_at, slices.value_len)
    hh = np.full(n, _NO_HEADERS, dtype=np.uint64)
    some = np.flatnonzero(slices.headers_len > 1)
    if len(some):
        at, length = slices.headers_at[some], slices.headers_len[some]
        hh[some] = hash_slices(slices.data, at, length, seeds[some])
    ts = slices.ts if timestamps else np.zeros(n, dtype=np.int64)
    fp = hash_longs(ts.view(np.uint64), hash_longs(hh, hash_longs(vh, hash_longs(kh, seeds))))
    size = int(np.maximum(slices.key_len, 0).sum() + np.maximum(slices.value_len, 0).sum())
    return Prints(slices.offset, fp, kh, vh, hh, ts, size)


def _nullable(data: Bytes, at: I64, length: I64) -> U64:
    present = length >= 0
    if present.all():
        return hash_slices(data, at, length, np.full(len(at), _PRESENT, dtype=np.uint64))
    result = np.full(len(at), _NULL, dtype=np.uint64)
    some = np.flatnonzero(present)
    result[some] = hash_slices(data, at[some], length[some], np.full(len(some), _PRESENT, dtype=np.uint64))
    return result
