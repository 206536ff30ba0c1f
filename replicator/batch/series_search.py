"""Which batches of a Fetch answer are a series (`replicator.batch.batch_series`), found for all of them at once.

A series holds only what `Repacker.take` would open to merge it. Everything else stands in front of a series or behind
it: holes, damage, what the target refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from crc32c import crc32c

from watershed.replicator.batch.batch_series import BatchSeries
from watershed.replicator.batch.codecs import CODEC_NAMES, ZSTD, CodecError, decompress_payload
from watershed.replicator.batch.filler_batch import FILLER_TIMESTAMP
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, CRC_STARTS_AT
from watershed.replicator.batch.record_batch import (
    CODEC_BITS,
    CONTROL,
    CURRENT_MAGIC,
    TRANSACTIONAL,
    RawBatch,
    decode_batch,
)
from watershed.replicator.batch.record_columns import Mask, Numbers, RecordBodies, decode_record_bodies_at_once
from watershed.replicator.batch.records import MAX_RECORD_OVERHEAD_BYTES
from watershed.replicator.batch.repack import (
    MAX_OPENED_BYTES,
    OPENED_RECORD_BYTES,
    SHORTEST_SERIES,
    WAITING_RECORD_BYTES,
    RepackTerms,
)

_HEADER = np.dtype(  # of the current format; as `clusters.record_batch` and the proof have it, each for itself
    [
        ("base", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("checksum", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("first_time", ">i8"),
        ("max_time", ">i8"),
        ("producer", ">i8"),
        ("producer_epoch", ">i2"),
        ("sequence", ">i4"),
        ("count", ">i4"),
    ]
)
_SMALLEST_RECORD: Final = 4  # bytes: length, attributes and two deltas
_LARGEST_OFFSET: Final = 1 << 62  # so that no sum of what a header says leaves 64 bits
# Of a marker: length, (attributes,) two deltas and the key's length have one byte each; the key is version and type.
_MARKER_VARINTS_AT: Final = tuple(BATCH_HEADER_BYTES + field for field in (0, 2, 3, 4))
_MARKER_TYPE_AT: Final = BATCH_HEADER_BYTES + 7


def find_series(fetched: memoryview, edges: Sequence[int], position: int, terms: RepackTerms) -> list[BatchSeries]:
    """All series of an answer, in order; none has fewer than SHORTEST_SERIES batches.

    edges: where batches begin, and where the last one ends (`walk_batch_lengths`). position: the offset that was
    fetched. No transaction of the answer may be aborted.
    """
    answer = _Answer.of(fetched, edges)
    if len(answer) < SHORTEST_SERIES:
        return []
    follows = answer.find_followers(position)
    chosen = np.flatnonzero(follows & answer.find_small(terms))
    chosen = chosen[answer.are_all_taken(chosen, terms)]
    chosen = chosen[answer.have_right_checksums(chosen)]
    chosen, bodies = answer.open_bodies(chosen, terms)
    if len(chosen) < SHORTEST_SERIES:
        return []
    records, is_readable = decode_record_bodies_at_once(bodies)
    rows = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(bodies.counts)))
    waiting = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(records.sizes + WAITING_RECORD_BYTES)))[rows]
    opened = waiting + OPENED_RECORD_BYTES * rows
    is_joined = follows & answer.find_markers()
    is_joined[chosen] = is_readable
    found = []
    for first, end in _list_stretches(is_joined):
        here, behind = np.searchsorted(chosen, (first, end)).tolist()
        if behind - here < SHORTEST_SERIES:
            continue
        batches = chosen[here:behind]
        series = BatchSeries(
            fetched=fetched,
            first_byte=int(answer.starts[first]),
            end_byte=int(answer.stops[end - 1]),
            last=answer.decode(end - 1),
            starts=answer.starts[batches].tolist(),
            stops=answer.stops[batches].tolist(),
            rows=rows[here : behind + 1] - rows[here],
            records=records.select(int(rows[here]), int(rows[behind])),
            groups=answer.list_groups(batches, terms),
            waiting=waiting[here : behind + 1],
            opened=opened[here : behind + 1],
        )
        found.append(series)
    return found


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the headers of all batches of the current format say, a row a batch. ends: offsets behind the last record.
    times in ms."""

    fetched: memoryview
    starts: Numbers
    stops: Numbers
    bases: Numbers
    ends: Numbers
    counts: Numbers
    attributes: Numbers
    leader_epochs: Numbers
    producers: Numbers
    first_times: Numbers
    max_times: Numbers
    checksums: Numbers

    @staticmethod
    def of(fetched: memoryview, edges: Sequence[int]) -> _Answer:
        """Of the batches in front of the first one of an older format, which has another header."""
        everywhere = np.ndarray((len(fetched) - _HEADER.itemsize + 1,), dtype=_HEADER, buffer=fetched, strides=(1,))
        heads = everywhere[np.array(edges[:-1])]
        older = np.flatnonzero(heads["magic"] != CURRENT_MAGIC)
        heads = heads[: int(older[0])] if len(older) else heads
        places = np.array(edges[: len(heads) + 1], dtype=np.int64)
        bases = heads["base"].astype(np.int64)
        ends = bases + heads["last_delta"] + 1
        rest = ("count", "attributes", "leader_epoch", "producer", "first_time", "max_time", "checksum")
        columns = [heads[name].astype(np.int64) for name in rest]
        return _Answer(fetched, places[:-1], places[1:], bases, ends, *columns)

    def __len__(self) -> int:
        return len(self.bases)

    def decode(self, row: int) -> RawBatch:
        return decode_batch(self.fetched, int(self.starts[row]), int(self.stops[row]))

    def find_followers(self, position: int) -> Mask:
        """Which batches have as many records as offsets, and begin at the offset that is next, as all in front of them
        are passed then. The first one begins at `position`."""
        ends = np.where(self.bases > _LARGEST_OFFSET, _LARGEST_OFFSET + 1, self.ends)
        next_offsets = np.maximum.accumulate(np.concatenate((np.array([position]), ends[:-1])))
        follows: Mask = (self.bases == next_offsets) & (self.bases < _LARGEST_OFFSET)
        follows &= (self.counts > 0) & (self.counts == self.ends - self.bases)
        return follows

    def find_small(self, terms: RepackTerms) -> Mask:
        """Which are small, have the time of their producer, and can pass unopened. Only as many as one answer may
        open."""
        sizes, codecs = self.stops - self.starts, self.attributes & CODEC_BITS
        is_small = (sizes < terms.small) & (sizes <= terms.limits.max_batch)
        is_small &= (self.attributes & ~(TRANSACTIONAL | CODEC_BITS)) == 0
        is_small &= codecs < len(CODEC_NAMES)
        is_small &= (codecs != ZSTD) | (self.max_times != FILLER_TIMESTAMP)  # whoever leaves out filler has to see it
        if terms.refused:
            refused = np.sort(np.fromiter(terms.refused, dtype=np.int64))
            is_small &= np.searchsorted(refused, self.bases) == np.searchsorted(refused, self.ends)
        return is_small & (np.cumsum(np.where(is_small, self.counts, 0)) <= MAX_OPENED_BYTES // OPENED_RECORD_BYTES)

    def find_markers(self) -> Mask:
        """Which are markers of transactions, as brokers write them: whether one ends an aborted transaction does not
        matter where none is."""
        is_marker: Mask = ((self.attributes & CONTROL) != 0) & (self.counts == 1)
        is_marker &= self.stops - self.starts >= _MARKER_TYPE_AT + 2
        rows = np.flatnonzero(is_marker)
        octets = np.frombuffer(self.fetched, dtype=np.uint8)
        for field in _MARKER_VARINTS_AT:
            is_marker[rows] &= octets[self.starts[rows] + field] < 0x80
        return is_marker

    def are_all_taken(self, rows: Numbers, terms: RepackTerms) -> Mask:
        """Of which of these batches all that their producer writes is taken."""
        producers, which = np.unique(self.producers[rows], return_inverse=True)
        are_taken: Mask = np.array([terms.takes_all_of(producer) for producer in producers.tolist()], dtype=np.bool_)
        found: Mask = are_taken[which]
        return found

    def have_right_checksums(self, rows: Numbers) -> Mask:
        """Of which of these batches the CRC is that of their bytes."""
        fetched = self.fetched
        places = zip((self.starts[rows] + CRC_STARTS_AT).tolist(), self.stops[rows].tolist(), strict=True)
        found = [crc32c(fetched[at:stop]) for at, stop in places]
        are_right: Mask = self.checksums[rows] == np.array(found, dtype=np.int64)
        return are_right

    def open_bodies(self, rows: Numbers, terms: RepackTerms) -> tuple[Numbers, RecordBodies]:
        """The records of these batches, decompressed, as far as one answer may open them and a batch of the target can
        hold each; and which of the batches they are."""
        data, starts, stops = self.fetched, self.starts[rows] + BATCH_HEADER_BYTES, self.stops[rows]
        codecs = self.attributes[rows] & CODEC_BITS
        if codecs.any():
            payloads = list(_decompress_payloads(data, starts.tolist(), stops.tolist(), codecs.tolist(), terms.merged))
            data = memoryview(b"".join(payloads))
            sizes = np.array([len(payload) for payload in payloads])
            stops = np.cumsum(sizes)
            starts = stops - sizes
        sizes, counts = stops - starts, self.counts[rows]
        fits = sizes + BATCH_HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES <= terms.limits.max_batch
        fits &= counts * _SMALLEST_RECORD <= sizes
        rows = rows[fits]
        bodies = RecordBodies(data, starts[fits], stops[fits], counts[fits], self.bases[rows], self.first_times[rows])
        return rows, bodies

    def list_groups(self, rows: Numbers, terms: RepackTerms) -> list[int]:
        """`BatchSeries.groups` of these batches."""
        _, firsts, which = np.unique(self.producers[rows], return_index=True, return_inverse=True)
        groups = [terms.merge_group(self.decode(row)) for row in rows[firsts].tolist()]
        labels = np.array([groups.index(group) for group in groups])[which]
        begins = (np.diff(labels) != 0) | (np.diff(self.leader_epochs[rows]) != 0)
        begins |= np.diff(self.attributes[rows] & CODEC_BITS) != 0
        if terms.dense:
            begins |= self.bases[rows[1:]] != self.ends[rows[:-1]]
        return [*(np.flatnonzero(begins) + 1).tolist(), len(rows)]


def _decompress_payloads(
    fetched: memoryview, starts: Sequence[int], stops: Sequence[int], codecs: Sequence[int], most: int
) -> Iterator[bytes]:
    """Nothing for one that cannot be read or holds more than a merge is worth (`most` bytes), and for all once enough
    is opened: `Repacker.take` says which it is."""
    room = MAX_OPENED_BYTES
    for at, stop, codec in zip(starts, stops, codecs, strict=True):
        try:
            payload = decompress_payload(codec, fetched[at:stop], most) if room > 0 else b""
        except CodecError:
            payload = b""
        room -= len(payload)
        yield payload


def _list_stretches(mask: Mask) -> Iterator[tuple[int, int]]:
    """(first, end) of the rows that are True, where they stand side by side."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])))).tolist()
    return zip(edges[::2], edges[1::2], strict=True)
