"""Records of many batches as Arrow arrays, and arrays laid into records.

What `spark.transform.changed_rows` does for one record after the other, numpy does here for thousands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watershed.clusters.varints import decode_zigzag
from watershed.replicator.batch.codecs import NONE, compress_payload, decompress_payload
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME, RawBatch, decode_batches
from watershed.replicator.batch.record_columns import (
    Numbers,
    RecordBodies,
    decode_record_bodies_at_once,
    decode_varints_at,
    measure_varints,
    write_varints_at,
    zigzag_numbers,
)
from watershed.replicator.batch.records import RawRecord, decode_records, encode_batch_front

_Rows = slice | Numbers | np.ndarray[Any, np.dtype[np.bool_]]
_FIRST_TIME_AT: Final = 27
_LEAST_RECORD_BYTES: Final = 4
_MOST_RECORDS: Final = 1_000_000  # of a batch; `decode_records` says what is wrong with more
_INLINE_BYTES: Final = 12  # of a binary that Arrow's view of it holds itself
_MOST_BYTES: Final = (1 << 31) - 1  # that a view can look at
_VIEW: Final = np.dtype(
    {
        "names": ["size", "inline", "buffer", "at"],
        "formats": ["<i4", f"V{_INLINE_BYTES}", "<i4", "<i4"],
        "offsets": [0, 4, 8, 12],
        "itemsize": 16,
    }
)
SPARE: Final = b"\0" * 16  # behind the bytes of a column, so that a step may read beyond the last binary
_PLACES_BYTES: Final = 41  # of a record: two numbers of 8 bytes, six of 4, one of 1
_FRONT_BYTES: Final = 32  # of a record in front of its key and value, at most: five numbers and its attributes


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Binaries that lie somewhere in `data`, which has some bytes to spare behind them. at: where each begins; size: in
    bytes, -1 for null. So what nobody looks at is never copied."""

    data: memoryview
    at: Numbers
    size: Numbers

    @classmethod
    def of(cls, values: pa.Array | Iterable[bytes | None]) -> BinaryColumn:
        """A copy."""
        array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
        buffers, n = array.buffers(), len(array)
        if not n:
            return cls(memoryview(SPARE), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        ends = np.frombuffer(buffers[1], dtype=np.int32)[array.offset : array.offset + n + 1].astype(np.int64)
        size = np.diff(ends)
        if array.null_count:
            size = np.where(array.is_valid().to_numpy(zero_copy_only=False), size, -1)
        first, last = int(ends[0]), int(ends[-1])  # of an array that is part of another one, too
        data = memoryview(buffers[2])[first:last] if last > first else b""
        return cls(memoryview(b"".join((data, SPARE))), ends[:-1] - first, size)

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: _Rows) -> BinaryColumn:
        """These rows."""
        return BinaryColumn(self.data, self.at[rows], self.size[rows])

    @property
    def length(self) -> Numbers:
        """As `size`, and 0 for null."""
        return np.maximum(self.size, 0)

    @property
    def validity(self) -> pa.Buffer | None:
        """As Arrow has it; None where nothing is null."""
        nulls = self.size < 0
        return pa.array(~nulls).buffers()[1] if nulls.any() else None

    def to_array(self) -> pa.Array:
        """A copy."""
        body, ends = join_columns([self])
        starts = np.concatenate((np.zeros(1, dtype=np.int64), ends))
        buffers = [self.validity, pa.py_buffer(starts.astype(np.int32)), body]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)

    def to_pylist(self) -> list[bytes | None]:
        """A copy."""
        found: list[bytes | None] = self.to_array().to_pylist()
        return found


