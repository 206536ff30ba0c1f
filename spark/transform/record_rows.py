"""What Spark's Python workers do on both sides of the SQL: parts of a log opened into rows, and rows laid into batches.

Both are pure: they read and write no topic. Rows of a part stay together and in order, because nothing is shuffled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from clusters.varints import decode_zigzag, encode_zigzag
from replicator.batch.record_batch import decode_batches
from replicator.batch.records import RawRecord, build_raw_batch, decode_records
from spark.transform.json_members import MemberChanges, change_members
from topology.record_transform import ChangedPart, RecordTransform, parse_changed_part

if TYPE_CHECKING:
    from topology.secret_ref import SecretRef

_ROWS: Final = 8_192  # of one Arrow batch
PART_SCHEMA: Final = pa.schema(
    [
        pa.field("part", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),  # records from here on count
        pa.field("end", pa.int64(), nullable=False),  # up to, not including, this one
        pa.field("leave_out", pa.list_(pa.int64())),
        pa.field("batch_bytes", pa.int64(), nullable=False),
        pa.field("batches", pa.binary(), nullable=False),
    ]
)
SECRET_COLUMN: Final = "_secret_{}"  # noqa: S105  the name of a column
# Of each record, as DDL. `_rest` stands in front of what is only looked at: key, value and headers as they are encoded.
RECORD_COLUMNS: Final = (
    "_part int, _timestamp bigint, _codec int, _batch_bytes bigint, _left_out boolean, _headers binary, "
    "_key binary, _value binary, _problem string, topic string, partition int, offset bigint, _key_text string, "
    "_value_text string, headers map<string, binary>"
)
TRANSFORMED_COLUMNS: Final = (
    "part int, offset bigint, timestamp bigint, data binary, spans array<bigint>, reason string, leader_epoch int"
)


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """What expressions look at, so that nothing else is made of a record. key_text, value_text: as UTF-8."""

    headers: bool
    key_text: bool
    value_text: bool
    secrets: tuple[tuple[str, SecretRef], ...] = ()

    @classmethod
    def of(cls, transform: RecordTransform) -> RowNeeds:
        """headers are looked at where the word stands in an expression, at worst for nothing."""
        texts = " ".join(text for _, text in transform.expressions)
        return cls(
            "headers" in texts,
            transform.key_format != "bytes" and "key" in texts,
            transform.value_format != "bytes" and "value" in texts,
            transform.secrets,
        )


def open_parts(needs: RowNeeds, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of RECORD_COLUMNS, and one of each secret, from rows of PART_SCHEMA. Raises BadBatch, SecretMissing."""
    columns = RecordRowBuilder(needs)
    for table in tables:
        for part in table.to_pylist():
            for record, codec, is_left_out in _open_part(part):
                columns.add(part, record, codec, is_left_out=is_left_out)
                if len(columns) >= _ROWS:
                    yield columns.take()
    if len(columns):
        yield columns.take()


def _resolve(secrets: Iterable[tuple[str, SecretRef]]) -> dict[str, str]:
    from clusters.secrets import SecretResolver

    resolver = SecretResolver("", os.environ, where="transform.secrets")
    return {name: resolver.text(name, ref) for name, ref in secrets}


def _open_part(part: Mapping[str, Any]) -> Iterator[tuple[RawRecord, int, bool]]:
    left_out = frozenset(part["leave_out"] or ())
    for batch in decode_batches(memoryview(part["batches"])):
        for record in decode_records(batch):
            if part["first"] <= record.offset < part["end"]:
                yield record, batch.codec, record.offset in left_out


