"""Records of many batches at once, as columns of numbers over the bytes of one Fetch answer.

What `replicator.batch.records` does for one record after the other, numpy does here for thousands: a topic whose
batches hold a record each has six thousand of them in a MiB. Both say the same of the same bytes, and build the same
bytes (`tests/replicator/test_batch_series.py`).

A column is an array with a row for each record (or batch). Positions are bytes in the answer, or where batches are
compressed in what they hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from watershed.clusters.varints import decode_zigzag
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.records import RawRecord, assemble_raw_batch, build_raw_batch

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
_Bytes: TypeAlias = npt.NDArray[np.uint8]

_LONGEST_VARINT: Final = 5  # bytes of those that are read here: 35 bits, deltas of timestamps up to 198 days
_SEVEN, _SEVEN_BITS, _CONTINUED = np.uint64(7), np.uint64(0x7F), np.uint64(0x80)
_NOWHERE: Final = 1 << 40  # behind the end of every answer
# Below these numbers the steps of numpy cost more than one batch or record after the other.
_FEW_BATCHES: Final = 24  # 4 µs a step, 0.25 µs a record: measured with 50 to 9,000 records of 100 and 1,000 B
_FEW_RECORDS: Final = 48


class RecordBodies(NamedTuple):
    """The records of batches, not compressed: those of a batch fill `data` from its start to its stop. All other fields
    are columns with a row a batch; the last three say what its header says. first_times: ms."""

    data: memoryview
    starts: Numbers
    stops: Numbers
    counts: Numbers
    bases: Numbers
    first_times: Numbers


@dataclass(frozen=True, slots=True)
class OpenedRecords:
    """Records in the order of their source offsets; timestamps in ms. rests, sizes: where in `data` the key, the value
    and the headers stand, and how many bytes they take."""

    data: memoryview
    offsets: Numbers
    timestamps: Numbers
    rests: Numbers
    sizes: Numbers

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, first: int, end: int) -> OpenedRecords:
        """The records from index `first` up to, not including, `end`."""
        rows = slice(first, end)
        return OpenedRecords(
            self.data, self.offsets[rows], self.timestamps[rows], self.rests[rows], self.sizes[rows]
        )  # fmt: skip

    def list_records(self) -> list[RawRecord]:
        """One by one."""
        stops = (self.rests + self.sizes).tolist()
        places = zip(self.offsets.tolist(), self.timestamps.tolist(), self.rests.tolist(), stops, strict=True)
        return [RawRecord(offset, time, bytes(self.data[at:stop])) for offset, time, at, stop in places]

    def build_raw_batch(self, codec: int, end: int, leader_epoch: int) -> RawBatch:
        """As `replicator.batch.records.build_raw_batch` of these records (at least one)."""
        count = len(self)
        if count < _FEW_RECORDS:
            return build_raw_batch(self.list_records(), codec, end, leader_epoch)
        indexes = zigzag_numbers(np.arange(count, dtype=np.int64))
        deltas = zigzag_numbers(self.timestamps - self.timestamps[0])
        lengths = 1 + measure_varints(deltas) + measure_varints(indexes) + self.sizes
        sizes = zigzag_numbers(lengths)
        stops = np.cumsum(lengths + measure_varints(sizes))
        body = np.zeros(int(stops[-1]), dtype=np.uint8)
        at = np.concatenate((np.zeros(1, dtype=np.int64), stops[:-1]))
        at = write_varints_at(body, at, sizes) + 1  # the attributes of a record are 0
        at = write_varints_at(body, at, deltas)
        write_varints_at(body, at, indexes)
        copy_pieces(self.data, self.rests, body, stops - self.sizes, self.sizes)
        times = int(self.timestamps[0]), int(self.timestamps.max())
        return assemble_raw_batch(body.tobytes(), codec, self._list_spans(), times, end, leader_epoch)

    def _list_spans(self) -> list[tuple[int, int]]:
        edges = [0, *(np.flatnonzero(np.diff(self.offsets) != 1) + 1).tolist(), len(self)]
        firsts = self.offsets[edges[:-1]].tolist()
        return [(first, stop - at) for first, at, stop in zip(firsts, edges[:-1], edges[1:], strict=True)]


def decode_record_bodies_at_once(bodies: RecordBodies) -> tuple[OpenedRecords, Mask]:
    """All records of these batches (at least one, each with records), and which of the batches can be read so.

    What is said of the records of another batch means nothing. It is damaged, has holes, or holds numbers that no
    producer writes: `decode_records` says which. No count may exceed what fits into its body, four bytes a record.
    """
    octets = np.frombuffer(bodies.data, dtype=np.uint8)
    rows = np.cumsum(bodies.counts) - bodies.counts  # of the first record of each batch
    starts, stops, is_readable = _find_records(octets, bodies, rows)
    times, at = decode_varints_at(octets, starts + 1)  # behind the attributes
    deltas, at = decode_varints_at(octets, at)
    indexes = np.arange(len(starts), dtype=np.int64) - np.repeat(rows, bodies.counts)
    is_readable &= np.logical_and.reduceat((deltas == indexes) & (at <= stops), rows)
    columns = OpenedRecords(
        bodies.data,
        np.repeat(bodies.bases, bodies.counts) + indexes,
        np.repeat(bodies.first_times, bodies.counts) + times,  # begins again at the other end, as Java's long
        at,
        stops - at,
    )
    return columns, is_readable


def _find_records(octets: _Bytes, bodies: RecordBodies, rows: Numbers) -> tuple[Numbers, Numbers, Mask]:
    """Where each record begins behind its length, and where it ends; and of which batches the records fill the body.

    A record says where the next begins, so that all batches are walked in step, the one with most records first."""
    starts = np.empty(int(bodies.counts.sum()), dtype=np.int64)
    stops = np.empty_like(starts)
    order = np.argsort(-bodies.counts, kind="stable")
    left, at, row = bodies.counts[order], bodies.starts[order], rows[order]
    steps = int(left[_FEW_BATCHES - 1]) if len(left) >= _FEW_BATCHES else 1  # in which so many batches walk
    walked = np.minimum(left, steps)
    _walk_in_step(octets, starts, stops, at, row, walked)
    stuck = at >= _NOWHERE
    at, walked = np.where(stuck, bodies.starts[order], at), np.where(stuck, 0, walked)
    rest = np.flatnonzero(walked < left)
    _find_rest(octets, starts, stops, at[rest], (row + walked)[rest], (left - walked)[rest])
    ends = stops[rows + bodies.counts - 1]
    return starts, stops, ends == bodies.stops


def _walk_in_step(octets: _Bytes, starts: Numbers, stops: Numbers, at: Numbers, row: Numbers, counts: Numbers) -> None:
    """The first `counts` records of each batch, of one after the other no more than of the one before. Puts into `at`
    where the next one begins; _NOWHERE or more where a length is none, or one that is not read here."""
    last = len(octets) - 2
    pairs = np.ndarray((last + 1,), dtype="<u2", buffer=octets.data, strides=(1,))
    reach, found = _list_reaches(), []
    walking = np.searchsorted(-counts, -np.arange(int(counts[0])), side="left")  # batches that have another record
    here = at.copy()
    for batches in walking.tolist():
        at[batches : len(here)] = here[batches:]
        here = here[:batches]
        found.append(here)
        here = here + reach[pairs[np.minimum(here, last)]]
    at[: len(here)] = here
    places = np.concatenate(found)
    firsts = np.repeat(np.cumsum(walking) - walking, walking)
    index = row[np.arange(len(places)) - firsts] + np.repeat(np.arange(len(walking)), walking)
    lengths, behind = decode_varints_at(octets, places)
    starts[index], stops[index] = behind, behind + lengths


@cache
def _list_reaches() -> Numbers:
    """By the first two bytes of a record, how far away the next one is. _NOWHERE: its length is negative, or has more
    bytes."""
    low, high = np.divmod(np.arange(1 << 16, dtype=np.int64), 256)[::-1]
    is_long = low >= 0x80
    numbers = np.where(is_long, low & 0x7F | high << 7, low)
    is_strange = (numbers & 1 == 1) | is_long & (high >= 0x80)
    return np.where(is_strange, _NOWHERE, (numbers >> 1) + 1 + is_long)


def _find_rest(octets: _Bytes, starts: Numbers, stops: Numbers, at: Numbers, row: Numbers, left: Numbers) -> None:
    """The same of a few batches of which `left` records are to be found from `at` on."""
    for place, first, count in zip(at.tolist(), row.tolist(), left.tolist(), strict=True):
        edges = np.array(_walk_records(octets.data, place, count), dtype=np.int64)
        found = first + len(edges) - 1
        starts[first:found], stops[first:found] = decode_varints_at(octets, edges[:-1])[1], edges[1:]
        starts[found : first + count], stops[found : first + count] = 0, _NOWHERE


def _walk_records(data: memoryview, place: int, count: int) -> list[int]:
    """Where the lengths of `count` records stand, and where the last of them ends; fewer where a length makes no sense.
    Most lengths have one or two bytes, which are read here: a call for each would cost more than all else."""
    edges = [place]
    size, append = len(data), edges.append
    with contextlib.suppress(IndexError, ValueError):
        for _ in range(count):
            low = data[place]
            if low < 0x80:
                place += (low >> 1) + 1
            elif (high := data[place + 1]) < 0x80:
                place += ((low & 0x7F | high << 7) >> 1) + 2
            else:
                length, start = decode_zigzag(data, place)
                place = start + length
            if low & 1 or place > size:  # a negative length, or one beyond the end
                break
            append(place)
    return edges


def decode_varints_at(octets: _Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """(number, position behind it) of the zigzag varint at each position. Behind one that is too long to be read here
    stands _NOWHERE, where no record ends."""
    octet = octets.take(at, mode="clip")  # who reads beyond the end finds that out by the position behind
    numbers = (octet & 0x7F).astype(np.int64)
    behind = at + 1
    longer = np.flatnonzero(octet & 0x80)
    for shift in range(7, 7 * _LONGEST_VARINT, 7):
        if not len(longer):
            break
        octet = octets.take(behind[longer], mode="clip")
        numbers[longer] |= (octet & 0x7F).astype(np.int64) << shift
        behind[longer] += 1
        longer = longer[(octet & 0x80) != 0]
    behind[longer] = _NOWHERE
    return (numbers >> 1) ^ -(numbers & 1), behind


def zigzag_numbers(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """As varints have them: small ones of either sign are small."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def measure_varints(numbers: npt.NDArray[np.uint64]) -> Numbers:
    """Bytes of each as a varint."""
    sizes = np.ones(len(numbers), dtype=np.int64)
    for bits in range(7, int(numbers.max()).bit_length(), 7):
        sizes += numbers >= np.uint64(1 << bits)
    return sizes


