"""What Spark's Python workers do behind the SQL: rows change the records that they are of, and batches are made.

They write no topic. SQL gives back what it decided about each record; the records themselves come round it, as the
batches that `spark.transform.record_rows` has opened, with the first row of their part.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from watershed.clusters.registry.record_schemas import RecordSchemas, SideSchemas
from watershed.clusters.registry.schema_id_translation import SideSchemaIds, rewrite_schema_id
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from watershed.clusters.varints import encode_zigzag
from watershed.replicator.batch.egress_compression import compress_batch
from watershed.replicator.batch.record_batch import decode_batch
from watershed.replicator.batch.record_columns import Numbers
from watershed.spark.errors import SparkError
from watershed.spark.transform.column_types import list_column
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.field_records import SchemaReader
from watershed.spark.transform.json_members import MemberChanges, change_members
from watershed.spark.transform.record_arrays import (
    BinaryColumn,
    EncodedBatch,
    RecordArrays,
    encode_batches,
    list_raw_records,
    measure_records,
)
from watershed.spark.transform.record_headers import list_raw_headers
from watershed.spark.transform.record_rows import MOST_ROWS, SourcePart, find_task_number, freeze_modules
from watershed.spark.transform.shared_memory import MemoryRegion, RegionWriter, write_answer
from watershed.topology.record_transform import ChangedPart, RecordTransform, parse_changed_part

DECIDED_COLUMNS: Final = ("_part", "_source", "_left_out", "_problem", "offset", "_keep")
_OF_A_ROW: Final = frozenset({"_part", "_source", "offset"})  # what says nothing of the other records alike
TRANSFORMED_COLUMNS: Final = (
    "part int, offset bigint, timestamp bigint, data binary, at bigint, size bigint, saved bigint, "
    "spans array<bigint>, reason string"
)


@dataclass(frozen=True, slots=True)
class ChangeOrder:
    """What the columns `_change_N` are for, in their order, and what is taken away."""

    changes: tuple[ChangedPart, ...]
    drops: tuple[ChangedPart, ...]
    fields: tuple[FieldPlan, ...] = ()

    @classmethod
    def of(cls, transform: RecordTransform, plans: Iterable[FieldPlan] = ()) -> ChangeOrder:
        """In the order of `transform.changes`. plans: of keys and values whose schemas stand in a registry."""
        return cls(
            tuple(parse_changed_part(path) for path, _ in transform.changes),
            tuple(parse_changed_part(path) for path in transform.drops),
            tuple(plan for plan in plans if plan.sets or plan.drops),
        )

    def has_members(self, side: SubjectSide) -> bool:
        """Whether members of JSON, or fields, are set or dropped in keys or values."""
        return any(part.part == side and part.names for part in (*self.changes, *self.drops))

    @property
    def has_headers(self) -> bool:
        """Whether headers are set or dropped."""
        return any(part.part == "headers" for part in (*self.changes, *self.drops))

    def change_payload(
        self, side: SubjectSide, payload: bytes | None, changes: Sequence[Any], reader: SchemaReader | None = None
    ) -> bytes | None:
        """A key or value as it should stand at the target; a null one has no members to change. changes: one for each
        of `changes`. reader: by the schemas of the part. Raises ValueError."""
        mine = [(part, each) for part, each in zip(self.changes, changes, strict=True) if part.part == side]
        for part, content in mine:
            if not part.names:
                payload = content
        if payload is None or not self.has_members(side):
            return payload
        if reader is not None:
            return reader.change(payload, [each for _, each in mine])
        members: list[tuple[tuple[str, ...], str | None]] = [(part.names, text.decode()) for part, text in mine]
        members += [(part.names, None) for part in self.drops if part.part == side]
        return change_members(payload.decode(), MemberChanges.build(members)).encode()

    def change_headers(self, headers: bytes, changes: Sequence[Any]) -> bytes:
        """Encoded headers with those that are set at the end, and without those of their names."""
        if not self.has_headers:
            return headers
        named = {
            part.names[0]: text for part, text in zip(self.changes, changes, strict=True) if part.part == "headers"
        }
        gone = {*named, *(part.names[0] for part in self.drops if part.part == "headers")}
        kept = [raw for name, raw in list_raw_headers(headers) if name not in gone]
        added = [_with_size(name.encode()) + _with_size(text) for name, text in named.items()]
        return encode_zigzag(len(kept) + len(added)) + b"".join((*kept, *added))

    def build_readers(self, schemas: RecordSchemas) -> dict[SubjectSide, SchemaReader]:
        """What changes fields of keys and values by these schemas; those that have none are not in it."""
        return {plan.side: SchemaReader(plan, schemas.side(plan.side)) for plan in self.fields}

    def change_columns(
        self, records: RecordArrays, changes: Sequence[pa.Array], readers: Mapping[SubjectSide, SchemaReader]
    ) -> RecordArrays:
        """All records as they should stand at the target. Raises ValueError where one cannot be changed."""
        key = self._change_column("key", records.key, changes, readers)
        value = self._change_column("value", records.value, changes, readers)
        headers = records.headers
        if self.has_headers:
            ours = zip(self.changes, changes, strict=True)
            columns = [
                headers.to_array(),
                *(each if part.part == "headers" else pa.nulls(len(each)) for part, each in ours),
            ]
            if all(len(column.unique()) == 1 for column in columns):  # the same for all, as a constant is
                one, *texts = (column[0].as_py() for column in columns)
                headers = _repeat(self.change_headers(one, texts), len(headers))
            else:
                rows = zip(*(column.to_pylist() for column in columns), strict=True)
                headers = BinaryColumn.of([self.change_headers(each, texts) for each, *texts in rows])
        return records.replace(key, value, headers)

    def _change_column(
        self,
        side: SubjectSide,
        payloads: BinaryColumn,
        changes: Sequence[pa.Array],
        readers: Mapping[SubjectSide, SchemaReader],
    ) -> BinaryColumn:
        if not self.has_members(side):
            whole = [column for part, column in zip(self.changes, changes, strict=True) if part == (side, ())]
            return BinaryColumn.of(whole[0]) if whole else payloads
        columns = [
            list_column(column) if part.part == side else [None] * len(payloads)
            for part, column in zip(self.changes, changes, strict=True)
        ]
        rows = zip(payloads.to_pylist(), *columns, strict=True)
        return BinaryColumn.of([self.change_payload(side, each, own, readers.get(side)) for each, *own in rows])


def _repeat(content: bytes, rows: int) -> BinaryColumn:
    one = BinaryColumn.of([content])
    return one.select(np.zeros(rows, dtype=np.int64))


def _with_size(content: bytes | None) -> bytes:
    return b"\x01" if content is None else encode_zigzag(len(content)) + content


class ChangedRecords(NamedTuple):
    """Records of a part that follow one another: those that travel, as they should stand at the target, and with why
    (empty: left out on order) those that no expression could be applied to, as they came. is_last: no record of the
    part stands behind them."""

    part: SourcePart
    kept: RecordArrays
    rejected: RecordArrays
    reasons: list[str]
    is_last: bool


@dataclass(slots=True)
class DecisionReader:
    """Brings rows of DECIDED_COLUMNS and `_change_N` together with the records that they are of."""

    order: ChangeOrder
    _part: SourcePart | None = None
    _records: RecordArrays | None = None
    _at: int = 0
    _shared: list[pa.RecordBatch] = field(default_factory=list)  # rows of the part so far, that stand for many records

    def read(self, table: pa.RecordBatch) -> Iterator[ChangedRecords]:
        """Raises SparkError where rows are not those of the records, as no plan of ours makes them."""
        numbers = table.column("_part").to_numpy()
        begins = table.column("_source").is_valid().to_numpy(zero_copy_only=False)
        turns = np.flatnonzero(begins[1:] | (np.diff(numbers) != 0)) + 1
        for first, end in pairwise([0, *turns.tolist(), table.num_rows]):
            if end > first:
                yield from self._read_rows(table.slice(first, end - first))

    def _read_rows(self, rows: pa.RecordBatch) -> Iterator[ChangedRecords]:
        packed = rows.column("_source")[0].as_py()
        if packed is not None:
            self._part = pickle.loads(packed)  # noqa: S301  from the task before
            self._records, self._at, self._shared = self._part.open(), 0, []
        if self._part is None or self._records is None:
            raise SparkError("rows of a part came without the part")
        if packed is not None and not len(self._records):  # the row stands for the part
            yield ChangedRecords(self._part, self._records, self._records, [], True)
            return
        if self._part.alike is not None:
            yield from self._spread_rows(self._part, self._part.alike, self._records, rows)
            return
        records = self._records.slice(self._at, self._at + rows.num_rows)
        self._at += rows.num_rows
        _require_offsets(self._part, records.offset, rows)
        yield self._decide(self._part, records, rows)._replace(is_last=self._at == len(self._records))

    def _spread_rows(
        self, part: SourcePart, alike: MemoryRegion, records: RecordArrays, rows: pa.RecordBatch
    ) -> Iterator[ChangedRecords]:
        """Once all rows of the part are there: each decides about all records that it stands for."""
        self._shared.append(rows)
        kinds = np.frombuffer(alike.read(), dtype=np.uint8)
        found, firsts = np.unique(kinds, return_index=True)
        if sum(each.num_rows for each in self._shared) < len(found):
            return
        [whole] = pa.Table.from_batches(self._shared).combine_chunks().to_batches()
        _require_offsets(part, records.offset[firsts], whole)
        decided = whole.select([name for name in whole.schema.names if name not in _OF_A_ROW])
        for start in range(0, len(records), MOST_ROWS):
            end = min(start + MOST_ROWS, len(records))
            spread = decided.take(pa.array(kinds[start:end]))
            yield self._decide(part, records.slice(start, end), spread)._replace(is_last=end == len(records))

    def _decide(self, part: SourcePart, records: RecordArrays, rows: pa.RecordBatch) -> ChangedRecords:
        readers = self.order.build_readers(part.schemas)
        keep, problem, left_out = (rows.column(name) for name in ("_keep", "_problem", "_left_out"))
        changes = [rows.column(f"_change_{number}") for number in range(len(self.order.changes))]
        nobody = records.slice(0, 0)
        if problem.null_count == len(problem) and not keep.null_count and left_out.true_count == 0:
            try:
                chosen = [column.filter(keep) for column in changes]
                kept = self.order.change_columns(records.filter(keep), chosen, readers)
            except ValueError:
                pass  # some record cannot be changed: each is looked at
            else:
                return ChangedRecords(part, _write_target_ids(kept, part.schemas), nobody, [], False)
        return self._decide_each(part, records, rows, changes, readers)

    def _decide_each(
        self,
        part: SourcePart,
        records: RecordArrays,
        rows: pa.RecordBatch,
        changes: Sequence[pa.Array],
        readers: Mapping[SubjectSide, SchemaReader],
    ) -> ChangedRecords:
        columns = [rows.column(name).to_pylist() for name in ("_keep", "_problem", "_left_out")]
        texts = list(zip(*(list_column(column) for column in changes), strict=True)) or [()] * rows.num_rows
        keys, values, headers = (each.to_pylist() for each in (records.key, records.value, records.headers))
        kept: list[int] = []
        rejected: list[int] = []
        reasons: list[str] = []
        for row, (keep, problem, left_out) in enumerate(zip(*columns, strict=True)):
            why = "" if left_out else problem
            if why is None and keep is None:
                why = "`where` gives null for it"
            if why is None and keep:
                try:
                    for side, payloads in zip(SUBJECT_SIDES, (keys, values), strict=True):
                        payloads[row] = self.order.change_payload(side, payloads[row], texts[row], readers.get(side))
                    headers[row] = self.order.change_headers(headers[row] or b"\0", texts[row])
                    kept.append(row)
                except ValueError as error:
                    why = f"the {side} cannot be changed: {error}"
            if why is not None:
                rejected.append(row)
                reasons.append(why)
        changed = records.replace(*(BinaryColumn.of(each) for each in (keys, values, headers)))
        kept_records = _write_target_ids(changed.take(kept), part.schemas)
        return ChangedRecords(part, kept_records, records.take(rejected), reasons, False)


def _require_offsets(part: SourcePart, offsets: Numbers, rows: pa.RecordBatch) -> None:
    if not np.array_equal(offsets, rows.column("offset").to_numpy()):
        raise SparkError(f"rows of {part.topic}-{part.partition} came in another order than its records")


def _write_target_ids(records: RecordArrays, schemas: RecordSchemas) -> RecordArrays:
    """The records with the schema ids of the target in front of keys and values."""
    key, value = (_write_ids(records.key, schemas.key), _write_ids(records.value, schemas.value))
    return dataclasses.replace(records, key=key, value=value)


def _write_ids(column: BinaryColumn, schemas: SideSchemas) -> BinaryColumn:
    if schemas.targets is None or all(id == target for id, target in schemas.targets.items()):
        return column
    ids = SideSchemaIds("", schemas.targets)
    return BinaryColumn.of([rewrite_schema_id(each, ids) for each in column.to_pylist()])


def pack_rows(order: ChangeOrder, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of TRANSFORMED_COLUMNS: batches (without a reason), records that no expression could be applied to, and
    behind those of each part a row that has no content: it was looked at to its end."""
    for rows in _pack_tables(order, tables):
        if rows:
            yield _build_packed(rows)


