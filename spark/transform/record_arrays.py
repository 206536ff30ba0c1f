"""Records of many batches as Arrow arrays, and arrays laid into records.

What `spark.transform.record_rows` does for one record after the other, numpy does here for thousands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from clusters.varints import decode_zigzag
from replicator.batch.codecs import decompress_payload
from replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from replicator.batch.record_batch import LOG_APPEND_TIME, RawBatch
from replicator.batch.record_columns import (
    Numbers,
    OpenedRecords,
    RecordBodies,
    copy_pieces,
    decode_record_bodies_at_once,
    decode_varints_at,
    measure_varints,
    write_varints_at,
    zigzag_numbers,
)
from replicator.batch.records import decode_records

_Rows = slice | Numbers | np.ndarray[Any, np.dtype[np.bool_]]
_FIRST_TIME_AT: Final = 27
_LEAST_RECORD_BYTES: Final = 4
_MOST_RECORDS: Final = 1_000_000  # of a batch; `decode_records` says what is wrong with more
_SPARE: Final = b"\0" * 8


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
            return cls(memoryview(_SPARE), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        ends = np.frombuffer(buffers[1], dtype=np.int32)[array.offset : array.offset + n + 1].astype(np.int64)
        size = np.diff(ends)
        if array.null_count:
            size = np.where(array.is_valid().to_numpy(zero_copy_only=False), size, -1)
        return cls(memoryview(b"".join((buffers[2] or b"", _SPARE))), ends[:-1], size)

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
        lengths = self.length
        ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        into = np.empty(int(ends[-1]) + len(_SPARE), dtype=np.uint8)
        copy_pieces(self.data, self.at, into, ends[:-1], lengths)
        buffers = [self.validity, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(into)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)

    def to_pylist(self) -> list[bytes | None]:
        """A copy."""
        found: list[bytes | None] = self.to_array().to_pylist()
        return found


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

    def replace(self, key: BinaryColumn, value: BinaryColumn, headers: BinaryColumn) -> RecordArrays:
        """The same records with other keys, values and headers."""
        return RecordArrays(self.codec, self.offset, self.timestamp, key, value, headers)


def open_batches(batches: Sequence[RawBatch]) -> RecordArrays:
    """All records of batches of the current format. Raises BadBatch."""
    found = _open_at_once(batches)
    return _open_one_by_one(batches) if found is None else found


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


def _open_at_once(batches: Sequence[RawBatch]) -> RecordArrays | None:
    """None where a batch has to be opened record by record (it has holes, or is damaged, which that finds)."""
    if any(batch.records > _MOST_RECORDS for batch in batches):
        return None
    try:
        bodies = [bytes(decompress_payload(batch.codec, batch.data[BATCH_HEADER_BYTES:])) for batch in batches]
    except ValueError:
        return None
    counts = np.array([batch.records for batch in batches], dtype=np.int64)
    sizes = np.array([len(body) for body in bodies], dtype=np.int64)
    if not len(batches) or bool((counts * _LEAST_RECORD_BYTES > sizes).any()) or bool((counts < 1).any()):
        return None
    stops = np.cumsum(sizes)
    data = memoryview(b"".join((*bodies, _SPARE)))
    opened, is_readable = decode_record_bodies_at_once(
        RecordBodies(
            data[: int(stops[-1])],
            stops - sizes,
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


def _read_first_time(batch: RawBatch) -> int:
    return int.from_bytes(batch.data[_FIRST_TIME_AT : _FIRST_TIME_AT + 8], "big", signed=True)


def _stamp(batches: Sequence[RawBatch], number: Numbers, times: Numbers) -> Numbers:
    """Records of a batch with the broker's own time have that of the batch."""
    appended = np.array([bool(batch.attributes & LOG_APPEND_TIME) for batch in batches])
    if not appended.any():
        return times
    newest = np.array([batch.max_timestamp for batch in batches], dtype=np.int64)
    return np.where(appended[number], newest[number], times)


def lay_out_records(records: RecordArrays) -> OpenedRecords:
    """The records as they are encoded, to build batches from."""
    fields = [
        _Field.of(records.key, sized=True),
        _Field.of(records.value, sized=True),
        _Field.of(records.headers, sized=False),
    ]
    sizes = sum((field.size for field in fields), np.zeros(len(records), dtype=np.int64))
    ends = np.cumsum(sizes)
    into = np.zeros(int(ends[-1]) + len(_SPARE) if len(ends) else len(_SPARE), dtype=np.uint8)
    at = rests = ends - sizes
    for field in fields:
        at = field.write(into, at)
    return OpenedRecords(memoryview(into.data), records.offset, records.timestamp, rests, sizes)


@dataclass(frozen=True, slots=True)
class _Field:
    """A column of binaries to be written behind one another's. prefix: the length in front of each, as a varint."""

    data: memoryview
    at: Numbers
    length: Numbers
    prefix: Numbers | None  # -1 for null

    @staticmethod
    def of(column: BinaryColumn, *, sized: bool) -> _Field:
        return _Field(column.data, column.at, column.length, column.size if sized else None)

    @property
    def size(self) -> Numbers:
        if self.prefix is None or not len(self.prefix):
            return self.length
        return self.length + measure_varints(zigzag_numbers(self.prefix))

    def write(self, into: np.ndarray[tuple[int], np.dtype[np.uint8]], at: Numbers) -> Numbers:
        if self.prefix is not None and len(at):
            at = write_varints_at(into, at, zigzag_numbers(self.prefix))
        copy_pieces(self.data, self.at, into, at, self.length)
        return at + self.length
