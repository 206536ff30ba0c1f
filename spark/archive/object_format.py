"""One object of an archive: record batches of one partition as stored, one row each, in a Parquet file.

`batch` is the whole batch, header included, so that nothing has to be made again from columns. The other columns are
for people and for Spark. The footer says what the file holds, so that a run that was killed before it wrote its
manifest finds its complete objects again. Does no I/O.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from watershed.spark.archive.manifest import ArchivedObject
from watershed.spark.archive.storage import ReusedMemory
from watershed.spark.errors import ArchiveDamaged
from watershed.spark.reading.batch_decoding import (
    HEADER_STRUCT,
    BatchView,
    CorruptBatch,
    locate_records,
    split_checked_batches,
)

OBJECT_FORMAT: Final = 1
_KEY: Final = b"watershed.archive"
_SCHEMA: Final = pa.schema(
    [
        pa.field("base_offset", pa.int64(), False),
        pa.field("last_offset", pa.int64(), False),
        pa.field("count", pa.int32(), False),
        pa.field("max_timestamp_ms", pa.int64(), False),
        pa.field("leader_epoch", pa.int32(), False),
        pa.field("batch", pa.binary(), False),
    ]
)

# At most, of a row without its batch, of a page's header, and of the footer without the topic's name.
_ROW_BYTES: Final = 64
_PAGE_HEADER_BYTES: Final = 512
_FOOTER_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 1 << 20  # a page of batches, which is encoded in memory that the processor's cache holds
_PAGE_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """What an object covers: offsets first <= offset < end of one partition of one topic."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class OpenedObject:
    """An object that was read: its place and its batches, in log order."""

    place: ObjectPlace
    batches: tuple[BatchView, ...]


def encode_object(place: ObjectPlace, batches: Sequence[BatchView], memory: ReusedMemory | None = None) -> memoryview:
    """The bytes of the file. Batches are in log order; their payloads stay compressed as they are.

    memory: where the bytes stand, until it is used again; None: in memory of their own.
    """
    columns: list[list[int]] = [
        [each.base_offset for each in batches],
        [each.last_offset for each in batches],
        [each.count for each in batches],
        [each.max_timestamp for each in batches],
        [_find_leader_epoch(each) for each in batches],
    ]
    footer = {
        "format": OBJECT_FORMAT,
        "topic": place.topic,
        "topic_id": str(place.topic_id),
        "partition": place.partition,
        "first": place.first,
        "end": place.end,
    }
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(footer).encode()})
    arrays: list[Any] = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=False)]
    arrays.append(_wrap_batches([each.raw for each in batches]))
    size, page_rows = sum(len(each.raw) for each in batches), _choose_page_rows([len(each.raw) for each in batches])
    pages = len(batches) // page_rows + len(columns)
    most = size + len(batches) * _ROW_BYTES + pages * _PAGE_HEADER_BYTES + len(place.topic) + _FOOTER_BYTES
    room = (memory or ReusedMemory()).take(most)
    written = pa.FixedSizeBufferWriter(pa.py_buffer(room))
    # Batches are compressed by their producers, or meant not to be; a second codec costs more time than it saves bytes.
    parquet.write_table(
        pa.Table.from_arrays(arrays, schema=schema), written, compression="none", use_dictionary=False,
        write_statistics=["base_offset", "last_offset"], write_batch_size=page_rows,
    )  # fmt: skip
    return memoryview(room)[: written.tell()]


def describe_object(place: ObjectPlace, batches: Sequence[BatchView], content: bytes | memoryview) -> ArchivedObject:
    """The manifest's entry for an object with this content. Raises CorruptBatch, ValueError for a first batch that the
    object begins inside of, and that cannot be opened."""
    sizes = [len(each.raw) for each in batches]
    return ArchivedObject(
        place.topic,
        place.partition,
        place.first,
        place.end,
        batches=len(batches),
        records=sum(_count_records(each, place.first) for each in batches),
        batch_bytes=sum(sizes),
        largest_batch=max(sizes, default=0),
        last_offset=batches[-1].last_offset if batches else -1,
        leader_epoch=_find_leader_epoch(batches[-1]) if batches else -1,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def decode_object(content: bytes | memoryview, where: str) -> OpenedObject:
    """`where` names the file in messages. The checksum of every batch is checked. Nothing of the result stands in
    `content`. Raises ArchiveDamaged.

    Compare the hash of the content first: Arrow may end the process over bytes that nobody of us wrote.
    """
    try:
        file = parquet.ParquetFile(pa.BufferReader(content))
        footer = json.loads((file.schema_arrow.metadata or {})[_KEY])
        table = file.read(["batch"])
        if footer["format"] != OBJECT_FORMAT:
            raise ValueError(f"format {footer['format']}, this version reads {OBJECT_FORMAT}")
        place = ObjectPlace(
            str(footer["topic"]),
            uuid.UUID(footer["topic_id"]),
            int(footer["partition"]),
            int(footer["first"]),
            int(footer["end"]),
        )
        batches = tuple(_open_batch(each) for chunk in table.column("batch").chunks for each in chunk)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, CorruptBatch) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ArchiveDamaged([f"{where} is no object of an archive, or damaged: {reason}"]) from None
    _require_order(place, batches, where)
    return OpenedObject(place, batches)