def pack_assigned(order: ChangeOrder, output: str, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same as a list of PackedRow in the driver's memory, where it finds it as the task's answer. Nothing goes
    through Java. output: path of that memory."""
    rows = [row for some in _pack_tables(order, tables) for row in some]
    write_answer(output, find_task_number(), pickle.dumps(rows))
    yield from ()


class PackedRow(NamedTuple):
    """A row of TRANSFORMED_COLUMNS: a batch, a record that is rejected, or that a part was looked at to its end."""

    part: int
    offset: int  # of the record; or behind the batch, or the part
    timestamp: int = -1
    data: bytes = b""
    at: int = -1  # in the output, where the batch does not travel
    size: int = -1
    saved: int = 0
    spans: list[int] | None = None
    reason: str | None = None


def _pack_tables(order: ChangeOrder, tables: Iterable[pa.RecordBatch]) -> Iterator[list[PackedRow]]:
    freeze_modules()
    reader, writers = DecisionReader(order), dict[str, RegionWriter]()
    for table in tables:
        rows: list[PackedRow] = []
        for found in reader.read(table):
            output = found.part.output
            writer = writers.setdefault(output, RegionWriter(output, find_task_number())) if output else None
            rows.extend(_pack(found, writer))
        yield rows


def _pack(found: ChangedRecords, writer: RegionWriter | None) -> Iterator[PackedRow]:
    """In the order of their offsets; a batch ends in front of a record that is rejected."""
    part, kept, rejected = found.part, found.kept, found.rejected
    weights = np.cumsum(measure_records(kept)) // max(part.batch_bytes, 1)
    cuts = np.searchsorted(kept.offset, rejected.offset)
    turns = np.flatnonzero((np.diff(kept.codec) != 0) | (np.diff(weights) != 0)) + 1
    edges = np.unique(np.concatenate(([0], turns, cuts, [len(kept)])).astype(np.int64)).tolist()
    batches = encode_batches(kept, edges) if len(kept) else []
    raw = list_raw_records(rejected)
    at = 0
    for first, batch in zip_longest(edges, batches):
        while at < len(raw) and cuts[at] <= first:
            yield PackedRow(part.number, *raw[at], reason=found.reasons[at])
            at += 1
        if batch is not None:
            yield _build_packed_row(part, batch, writer)
    if found.is_last:
        yield PackedRow(part.number, part.end)


def _build_packed_row(part: SourcePart, batch: EncodedBatch, writer: RegionWriter | None) -> PackedRow:
    pieces, saved = batch.pieces, 0
    if part.compression is not None:
        whole = memoryview(b"".join(pieces))
        compressed = compress_batch(decode_batch(whole, 0, len(whole)), part.compression)
        pieces, saved = (compressed.data,), compressed.saved
    row = PackedRow(part.number, batch.end, saved=saved, spans=[each for span in batch.spans for each in span])
    if writer is None:
        return row._replace(data=b"".join(pieces))
    return row._replace(at=writer.append(pieces), size=sum(map(len, pieces)))


def _build_packed(rows: list[PackedRow]) -> pa.RecordBatch:
    long = pa.int64()
    types = [pa.int32(), long, long, pa.binary(), long, long, long, pa.list_(long), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(PackedRow._fields))


def list_packed(rows: pa.Table) -> list[PackedRow]:
    """What `pack_rows` has made into rows of TRANSFORMED_COLUMNS."""
    return [PackedRow(**row) for row in rows.to_pylist()]