def write_varints_at(into: _Bytes, at: Numbers, numbers: npt.NDArray[np.uint64]) -> Numbers:
    """Write a number at each position. Returns the positions behind."""
    behind, rows, left = at + 1, np.arange(len(at)), numbers
    while True:
        goes_on = left >= _CONTINUED
        into[at] = (left & _SEVEN_BITS).astype(np.uint8) | goes_on.astype(np.uint8) << 7
        rows = rows[goes_on]
        if not len(rows):
            return behind
        left, at = left[goes_on] >> _SEVEN, at[goes_on] + 1
        behind[rows] += 1


def copy_pieces(data: memoryview, at: Numbers, into: _Bytes, to: Numbers, sizes: Numbers) -> None:
    """Copy pieces of these sizes. A piece of 2^k to 2^(k+1) bytes is its first 2^k bytes and its last 2^k, which may
    overlap. So a step copies pieces of one width, and there are two steps for each power of two."""
    for width, chosen in _group_by_width(sizes):
        source = np.ndarray((len(data) - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
        target = np.ndarray((len(into) - width + 1,), dtype=f"V{width}", buffer=into.data, strides=(1,))
        begins, goes, over = at[chosen], to[chosen], sizes[chosen] - width
        target[goes] = source[begins]
        target[goes + over] = source[begins + over]


def _group_by_width(sizes: Numbers) -> Iterator[tuple[int, Numbers]]:
    """(width, which) of the sizes from `width` up to, not including, the double, for each power of two."""
    widths = np.frexp(sizes.astype(np.float64))[1]  # 0 of nothing, 1 of one byte
    for exponent in np.flatnonzero(np.bincount(widths)).tolist():
        if exponent:
            yield 1 << (exponent - 1), np.flatnonzero(widths == exponent)
