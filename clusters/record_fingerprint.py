"""The fingerprint of a record, version 1: one definition for workers, proofs and anybody's Spark SQL.

    kh = xxh64(key is null as int, key)          value is null and key is null are part of the hash: Spark SQL and
    vh = xxh64(value is null as int, value)      XXH64 chaining skip NULL, so null and empty would be equal without
    hh = xxh64(headers_bin)                      order and repeats of headers count
    fp = xxh64(kh, vh, hh, timestamp in ms)      every chain starts at seed 42

`headers_bin` is the header part of a record exactly as stored (magic 2): varint count, then for every header varint
length and bytes of the name, varint length (-1 for null) and bytes of the value. Frozen by
tests/cases/fingerprint/v1.json: another definition is another version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import xxhash

from clusters.varints import encode_zigzag

FINGERPRINT_VERSION: Final = 1
FINGERPRINT_SEED: Final = 42
UINT64_MASK: Final = 0xFFFFFFFFFFFFFFFF

# What a chain of xxh64 goes on from behind the flag "is null", an int as Spark hashes it (4 bytes).
NOT_NULL_SEED: Final = xxhash.xxh64_intdigest(b"\x00\x00\x00\x00", FINGERPRINT_SEED)
NULL_HASH: Final = xxhash.xxh64_intdigest(b"\x01\x00\x00\x00", FINGERPRINT_SEED)

HeaderPair = tuple[str | bytes, bytes | None]


class _Fingerprint(NamedTuple):
    """Four unsigned 64 bit numbers: of the whole record, and of its key, value and headers."""

    fp: int
    kh: int
    vh: int
    hh: int


def fingerprint_record(key: bytes | None, value: bytes | None, headers: bytes, timestamp: int) -> _Fingerprint:
    """Of one record; `headers` is its `headers_bin`, timestamp in ms."""
    digest = xxhash.xxh64_intdigest
    kh = NULL_HASH if key is None else digest(key, NOT_NULL_SEED)
    vh = NULL_HASH if value is None else digest(value, NOT_NULL_SEED)
    hh = digest(headers, FINGERPRINT_SEED)
    fp = FINGERPRINT_SEED
    for part in (kh, vh, hh, timestamp & UINT64_MASK):
        fp = digest(part.to_bytes(8, "little"), fp)
    return _Fingerprint(fp, kh, vh, hh)


def encode_headers_bin(headers: Sequence[HeaderPair] | None) -> bytes:
    """Headers as bytes, as a record batch stores them."""
    if not headers:
        return b"\x00"
    out = bytearray(encode_zigzag(len(headers)))
    for name, value in headers:
        raw = name.encode() if isinstance(name, str) else name
        out += encode_zigzag(len(raw)) + raw
        out += encode_zigzag(-1) if value is None else encode_zigzag(len(value)) + value
    return bytes(out)
