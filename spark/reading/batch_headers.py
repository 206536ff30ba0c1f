"""Headers of all record batches of one fetch answer, decoded at once, and which batches count.

A batch: baseOffset i64, length i32, leaderEpoch i32, magic i8, crc u32, attributes i16, lastOffsetDelta i32,
firstTimestamp i64, maxTimestamp i64, producerId i64, producerEpoch i16, baseSequence i32, count i32, payload
(Kafka protocol, "Record Batch"; KIP-98). A topic of small batches has a million of them in 200 MB: one step of numpy
for all of an answer costs less than one of Python for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from watershed.clusters.claim_rules import SEQUENCE_MODULUS, PartitionClaims
from watershed.spark.reading.batch_decoding import (
    CRC_START_POSITION,
    HEADER_BYTES,
    MAGIC_POSITION,
    CorruptBatch,
    is_abort_marker,
    require_magic_2,
)
from watershed.spark.reading.xxh64 import I64

HEADER_DTYPE = np.dtype(
    [
        ("base", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("delta", ">i4"),
        ("first", ">i8"),
        ("newest", ">i8"),
        ("producer", ">i8"),
        ("producer_epoch", ">i2"),
        ("sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_BYTES

BatchHeaders: TypeAlias = npt.NDArray[np.void]
BatchMask: TypeAlias = npt.NDArray[np.bool_]
CODEC, APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_LENGTH_AT = 8


def find_batch_edges(records: memoryview) -> list[int]:
    """Where whole batches begin, and behind the last of them where it ends; a cut-off last one is left out.

    Raises CorruptBatch for a length that no batch has, OldMessageFormat before magic 2.
    """
    at, last, end, edges = 0, len(records) - HEADER_BYTES, len(records), [0]
    number, add = int.from_bytes, edges.append
    require_magic_2(records)  # old messages may be shorter than a header
    while at <= last:
        if records[at + MAGIC_POSITION] != 2:
            require_magic_2(records[at:])
        size = 12 + number(records[at + _LENGTH_AT : at + 12], "big", signed=True)
        if size < HEADER_BYTES:
            raise CorruptBatch(number(records[at : at + 8], "big", signed=True), f"a length of {size - 12} bytes")
        at += size
        if at > end:
            break
        add(at)
    return edges


def find_next_offset(records: memoryview, edges: Sequence[int]) -> int:
    """The offset behind the last whole batch, whatever it holds; -1 when there is none."""
    if len(edges) < 2:
        return -1
    at = edges[-2]
    return int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1


def decode_batch_headers(records: memoryview, edges: Sequence[int]) -> BatchHeaders:
    """The headers of these batches, shape (n,); a copy, so that `records` may be overwritten."""
    if len(edges) < 2:
        return np.empty(0, dtype=HEADER_DTYPE)
    everywhere = np.ndarray((len(records) - HEADER_BYTES + 1,), dtype=HEADER_DTYPE, buffer=records, strides=(1,))
    found: BatchHeaders = everywhere[np.array(edges[:-1])]
    return found


def compute_last_offsets(heads: BatchHeaders) -> I64:
    """The last offset of every batch, shape (n,); the cleaner may have removed the record there."""
    return np.asarray(heads["base"].astype(np.int64) + heads["delta"])


def check_checksums(records: memoryview, edges: Sequence[int], heads: BatchHeaders) -> None:
    """The CRC32C of every batch, verified over its bytes. Raises CorruptBatch."""
    found = [crc32c(records[at + CRC_START_POSITION : end]) for at, end in pairwise(edges)]
    wrong = np.flatnonzero(heads["crc"] != np.array(found, dtype=np.uint32))
    if len(wrong):
        raise CorruptBatch(int(heads["base"][wrong[0]]), "checksum differs")


def hash_payloads(records: memoryview, edges: Sequence[int], each: Callable[[memoryview], int]) -> list[int]:
    """A hash of the stored payload of every batch."""
    return [each(records[at + HEADER_BYTES : end]) for at, end in pairwise(edges)]


def find_counted_batches(
    records: memoryview,
    edges: Sequence[int],
    heads: BatchHeaders,
    aborted: Sequence[tuple[int, int]],
    skip: frozenset[int],
    only: frozenset[int] = frozenset(),
    claims: PartitionClaims | None = None,
) -> BatchMask:
    """Which batches count: those with records, no markers, none of aborted transactions, none of the producers to skip,
    and where there are producers that count only theirs. claims: of the flows that write as those to skip; what stands
    under their ids elsewhere was written by somebody else, and counts.

    aborted: (producer id, first offset) as the answer lists them. It lists all that touch it, so nothing is remembered
    between answers (Java consumer, CompletedFetch).
    """
    attributes = heads["attributes"].astype(np.int64)
    counts: BatchMask = (heads["count"] > 0) & ((attributes & _CONTROL) == 0)
    if skip:
        left_out = np.isin(heads["producer"], list(skip))
        counts &= ~(left_out if claims is None else left_out & find_claimed_batches(heads, claims))
    if only:
        counts &= np.isin(heads["producer"], list(only))
    if aborted:
        counts &= ~_aborted(records, edges, heads, aborted)
    return counts


def find_claimed_batches(heads: BatchHeaders, claims: PartitionClaims) -> BatchMask:
    """Which batches a flow's ledger claims: those wholly among the offsets that it has written in transactions, and
    those whose epoch and sequence number fit where it wrote by sequence numbers."""
    base, end = heads["base"].astype(np.int64), compute_last_offsets(heads) + 1
    firsts, ends = (np.frombuffer(column, dtype=np.int64) for column in (claims.firsts, claims.ends))
    found: BatchMask = np.zeros(len(heads), dtype=np.bool_)
    if len(firsts):
        at = np.searchsorted(firsts, base, side="right") - 1
        found = (at >= 0) & (end <= ends[np.maximum(at, 0)])
    for rule in claims.rules:
        epoch = heads["producer_epoch"]
        fits = (heads["producer"] == rule.producer_id) & (rule.epoch <= epoch) & (epoch < rule.epochs_end)
        fits &= (base >= rule.first) & (end <= rule.end)
        if rule.base >= 0:
            fits &= (base - rule.base) % SEQUENCE_MODULUS == heads["sequence"]
        found |= fits
    return found


def _aborted(
    records: memoryview, edges: Sequence[int], heads: BatchHeaders, listed: Sequence[tuple[int, int]]
) -> BatchMask:
    found = np.zeros(len(heads), dtype=bool)
    ahead, running = sorted(listed, key=lambda transaction: transaction[1]), set[int]()
    some = np.flatnonzero(heads["attributes"] & (_TRANSACTIONAL | _CONTROL))
    rows = zip(
        some.tolist(),
        compute_last_offsets(heads)[some].tolist(),
        heads["producer"][some].tolist(),
        (heads["attributes"][some] & _CONTROL != 0).tolist(),
        strict=True,
    )
    for row, last, producer, control in rows:
        while ahead and ahead[0][1] <= last:
            running.add(ahead.pop(0)[0])
        if not control:
            found[row] = producer in running
        elif is_abort_marker(records[edges[row] + HEADER_BYTES : edges[row + 1]]):
            running.discard(producer)
    return found
