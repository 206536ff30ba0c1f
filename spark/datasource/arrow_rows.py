"""Ranges of logs as Arrow record batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.spark.datasource.log_slices import LogSlice
from watershed.spark.errors import NotReadable
from watershed.spark.fingerprint import RecordSlices
from watershed.spark.reading.batch_decoding import (
    HEADER_BYTES,
    HEADER_STRUCT,
    BatchView,
    CorruptBatch,
    decode_headers_bin,
    locate_records,
)
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_record_batches
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.range_sums import RangeSum, sum_ranges

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from watershed.spark.datasource.options import ReadOptions

_FLUSH_BYTES: Final = 4 << 20  # of one Arrow batch; a single record batch may be larger
_FLUSH_ROWS: Final = 4_096
_OPENED_BYTES: Final = 1 << 20  # of stored batches that are opened together
ROW_CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Value = Callable[[BatchView, tuple[Any, ...]], Any]
# base offset, length, leader epoch, magic, crc, attributes, last delta, first and max time, producer, epoch, sequence
_OF_BATCH: Final[dict[str, Value]] = {
    "base_offset": lambda b, h: h[0],
    "last_offset": lambda b, h: b.last_offset,
    "count": lambda b, h: h[12],
    "codec": lambda b, h: ROW_CODEC_NAMES[h[5] & 7] if h[5] & 7 < len(ROW_CODEC_NAMES) else f"codec {h[5] & 7}",
    "timestamp_type": lambda b, h: "append" if h[5] & 8 else "create",
    "first_timestamp_ms": lambda b, h: h[7],
    "max_timestamp_ms": lambda b, h: h[8],
    "producer_id": lambda b, h: h[9],
    "producer_epoch": lambda b, h: h[10],
    "sequence": lambda b, h: h[11],
    "leader_epoch": lambda b, h: h[2],
    "transactional": lambda b, h: bool(h[5] & 0x10),
    "control": lambda b, h: bool(h[5] & 0x20),
    "attributes": lambda b, h: h[5],
    "crc": lambda b, h: h[4],
    "size": lambda b, h: len(b.raw),
    "payload": lambda b, h: bytes(b.raw[HEADER_BYTES:]),
}


def read_row_batches(reading: ReadOptions, parts: Iterable[LogSlice], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Raises NotReadable (also for what expired meanwhile), ClusterError."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    settings = resolve_connection_settings(reading.cluster)
    for part in parts:
        yield from _range(reading, part, arrow, settings)


def _range(
    reading: ReadOptions, part: LogSlice, arrow: pa.Schema, settings: ConnectionSettings
) -> Iterator[pa.RecordBatch]:
    kinds = {"batches": _batches, "records": _records, "sums": _sums}
    try:
        yield from kinds[reading.rows](reading, part, arrow, settings)
    except OffsetsExpired as gone:
        raise NotReadable(
            f"{_where(reading, part)}: offsets {part.start} to {gone.log_start - 1} expired before they were read; the "
            f"log begins at {gone.log_start} now. Nothing of this read counts: run it again"
        ) from None


def _batches(
    reading: ReadOptions, part: LogSlice, arrow: pa.Schema, settings: ConnectionSettings
) -> Iterator[pa.RecordBatch]:
    table = _Table(arrow, _place(reading, part))
    makers = [(name, _OF_BATCH[name]) for name in arrow.names if name in _OF_BATCH]
    for batch in _stored(reading, part, settings):
        if batch.last_offset >= part.end and not part.whole_end:
            break
        header = HEADER_STRUCT.unpack_from(batch.raw)
        size = len(batch.raw) if "payload" in arrow.names else 128
        if full := table.add({name: make(batch, header) for name, make in makers}, size):
            yield full
    yield from table.rest()


def _records(
    reading: ReadOptions, part: LogSlice, arrow: pa.Schema, settings: ConnectionSettings
) -> Iterator[pa.RecordBatch]:
    table = _Table(arrow, _place(reading, part))
    waiting: list[BatchView] = []
    size = 0
    for batch in _stored(reading, part, settings):
        waiting.append(batch)
        size += len(batch.raw)
        if size >= _OPENED_BYTES:
            yield from _opened(reading, part, waiting, table)
            waiting, size = [], 0
    if waiting:
        yield from _opened(reading, part, waiting, table)
    yield from table.rest()


def _opened(reading: ReadOptions, part: LogSlice, batches: list[BatchView], table: _Table) -> Iterator[pa.RecordBatch]:
    try:
        slices = locate_records(batches)
    except (CorruptBatch, ValueError, OSError, EOFError, IndexError) as error:
        raise NotReadable(f"{_where(reading, part)}: {error}") from None
    types = [kind for batch in batches for kind in ["append" if batch.append_time else "create"] * batch.count]
    data = slices.data.tobytes()
    for at, row in enumerate(_positions(slices)):
        offset, stamp, key_at, key_len, value_at, value_len, headers_at, headers_len = row
        if not part.start <= offset < part.end:
            continue
        raw = data[headers_at : headers_at + headers_len]
        content = {
            "offset": offset,
            "timestamp_ms": stamp,
            "timestamp_type": types[at],
            "key": None if key_len < 0 else data[key_at : key_at + key_len],
            "value": None if value_len < 0 else data[value_at : value_at + value_len],
            "headers_bin": raw,
        }
        if "headers" in table.columns:
            content["headers"] = [
                {"key": name.decode(errors="replace"), "value": value} for name, value in decode_headers_bin(raw)
            ]
        if full := table.add(content, max(key_len, 0) + max(value_len, 0) + headers_len + 64):
            yield full


def _sums(
    reading: ReadOptions, part: LogSlice, arrow: pa.Schema, settings: ConnectionSettings
) -> Iterator[pa.RecordBatch]:
    table = _Table(arrow, _place(reading, part))
    step = reading.chunk or part.end - part.start
    cuts = [part.start, *range((part.start // step + 1) * step, part.end, step), part.end]
    log = part.log
    requests = [
        RangeRequest(at, reading.cluster.alias, log.topic, str(log.topic_id), log.partition, start, end, by=reading.by)
        for at, (start, end) in enumerate(pairwise(cuts))
    ]
    for result in sum_ranges(reading.cluster, requests):
        if result.state == "expired":
            raise OffsetsExpired(result.log_start)
        if result.state != "read":
            raise NotReadable(result.detail)
        request = requests[result.request_id]
        if full := table.add(_sum_row(request, result), 256):
            yield full
    yield from table.rest()


def _sum_row(request: RangeRequest, result: RangeSum) -> dict[str, Any]:
    s = result.sums
    hexes = {"ordered": s.order, "kh": s.kh, "vh": s.vh, "hh": s.hh}
    return {name: f"{value:016x}" for name, value in hexes.items()} | {
        "start_offset": request.start,
        "end_offset": request.end,
        "summed": request.by,
        "n": s.n,
        "bytes": s.size,
        "first_timestamp_ms": s.since,
        "max_timestamp_ms": s.until,
        "m_lo": s.m_lo,
        "m_hi": s.m_hi,
        "ts": Decimal(s.ts),
        "straddled": result.straddled,
    }


class _Table:
    """Rows on their way into Arrow batches."""

    def __init__(self, arrow: pa.Schema, place: dict[str, Any]) -> None:
        self._arrow, self._place = arrow, place
        self.columns: dict[str, list[Any]] = {}
        self._begin()

    def _begin(self) -> None:
        self.columns = {name: [] for name in self._arrow.names if name not in self._place}
        self._rows = self._size = 0

    def add(self, row: dict[str, Any], size: int) -> pa.RecordBatch | None:
        """The batch that is full with this row, if it is."""
        for name, column in self.columns.items():
            column.append(row[name])
        self._rows, self._size = self._rows + 1, self._size + size
        return self._flushed() if self._size >= _FLUSH_BYTES or self._rows >= _FLUSH_ROWS else None

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            yield self._flushed()

    def _flushed(self) -> pa.RecordBatch:
        arrays = [
            pa.array(self.columns[field.name], field.type)
            if field.name in self.columns
            else pa.repeat(pa.scalar(self._place[field.name], field.type), self._rows)
            for field in self._arrow
        ]
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _stored(reading: ReadOptions, part: LogSlice, settings: ConnectionSettings) -> Iterator[BatchView]:
    log = part.log
    address = PartitionAddress(settings, log.topic, log.topic_id, log.partition)
    return read_record_batches(
        address, OffsetRange(part.start, part.end), committed=reading.isolation == "read_committed"
    )


def _positions(slices: RecordSlices) -> Iterator[tuple[int, ...]]:
    columns: Sequence[Any] = (
        slices.offset,
        slices.ts,
        slices.key_at,
        slices.key_len,
        slices.value_at,
        slices.value_len,
        slices.headers_at,
        slices.headers_len,
    )
    return zip(*(column.tolist() for column in columns), strict=True)


def _place(reading: ReadOptions, part: LogSlice) -> dict[str, Any]:
    log = part.log
    return {
        "cluster": reading.cluster.alias,
        "topic": log.topic,
        "topic_id": str(log.topic_id),
        "partition": log.partition,
    }


def _where(reading: ReadOptions, part: LogSlice) -> str:
    return f"{part.log} on {reading.cluster.alias}"
