"""Digests of whole record batches: what proves a batch-by-batch copy without opening a batch.

A copy that passes through keeps of every batch the codec, the kind of timestamp, both timestamps, the number of
records, the offset delta of the last one and the payload, byte for byte; everything else in a header is the writer's
own (Kafka protocol, "Record Batch"). Equal digests are therefore equal records in equal order. Different ones prove
nothing, because a copy may be packed otherwise: such a chunk is judged by fingerprints of its records.

    digest = xxh64(delta of the last offset and count, payload size and kept attributes, first timestamp, highest one)

chained, and seeded with XXH3 of the payload as stored: one C call a batch reads the bytes, numpy mixes the facts of all
batches at once. Decision 0028 says why this shape, and why the CRC in the header does not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from spark.fingerprint import MASK, ChunkSum, weights
from spark.reading.batches import HEAD, Batch
from spark.reading.heads import HEAD_TYPE, Heads, last_offsets
from spark.reading.xxh64 import I64, U64, hash_longs

_KEPT = 0x0F  # attributes: codec and kind of timestamp
hash_payload = xxhash.xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class Digests:
    """Batches of one log in order; every array has shape (n,). base, last: offsets; count: records; ts, until: the
    first and the highest timestamp in ms; size: bytes of payload as stored."""

    base: I64
    last: I64
    count: I64
    ts: I64
    until: I64
    size: I64
    digest: U64

    def __len__(self) -> int:
        return len(self.digest)

    def between(self, start: int, end: int) -> Digests:
        """Those that begin at start <= offset < end."""
        low, high = np.searchsorted(self.base, (start, end)).tolist()
        cut = slice(low, high)
        columns = (self.base, self.last, self.count, self.ts, self.until, self.size)
        return Digests(*(column[cut] for column in columns), self.digest[cut])


def rows_of(digests: Digests, rows: I64 | npt.NDArray[np.bool_]) -> Digests:
    """Some of them, by their indices or by a mask."""
    return Digests(*(getattr(digests, column)[rows] for column in Digests.__dataclass_fields__))


def joined(parts: Sequence[Digests]) -> Digests:
    """Of parts of a log that follow one another."""
    if not parts:
        return digests(np.empty(0, dtype=HEAD_TYPE), ())
    columns = Digests.__dataclass_fields__
    return Digests(*(np.concatenate([getattr(part, column) for part in parts]) for column in columns))


def digest_of(batch: Batch) -> int:
    """64 bits over what a copy keeps of a batch: the plain form that `digests` is tested against."""
    facts = (
        (batch.last_offset - batch.base_offset) << 32 | batch.count,
        (len(batch.raw) - HEAD) << 32 | batch.attributes & _KEPT,
        batch.first_timestamp,
        batch.max_timestamp,
    )
    digest = hash_payload(batch.raw[HEAD:])
    for fact in facts:
        digest = xxhash.xxh64_intdigest((fact & MASK).to_bytes(8, "little"), digest)
    return digest


def digests(heads: Heads, payloads: Sequence[int]) -> Digests:
    """Of batches in log order; `payloads` are the hashes of their payloads."""
    delta, count, attributes, length, first, newest = (
        heads[name].astype(np.int64) for name in ("delta", "count", "attributes", "length", "first", "newest")
    )
    size = length - (HEAD - 12)
    digest = np.array(payloads, dtype=np.uint64)
    for fact in (delta << 32 | count, size << 32 | attributes & _KEPT, first, newest):
        digest = hash_longs(fact.view(np.uint64), digest)
    return Digests(heads["base"].astype(np.int64), last_offsets(heads), count, first, newest, size, digest)


def sum_digests(digests: Digests, *, base: int | None = None) -> ChunkSum:
    """Sums like those of fingerprints, with n = records; key, value and headers are not told apart. base: as in
    `fingerprint.sum_prints`."""
    n = len(digests)
    if n == 0:
        return ChunkSum()
    # the ordinal of its first record: the sums of neighbours join as those of records do
    ordinals = np.cumsum(digests.count) - digests.count + 1 if base is None else digests.base - (base - 1)
    low, high = digests.digest & np.uint64(0xFFFFFFFF), digests.digest >> np.uint64(32)
    order = int((weights(ordinals) * digests.digest).sum()) & MASK
    known = digests.ts[digests.ts >= 0]
    return ChunkSum(
        int(digests.count.sum()),
        int(low.sum()),
        int(high.sum()),
        order,
        ts=int(digests.ts.sum()),
        size=int(digests.size.sum()),
        since=int(known.min()) if len(known) else -1,
        until=max(-1, int(digests.until.max())),
    )