def join_columns(columns: Sequence[BinaryColumn]) -> tuple[pa.Buffer, Numbers]:
    """The binaries of the first row one behind the other, then those of the second, and so on; and where each row ends.

    Arrow copies them in one go, from views of where they lie: pieces of any sizes at 10 ns each. Raises OverflowError
    beyond 2 GiB."""
    rows, width = len(columns[0]), len(columns)
    views = np.zeros((rows, width), dtype=_VIEW)
    for number, column in enumerate(columns):
        if len(column.data) > _MOST_BYTES:
            raise OverflowError(f"{len(column.data)} bytes of records in one part; at most {_MOST_BYTES} are opened")
        lengths = column.length
        views["size"][:, number], views["buffer"][:, number], views["at"][:, number] = lengths, number, column.at
        small = np.flatnonzero(lengths <= _INLINE_BYTES)
        if len(small):
            places = len(column.data) - _INLINE_BYTES + 1
            inline = np.ndarray((places,), dtype=f"V{_INLINE_BYTES}", buffer=column.data, strides=(1,))
            views["inline"][small, number] = inline[column.at[small]]
    buffers = [None, pa.py_buffer(views), *(pa.py_buffer(column.data) for column in columns)]
    joined = pa.Array.from_buffers(pa.binary_view(), rows * width, buffers).cast(pa.large_binary()).buffers()
    ends = np.frombuffer(joined[1], dtype=np.int64)[width::width]
    return joined[2] or pa.py_buffer(b""), ends[:rows]


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """A row for each record, in the order of their offsets. codec: of its batch, timestamps in ms; headers as they are
    encoded, never null."""

    codec: Numbers
    offset: Numbers
    timestamp: Numbers
    key: BinaryColumn
    value: BinaryColumn
    headers: BinaryColumn

    def __len__(self) -> int:
        return len(self.offset)

    def slice(self, first: int, end: int) -> RecordArrays:
        """The rows from `first` up to, not including, `end`."""
        return self._select(slice(first, max(first, end)))

    def between(self, first: int, end: int) -> RecordArrays:
        """The records with first <= offset < end."""
        low, high = np.searchsorted(self.offset, (first, end)).tolist()
        return self if (low, high) == (0, len(self)) else self.slice(low, high)

    def filter(self, mask: pa.Array) -> RecordArrays:
        """The rows under a mask without nulls."""
        rows = mask.to_numpy(zero_copy_only=False)
        return self if rows.all() else self._select(rows)

    def take(self, rows: Sequence[int]) -> RecordArrays:
        """These rows, rising."""
        return self._select(np.array(rows, dtype=np.int64))

    def _select(self, rows: _Rows) -> RecordArrays:
        columns = (column.select(rows) for column in (self.key, self.value, self.headers))
        return RecordArrays(self.codec[rows], self.offset[rows], self.timestamp[rows], *columns)

    def render_places(self) -> tuple[memoryview, ...]:
        """All but the bytes that the columns look at, for `restore_records`: 41 bytes a record."""
        places = [side for column in (self.key, self.value, self.headers) for side in (column.at, column.size)]
        times = np.stack((self.offset, self.timestamp))
        return times.data.cast("B"), np.stack(places).astype(np.int32).data.cast("B"), self.codec.astype(np.int8).data

    @property
    def is_of_one_piece(self) -> bool:
        """Whether all columns look at the same bytes, as those of records that were opened at once do."""
        return self.key.data is self.value.data is self.headers.data

    def replace(self, key: BinaryColumn, value: BinaryColumn, headers: BinaryColumn) -> RecordArrays:
        """The same records with other keys, values and headers."""
        return RecordArrays(self.codec, self.offset, self.timestamp, key, value, headers)


def open_stored(stored: memoryview) -> RecordArrays:
    """All records of batches of the current format, which lie one behind the other; behind them lies SPARE. Raises
    BadBatch."""
    batches = _list_batches(stored)
    found = _open_at_once(stored, batches)
    return _open_one_by_one(batches) if found is None else found


def restore_records(stored: memoryview, places: memoryview) -> RecordArrays:
    """What `open_stored` made of these batches, by `RecordArrays.render_places` of it (`is_of_one_piece`)."""
    rows = len(places) // _PLACES_BYTES
    offset, timestamp = np.frombuffer(places[: 16 * rows], dtype=np.int64).reshape(2, rows)
    found = np.frombuffer(places[16 * rows : 40 * rows], dtype=np.int32).astype(np.int64).reshape(6, rows)
    codec = np.frombuffer(places[40 * rows :], dtype=np.int8).astype(np.int64)
    data, _, _ = _find_bodies(stored, _list_batches(stored))
    columns = (BinaryColumn(data, at, size) for at, size in zip(found[::2], found[1::2], strict=True))
    return RecordArrays(codec, offset, timestamp, *columns)


