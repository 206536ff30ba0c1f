"""Reads a range of one partition from raw record batches (`clusters.wire`): as batches, as digests of batches, or as
fingerprints of records. It verifies the checksums of all bytes. Only committed records count.

This reader shares no code with the replicator, because it judges the replicator's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from watershed.spark.errors import NotReadable
from watershed.spark.fingerprint import RecordFingerprints, fingerprint_slices, join_fingerprints
from watershed.spark.reading.batch_decoding import (
    HEADER_BYTES,
    BatchView,
    CorruptBatch,
    decode_batch_view,
    decode_headers_bin,
    decompress_bounded,
    locate_payload_records,
    locate_records,
)
from watershed.spark.reading.batch_digests import BatchDigests, digest_batches, hash_payload
from watershed.spark.reading.batch_headers import (
    APPEND_TIME,
    CODEC,
    BatchHeaders,
    BatchMask,
    check_checksums,
    compute_last_offsets,
    decode_batch_headers,
    find_counted_batches,
    hash_payloads,
)
from watershed.spark.reading.broker_connections import BrokerConnections
from watershed.spark.reading.fetch_answers import FetchAnswer, PartitionAddress, fetch_range
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.provenance_rewrite import add_provenance_headers
from watershed.spark.reading.read_limits import borrow_connections
from watershed.spark.reading.schema_id_rewrite import rewrite_schema_ids
from watershed.spark.reading.xxh64 import I64

_BLOCK_RECORDS = 40_000  # records that are hashed together: more of them are faster, fewer need less memory
_OPENED_BYTES = 64 << 20  # bytes of decompressed batches that are hashed together
_BLOCK_BATCHES = 20_000  # digests in a block, 60 bytes each


def read_fingerprints(
    address: PartitionAddress,
    span: OffsetRange,
    left_out: Sequence[tuple[int, int]] = (),
    connections: BrokerConnections | None = None,
) -> Iterator[RecordFingerprints]:
    """Fingerprints of the committed records of `span`, block by block in log order.

    left_out: ranges of offsets (first, end), sorted and disjoint; a batch that lies wholly in one is not decompressed.
    connections: for the reads; None: the connections of the Spark task.

    Raises OffsetsExpired, NotReadable, ClusterError.
    """
    with _readable(address, connections) as through:
        for answer in fetch_range(address, span, through):
            heads = decode_batch_headers(answer.records, answer.edges)
            check_checksums(answer.records, answer.edges, heads)
            rows = np.flatnonzero(_wanted(address, span, answer, heads, left_out))
            records = np.cumsum(heads["count"][rows], dtype=np.int64)
            turns = np.flatnonzero(np.diff(records // _BLOCK_RECORDS)) + 1
            for block in np.split(rows, turns) if len(rows) else ():
                yield from _prints(address, answer, heads, block, span)


def read_batch_digests(address: PartitionAddress, span: OffsetRange) -> Iterator[BatchDigests]:
    """Digests of the committed batches that `span` touches, block by block in log order. The first batch may begin
    before the span, and the last may end behind it.

    Raises OffsetsExpired, NotReadable, ClusterError.
    """
    waiting: list[BatchHeaders] = []
    payloads: list[int] = []
    with _readable(address) as connections:
        for answer in fetch_range(address, span, connections):
            heads = decode_batch_headers(answer.records, answer.edges)
            check_checksums(answer.records, answer.edges, heads)
            hashes = hash_payloads(answer.records, answer.edges, hash_payload)
            wanted = _wanted(address, span, answer, heads)
            if wanted.all():
                waiting.append(heads)
                payloads += hashes
            else:
                waiting.append(heads[wanted])
                payloads += [hashes[row] for row in np.flatnonzero(wanted).tolist()]
            if len(payloads) >= _BLOCK_BATCHES:
                yield digest_batches(np.concatenate(waiting), payloads)
                waiting, payloads = [], []
    if payloads:
        yield digest_batches(np.concatenate(waiting), payloads)


def read_record_batches(
    address: PartitionAddress, span: OffsetRange, *, committed: bool = True, left_out: Sequence[tuple[int, int]] = ()
) -> Iterator[BatchView]:
    """Batches with records that touch `span`, in log order. The first may begin before it, the last may end behind it.

    committed: leaves out markers, aborted batches, and batches that the cleaner emptied; else the reader returns all
    that the log holds up to its high watermark. left_out: as for `read_fingerprints`. Raises OffsetsExpired,
    NotReadable, ClusterError.
    """
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    with _readable(address) as connections:
        for answer in fetch_range(address, span, connections, isolation=isolation, keep=True):
            heads = decode_batch_headers(answer.records, answer.edges)
            check_checksums(answer.records, answer.edges, heads)
            wanted = _wanted(address, span, answer, heads, left_out, committed=committed)
            for row in np.flatnonzero(wanted).tolist():
                yield decode_batch_view(answer.records, answer.edges[row], answer.edges[row + 1])


def read_all_fingerprints(
    address: PartitionAddress, span: OffsetRange, connections: BrokerConnections | None = None
) -> RecordFingerprints:
    """The whole span as one block, for record-level comparison."""
    return join_fingerprints(list(read_fingerprints(address, span, connections=connections)))


def _wanted(
    address: PartitionAddress,
    span: OffsetRange,
    answer: FetchAnswer,
    heads: BatchHeaders,
    left_out: Sequence[tuple[int, int]] = (),
    *,
    committed: bool = True,
) -> BatchMask:
    """Which batches of an answer belong to the span and count."""
    last = compute_last_offsets(heads)
    wanted: BatchMask = (last >= answer.position) & (heads["base"] < span.end)
    if committed:
        wanted &= find_counted_batches(answer.records, answer.edges, heads, answer.aborted, *address.whose)
    if left_out:
        wanted &= ~_within(heads["base"].astype(np.int64), last, left_out)
    if address.marks.headers and committed:
        for row in np.flatnonzero(wanted & ~np.isin(heads["producer"], address.marks.flows)).tolist():
            wanted[row] = not _is_marked(address, decode_batch_view(answer.records, *answer.edges[row : row + 2]))
    return wanted


def _is_marked(address: PartitionAddress, batch: BatchView) -> bool:
    """Whether all records of the batch have one of the marks. Raises NotReadable."""
    try:
        slices = locate_records([batch])
        spans = zip(slices.headers_at.tolist(), slices.headers_len.tolist(), strict=True)
        headers = [slices.data[at : at + size].tobytes() for at, size in spans]
        names = [{name for name, _ in decode_headers_bin(each)} if each else set() for each in headers]
    except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
        raise NotReadable(f"{address}: {error}") from None
    marks = (mark.encode() for mark in address.marks.headers)
    return bool(names) and any(all(mark in each for each in names) for mark in marks)


def _prints(
    address: PartitionAddress, answer: FetchAnswer, heads: BatchHeaders, rows: I64, span: OffsetRange
) -> Iterator[RecordFingerprints]:
    """Fingerprints of these batches of an answer. A batch may be many times larger when it is decompressed. So at most
    _OPENED_BYTES and one more batch are held decompressed at a time. Raises NotReadable."""
    edges, records, codecs = answer.edges, answer.records, (heads["attributes"] & CODEC).tolist()
    bodies: list[bytes | memoryview] = []
    begun = size = 0
    try:
        for index, row in enumerate(rows.tolist()):
            block = records[edges[row] + HEADER_BYTES : edges[row + 1]]
            bodies.append(decompress_bounded(codecs[row], block, int(heads["base"][row])))
            size += len(bodies[-1])
            if size >= _OPENED_BYTES or index + 1 == len(rows):
                yield _printed(address, heads[rows[begun : index + 1]], bodies).between(span.start, span.end)
                bodies, begun, size = [], index + 1, 0
    except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
        raise NotReadable(f"{address}: {error}") from None


def _printed(address: PartitionAddress, some: BatchHeaders, bodies: list[bytes | memoryview]) -> RecordFingerprints:
    base, count, first, newest = (some[name].astype(np.int64) for name in ("base", "count", "first", "newest"))
    slices = locate_payload_records(bodies, base, count, first, newest, some["attributes"] & APPEND_TIME != 0)
    slices = add_provenance_headers(rewrite_schema_ids(slices, address.ids), address.header)
    return fingerprint_slices(slices, timestamps=address.timestamps)


def _within(base: I64, last: I64, spans: Sequence[tuple[int, int]]) -> BatchMask:
    """Which batches lie wholly in one of the spans."""
    first, end = np.array(spans, dtype=np.int64).T
    at = np.searchsorted(first, base, side="right") - 1
    found: BatchMask = (at >= 0) & (last < end[np.maximum(at, 0)])
    return found


@contextmanager
def _readable(address: PartitionAddress, connections: BrokerConnections | None = None) -> Iterator[BrokerConnections]:
    """Lends connections while a range is read. Malformed content of the log raises NotReadable with its place."""
    try:
        if connections is not None:
            yield connections
        else:
            with borrow_connections(address.settings) as found:
                yield found
    except (CorruptBatch, ValueError) as error:
        raise NotReadable(f"{address}: {error}") from None
