"""Digests of whole record batches. Equal digests prove a batch-by-batch copy without opening a batch.

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

from watershed.clusters.record_fingerprint import UINT64_MASK
from watershed.spark.fingerprint import ChunkSum, compute_order_weights
from watershed.spark.reading.batch_decoding import HEADER_BYTES, BatchView
from watershed.spark.reading.batch_headers import HEADER_DTYPE, BatchHeaders, compute_last_offsets
from watershed.spark.reading.xxh64 import I64, U64, hash_longs

_KEPT = 0x0F  # attributes: codec and kind of timestamp
hash_payload = xxhash.xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class BatchDigests:
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

    def between(self, start: int, end: int) -> BatchDigests:
        """Those that begin at start <= offset < end."""
        low, high = np.searchsorted(self.base, (start, end)).tolist()
        return self.take(slice(low, high))

    def take(self, rows: slice | I64 | npt.NDArray[np.bool_]) -> BatchDigests:
        """The batches at these indices, or under this mask."""
        return BatchDigests(
            self.base[rows],
            self.last[rows],
            self.count[rows],
            self.ts[rows],
            self.until[rows],
            self.size[rows],
            self.digest[rows],
        )


def join_digests(parts: Sequence[BatchDigests]) -> BatchDigests:
    """One run of parts of a log that follow one another."""
    if not parts:
        return digest_batches(np.empty(0, dtype=HEADER_DTYPE), ())
    return BatchDigests(
        np.concatenate([part.base for part in parts]),
        np.concatenate([part.last for part in parts]),
        np.concatenate([part.count for part in parts]),
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.until for part in parts]),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.digest for part in parts]),
    )


def digest_batch(batch: BatchView) -> int:
    """64 bits over what a copy keeps of a batch: the plain form that `digest_batches` is tested against."""
    facts = (
        (batch.last_offset - batch.base_offset) << 32 | batch.count,
        (len(batch.raw) - HEADER_BYTES) << 32 | batch.attributes & _KEPT,
        batch.first_timestamp,
        batch.max_timestamp,
    )
    digest = hash_payload(batch.raw[HEADER_BYTES:])
    for fact in facts:
        digest = xxhash.xxh64_intdigest((fact & UINT64_MASK).to_bytes(8, "little"), digest)
    return digest


def digest_batches(heads: BatchHeaders, payloads: Sequence[int]) -> BatchDigests:
    """Of batches in log order; `payloads` are the hashes of their payloads."""
    delta, count, attributes, length, first, newest = (
        heads[name].astype(np.int64) for name in ("delta", "count", "attributes", "length", "first", "newest")
    )
    size = length - (HEADER_BYTES - 12)
    digest = np.array(payloads, dtype=np.uint64)
    for fact in (delta << 32 | count, size << 32 | attributes & _KEPT, first, newest):
        digest = hash_longs(fact.view(np.uint64), digest)
    return BatchDigests(heads["base"].astype(np.int64), compute_last_offsets(heads), count, first, newest, size, digest)


def sum_batch_digests(digests: BatchDigests, *, base: int | None = None) -> ChunkSum:
    """Sums like those of `sum_fingerprints`, with n = records; key, value and headers have no sums of their own."""
    n = len(digests)
    if n == 0:
        return ChunkSum()
    # the ordinal of its first record: the sums of neighbours join as those of records do
    ordinals = np.cumsum(digests.count) - digests.count + 1 if base is None else digests.base - (base - 1)
    low, high = digests.digest & np.uint64(0xFFFFFFFF), digests.digest >> np.uint64(32)
    order = int((compute_order_weights(ordinals) * digests.digest).sum()) & UINT64_MASK
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