def _list_batches(stored: memoryview) -> list[RawBatch]:
    return list(decode_batches(stored[: len(stored) - len(SPARE)]))


def _open_one_by_one(batches: Sequence[RawBatch]) -> RecordArrays:
    records = [(batch.codec, record) for batch in batches for record in decode_records(batch)]
    fields = [_split_fields(record.rest) for _, record in records]
    columns = list(zip(*fields, strict=True)) if fields else [(), (), ()]
    return RecordArrays(
        np.array([codec for codec, _ in records], dtype=np.int64),
        np.array([record.offset for _, record in records], dtype=np.int64),
        np.array([record.timestamp for _, record in records], dtype=np.int64),
        *(BinaryColumn.of(column) for column in columns),
    )


def _split_fields(rest: bytes) -> tuple[bytes | None, bytes | None, bytes]:
    at = 0
    found: list[bytes | None] = []
    for _ in range(2):
        size, at = decode_zigzag(rest, at)
        found.append(None if size < 0 else rest[at : at + size])
        at += max(size, 0)
    return found[0], found[1], rest[at:]


def _open_at_once(stored: memoryview, batches: Sequence[RawBatch]) -> RecordArrays | None:
    """None where a batch has to be opened record by record (it has holes, or is damaged, which that finds)."""
    if not batches or any(batch.records > _MOST_RECORDS for batch in batches):
        return None
    try:
        data, starts, stops = _find_bodies(stored, batches)
    except ValueError:
        return None
    counts = np.array([batch.records for batch in batches], dtype=np.int64)
    if bool((counts * _LEAST_RECORD_BYTES > stops - starts).any()) or bool((counts < 1).any()):
        return None
    opened, is_readable = decode_record_bodies_at_once(
        RecordBodies(
            data[: int(stops[-1])],
            starts,
            stops,
            counts,
            np.array([batch.base for batch in batches], dtype=np.int64),
            np.array([_read_first_time(batch) for batch in batches], dtype=np.int64),
        )
    )
    if not bool(is_readable.all()):
        return None
    octets = np.frombuffer(data, dtype=np.uint8)
    key_size, key_at = decode_varints_at(octets, opened.rests)
    value_size, value_at = decode_varints_at(octets, key_at + np.maximum(key_size, 0))
    headers_at = value_at + np.maximum(value_size, 0)
    headers_size = opened.rests + opened.sizes - headers_at
    if bool((headers_size < 1).any() or (key_size < -1).any() or (value_size < -1).any()):
        return None
    number = np.repeat(np.arange(len(batches), dtype=np.int64), counts)
    return RecordArrays(
        np.array([batch.codec for batch in batches], dtype=np.int64)[number],
        opened.offsets,
        _stamp(batches, number, opened.timestamps),
        BinaryColumn(data, key_at, key_size),
        BinaryColumn(data, value_at, value_size),
        BinaryColumn(data, headers_at, headers_size),
    )


def _find_bodies(stored: memoryview, batches: Sequence[RawBatch]) -> tuple[memoryview, Numbers, Numbers]:
    """The records of each batch lie in the bytes from a start to a stop: where they came, unless one is compressed.
    Raises ValueError."""
    if all(batch.codec == NONE for batch in batches):
        stops = np.cumsum(np.array([len(batch.data) for batch in batches], dtype=np.int64))
        sizes = np.array([len(batch.data) - BATCH_HEADER_BYTES for batch in batches], dtype=np.int64)
        return stored, stops - sizes, stops
    bodies = [decompress_payload(batch.codec, batch.data[BATCH_HEADER_BYTES:]) for batch in batches]
    sizes = np.array([len(body) for body in bodies], dtype=np.int64)
    stops = np.cumsum(sizes)
    return memoryview(b"".join((*bodies, SPARE))), stops - sizes, stops


def _read_first_time(batch: RawBatch) -> int:
    return int.from_bytes(batch.data[_FIRST_TIME_AT : _FIRST_TIME_AT + 8], "big", signed=True)


