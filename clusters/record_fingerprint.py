"""What of a record is compared, and the two hashes over it: the one definition for workers, adoptions, proofs and SQL.

Compared are key, value, headers (their order and repeats too) and timestamp; null differs from empty. Not compared:
offset, partition, compression, batch boundaries, producer id, leader epoch. A record of a log-append-time batch has the
batch's time. Whoever finds two records equal by one hash finds them equal by the other
(tests/spark/test_compared_records.py); decision 0079 says why there are two.

`fingerprint_record` is public and stays: proofs store it, and anybody may compute it. Version 1:

    kh = xxh64(key is null as int, key)          value is null and key is null are part of the hash: Spark SQL and
    vh = xxh64(value is null as int, value)      XXH64 chaining skip NULL, so null and empty would be equal without
    hh = xxh64(headers_bin)                      order and repeats of headers count
    fp = xxh64(kh, vh, hh, timestamp in ms)      every chain starts at seed 42

`headers_bin` is the header part of a record exactly as stored (magic 2): varint count, then for every header varint
length and bytes of the name, varint length (-1 for null) and bytes of the value. Frozen by
tests/cases/fingerprint/v1.json: another definition is another version.

`digest_record` is secret and for once: the key is drawn for each adoption, so nobody can make two records that look
alike to it. XXH64 with a known seed can be forged.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import xxhash

from watershed.clusters.varints import encode_zigzag

FINGERPRINT_VERSION: Final = 1
FINGERPRINT_SEED: Final = 42
UINT64_MASK: Final = 0xFFFFFFFFFFFFFFFF
DIGEST_BYTES: Final = 8  # of `digest_record`; two different records are alike by chance once in 2**64 comparisons

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


def digest_record(secret: bytes, encoded: bytes, timestamp: int | None) -> bytes:
    """Of one record; `encoded` is its key, value and headers as a magic 2 batch stores them. timestamp in ms, None
    where timestamps are not compared."""
    time = b"" if timestamp is None else timestamp.to_bytes(8, "big", signed=True)
    return blake2b(time + encoded, digest_size=DIGEST_BYTES, key=secret).digest()


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