def join_batches(batches: Sequence[BatchView]) -> memoryview:
    """The bytes of batches one behind the other: where they lie, if they are neighbours in memory, as those of an
    opened object are; else a copy."""
    raws = [each.raw for each in batches]
    addresses = [pa.py_buffer(raw).address for raw in raws]
    if any(at + len(raw) != behind for at, raw, behind in zip(addresses, raws, addresses[1:], strict=False)):
        return memoryview(b"".join(raws))
    return memoryview(pa.foreign_buffer(addresses[0], sum(map(len, raws)), raws))


def find_batch_offsets(batch: BatchView) -> Sequence[int]:
    """The offsets of a batch's records, opened only where some are missing in it. Raises CorruptBatch, ValueError."""
    if batch.count == batch.last_offset - batch.base_offset + 1:
        return range(batch.base_offset, batch.last_offset + 1)
    found: list[int] = locate_records([batch]).offset.tolist()
    return found


def _choose_page_rows(sizes: Sequence[int]) -> int:
    """After how many rows the writer asks whether a page is full."""
    return min(max(_PAGE_BYTES * len(sizes) // max(sum(sizes), 1), 1), _PAGE_ROWS)


def _wrap_batches(raws: Sequence[memoryview]) -> pa.ChunkedArray:
    """The batches as Arrow's column, where they lie: neighbours in memory are one chunk."""
    chunks: list[pa.Array] = []
    first, behind = 0, -1
    addresses = [pa.py_buffer(raw).address for raw in raws]
    for at, raw in enumerate(raws):
        if at and (addresses[at] != behind or raw.obj is not raws[first].obj):
            chunks.append(_wrap_neighbours(raws[first:at], addresses[first]))
            first = at
        behind = addresses[at] + len(raw)
    if raws:
        chunks.append(_wrap_neighbours(raws[first:], addresses[first]))
    return pa.chunked_array(chunks, pa.binary())


def _wrap_neighbours(raws: Sequence[memoryview], address: int) -> pa.Array:
    edges = np.zeros(len(raws) + 1, np.int32)  # neighbours are of one answer, which is far below 2 GiB
    np.cumsum([len(raw) for raw in raws], out=edges[1:])
    content = pa.foreign_buffer(address, int(edges[-1]), raws[0])
    return pa.Array.from_buffers(pa.binary(), len(raws), [None, pa.py_buffer(edges), content])


def _open_batch(cell: Any) -> BatchView:
    """Raises CorruptBatch, ValueError."""
    raw = memoryview(cell.as_buffer())
    found = list(split_checked_batches(raw))
    if len(found) != 1 or len(found[0].raw) != len(raw):
        raise ValueError("a row that is not one record batch")
    return found[0]


def _require_order(place: ObjectPlace, batches: Sequence[BatchView], where: str) -> None:
    """Raises ArchiveDamaged for batches outside of the object's offsets, or not in their order."""
    behind = place.first
    for each in batches:
        if each.last_offset < behind or each.last_offset >= place.end or each.control or each.count < 1:
            offsets = f"{each.base_offset} to {each.last_offset}"
            raise ArchiveDamaged([f"{where} holds a batch at offsets {offsets} that does not belong there"])
        behind = each.last_offset + 1


def _count_records(batch: BatchView, first: int) -> int:
    """How many of its records stand at `first` or behind it."""
    if batch.base_offset >= first:
        return batch.count
    return sum(offset >= first for offset in find_batch_offsets(batch))


def _find_leader_epoch(batch: BatchView) -> int:
    return int(HEADER_STRUCT.unpack_from(batch.raw)[2])