def _stamp(batches: Sequence[RawBatch], number: Numbers, times: Numbers) -> Numbers:
    """Records of a batch with the broker's own time have that of the batch."""
    appended = np.array([bool(batch.attributes & LOG_APPEND_TIME) for batch in batches])
    if not appended.any():
        return times
    newest = np.array([batch.max_timestamp for batch in batches], dtype=np.int64)
    return np.where(appended[number], newest[number], times)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch without a producer, as pieces to write one behind the other. end: the source offset behind its last
    record; spans: see `replicator.batch.record_batch.RawBatch`."""

    end: int
    spans: tuple[tuple[int, int], ...]
    pieces: tuple[bytes | memoryview, ...]


def measure_records(records: RecordArrays) -> Numbers:
    """Bytes that each takes in a batch, at most."""
    return records.key.length + records.value.length + records.headers.length + _FRONT_BYTES


def encode_batches(records: RecordArrays, edges: Sequence[int]) -> list[EncodedBatch]:
    """A batch of the records from each edge up to the next one (at least one record). All records of a batch have the
    same codec."""
    firsts = np.array(edges[:-1], dtype=np.int64)
    body, ends = join_columns(_lay_out(records, firsts, np.diff(edges)))
    whole = memoryview(body)
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends))[edges].tolist()
    newest = np.maximum.reduceat(records.timestamp, firsts).tolist()
    found = []
    for number, (first, end) in enumerate(pairwise(edges)):
        codec = int(records.codec[first])
        inside = whole[starts[number] : starts[number + 1]]
        packed = compress_payload(codec, bytes(inside)) if codec else inside
        spans = _list_spans(records.offset[first:end])
        times = int(records.timestamp[first]), newest[number]
        front = encode_batch_front(packed, codec, spans[0][0], end - first, times, -1)
        found.append(EncodedBatch(int(records.offset[end - 1]) + 1, spans, (*front, packed)))
    return found


def _lay_out(records: RecordArrays, firsts: Numbers, counts: Numbers) -> list[BinaryColumn]:
    """Records as they are encoded, in pieces."""
    key, value, headers = records.key, records.value, records.headers
    times = zigzag_numbers(records.timestamp - np.repeat(records.timestamp[firsts], counts))
    indexes = zigzag_numbers(np.arange(len(records), dtype=np.int64) - np.repeat(firsts, counts))
    key_sizes, value_sizes = zigzag_numbers(key.size), zigzag_numbers(value.size)
    prefixes = measure_varints(key_sizes) + measure_varints(value_sizes)
    rests = prefixes + key.length + value.length + headers.length
    sizes = zigzag_numbers(1 + measure_varints(times) + measure_varints(indexes) + rests)
    has_keys = bool(key.length.any())
    fronts = [sizes, None, times, indexes, key_sizes, *([] if has_keys else [value_sizes])]
    between = [key, _write_numbers([value_sizes])] if has_keys else []
    return [_write_numbers(fronts), *between, value, headers]


def _write_numbers(columns: Sequence[npt.NDArray[np.uint64] | None]) -> BinaryColumn:
    """The numbers of each row as varints, one behind the other. None: a byte 0."""
    rows = next(len(column) for column in columns if column is not None)
    into = np.zeros(rows * _FRONT_BYTES + len(SPARE), dtype=np.uint8)
    starts = at = np.arange(rows, dtype=np.int64) * _FRONT_BYTES
    for column in columns:
        at = at + 1 if column is None else write_varints_at(into, at, column)
    return BinaryColumn(memoryview(into.data), starts, at - starts)


def _list_spans(offsets: Numbers) -> tuple[tuple[int, int], ...]:
    if int(offsets[-1]) - int(offsets[0]) == len(offsets) - 1:
        return ((int(offsets[0]), len(offsets)),)
    edges = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    return tuple((int(offsets[first]), end - first) for first, end in pairwise(edges))


def list_raw_records(records: RecordArrays) -> list[RawRecord]:
    """One by one, as they are encoded."""
    if not len(records):
        return []
    prefixes = (_write_numbers([zigzag_numbers(column.size)]) for column in (records.key, records.value))
    key_prefix, value_prefix = prefixes
    body, ends = join_columns([key_prefix, records.key, value_prefix, records.value, records.headers])
    whole = memoryview(body)
    edges = pairwise([0, *ends.tolist()])
    places = zip(records.offset.tolist(), records.timestamp.tolist(), edges, strict=True)
    return [RawRecord(offset, time, bytes(whole[at:stop])) for offset, time, (at, stop) in places]