@dataclass(slots=True)
class RecordRowBuilder:
    """Rows of RECORD_COLUMNS that are being put together. Raises SecretMissing when it is made."""

    needs: RowNeeds
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    _secrets: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._secrets = _resolve(self.needs.secrets)

    def __len__(self) -> int:
        return len(self.rows)

    def add(
        self, part: Mapping[str, Any], record: RawRecord, codec: int, *, is_left_out: bool, problem: str | None = None
    ) -> None:
        """part: number, topic, partition and batch_bytes, as PART_SCHEMA calls them. problem: what is wrong with it."""
        key, at = _read_sized(record.rest, 0)
        value, at = _read_sized(record.rest, at)
        headers = record.rest[at:]
        key_text = value_text = None
        if self.needs.key_text and key is not None:
            key_text, problem = _read_text(key, "the key", problem)
        if self.needs.value_text and value is not None:
            value_text, problem = _read_text(value, "the value", problem)
        self.rows.append(
            (part["part"], record.timestamp, codec, part["batch_bytes"], is_left_out, headers, key, value, problem,
             part["topic"], part["partition"], record.offset, key_text, value_text,
             _read_headers(headers) if self.needs.headers else None)
        )  # fmt: skip

    def take(self) -> pa.RecordBatch:
        """The rows so far (at least one)."""
        columns = list(zip(*self.rows, strict=True))
        self.rows.clear()
        types = [
            pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.bool_(), pa.binary(), pa.binary(), pa.binary(),
            pa.string(), pa.string(), pa.int32(), pa.int64(), pa.string(), pa.string(),
            pa.map_(pa.string(), pa.binary()),
        ]  # fmt: skip
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        names = [each.split()[0] for each in RECORD_COLUMNS.replace("map<string, binary>", "map").split(", ")]
        for name, secret in self._secrets.items():
            arrays.append(pa.array([secret] * len(columns[0]), pa.string()))
            names.append(SECRET_COLUMN.format(name))
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size = data[at]
    if size < 0x80:
        at += 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, at = decode_zigzag(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _read_text(data: bytes, what: str, problem: str | None) -> tuple[str | None, str | None]:
    try:
        return data.decode(), problem
    except UnicodeDecodeError as error:
        return None, problem or f"{what} is no text in UTF-8 (byte {error.start})"


def _read_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """Name → content, the last one where a name stands twice."""
    return list(dict(_list_headers(data)).items())


def _list_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    count, at = decode_zigzag(data, 0)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_sized(data, at)
        content, at = _read_sized(data, at)
        found.append(((name or b"").decode(errors="replace"), content))
    return found


# -- rows to batches -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangeOrder:
    """What the columns `_change_N` are for, in their order, and what is taken away."""

    changes: tuple[ChangedPart, ...]
    drops: tuple[ChangedPart, ...]
    has_condition: bool

    def list_rows(self, table: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Of each row the PACKED_COLUMNS, and what its changes came to."""
        names = (*PACKED_COLUMNS, *(f"_change_{number}" for number in range(len(self.changes))))
        return zip(*(table.column(name).to_pylist() for name in names), strict=True)

    @classmethod
    def of(cls, transform: RecordTransform) -> ChangeOrder:
        """In the order of `transform.changes`."""
        return cls(
            tuple(parse_changed_part(path) for path, _ in transform.changes),
            tuple(parse_changed_part(path) for path in transform.drops),
            transform.where is not None,
        )


def pack_rows(order: ChangeOrder, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of TRANSFORMED_COLUMNS: batches (without a reason), and records that no expression could be applied to."""
    packer = _Packer(order)
    for table in tables:
        for row in order.list_rows(table):
            packer.add(row)
        if packer.rows:
            yield packer.take()
    packer.flush()
    if packer.rows:
        yield packer.take()


PACKED_COLUMNS: Final = (
    "_part", "offset", "_timestamp", "_codec", "_batch_bytes", "_headers", "_key", "_value", "_problem", "_keep",
    "_left_out",
)  # fmt: skip


@dataclass(slots=True)
class _Packer:
    order: ChangeOrder
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    _records: list[RawRecord] = field(default_factory=list)
    _size: int = 0
    _place: tuple[int, int] = (-1, 0)  # part and codec

    def add(self, row: tuple[Any, ...]) -> None:
        part, offset, timestamp, codec, batch_bytes, headers, key, value, problem, keep, left_out, *changes = row
        if (part, codec) != self._place or self._size >= batch_bytes:
            self.flush()
            self._place = part, codec
        if problem is None and not left_out and keep is False:
            return
        if problem is None and keep is None and not left_out:
            problem = "`where` gives null for it"
        if problem is None and not left_out:
            try:
                value, headers = change_record(self.order, value, headers, changes)
            except ValueError as error:
                problem = f"the value cannot be changed: {error}"
        rest = b"".join((_with_size(key), _with_size(value), headers))
        if problem is not None or left_out:
            self.flush()
            self.rows.append((part, offset, timestamp, rest, None, problem or "", -1))
            return
        self._records.append(RawRecord(offset, timestamp, rest))
        self._size += len(rest) + 8

    def flush(self) -> None:
        """Lay what waits into a batch."""
        if self._records:
            part, codec = self._place
            batch = build_raw_batch(self._records, codec, self._records[-1].offset + 1)
            spans = [number for span in batch.spans for number in span]
            self.rows.append((part, batch.end, -1, bytes(batch.data), spans, None, -1))
            self._records.clear()
        self._size = 0

    def take(self) -> pa.RecordBatch:
        columns = list(zip(*self.rows, strict=True))
        self.rows.clear()
        types = [pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.list_(pa.int64()), pa.string(), pa.int32()]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        names = ["part", "offset", "timestamp", "data", "spans", "reason", "leader_epoch"]
        return pa.RecordBatch.from_arrays(arrays, names=names)


def change_record(
    order: ChangeOrder, value: bytes | None, headers: bytes, changes: Sequence[Any]
) -> tuple[bytes | None, bytes]:
    """Value and headers (as they are encoded) with the changes that Spark worked out. A null value has no members to
    change. Raises ValueError where a value is no JSON object that can be changed so."""
    members: list[tuple[tuple[str, ...], str | None]] = []
    named: dict[str, bytes | None] = {}
    for part, text in zip(order.changes, changes, strict=True):
        if part.part == "headers":
            named[part.names[0]] = text
        elif part.names:
            members.append((part.names, text.decode()))
        else:
            value = text
    dropped = {part.names[0] for part in order.drops if part.part == "headers"}
    members += [(part.names, None) for part in order.drops if part.part == "value"]
    if members and value is not None:
        value = change_members(value.decode(), MemberChanges.build(members)).encode()
    if named or dropped:
        kept = [each for each in _list_raw_headers(headers) if each[0] not in dropped and each[0] not in named]
        added = [(name, _with_size(name.encode()) + _with_size(text)) for name, text in named.items()]
        headers = encode_zigzag(len(kept) + len(added)) + b"".join(raw for _, raw in (*kept, *added))
    return value, headers


def _with_size(content: bytes | None) -> bytes:
    return b"\x01" if content is None else encode_zigzag(len(content)) + content


def _list_raw_headers(data: bytes) -> list[tuple[str, bytes]]:
    """Name and the header as it is encoded."""
    count, at = decode_zigzag(data, 0)
    found: list[tuple[str, bytes]] = []
    for _ in range(count):
        began = at
        name, at = _read_sized(data, at)
        _, at = _read_sized(data, at)
        found.append(((name or b"").decode(errors="replace"), data[began:at]))
    return found
