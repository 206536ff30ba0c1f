"""What Spark's Python workers do on both sides of the SQL: parts of a log opened into rows, and rows laid into batches.

Both are pure: they read and write no topic. SQL gets the columns that expressions look at, and gives back what it
decided; the records themselves go round it, as the batches that they came in, with the first row of their part. Rows of
a part stay together and in order, because nothing is shuffled.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from clusters.registry.record_schemas import (
    NO_RECORD_SCHEMAS,
    RecordSchemas,
    SideSchemas,
    UnknownSchema,
    read_schema_id,
)
from clusters.registry.schema_id_translation import SideSchemaIds, rewrite_schema_id
from clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from clusters.varints import decode_zigzag, encode_zigzag
from replicator.batch.record_batch import RawBatch, decode_batches
from spark.errors import SparkError
from spark.transform.column_types import list_column
from spark.transform.field_plan import FieldPlan
from spark.transform.field_records import SchemaReader, render_unknown_schema
from spark.transform.json_members import MemberChanges, change_members
from spark.transform.record_arrays import BinaryColumn, RecordArrays, lay_out_records, open_batches
from spark.transform.shared_memory import MemoryRegion, RegionWriter
from topology.record_transform import ChangedPart, RecordTransform, parse_changed_part

if TYPE_CHECKING:
    from topology.secret_ref import SecretRef

_ROWS: Final = 8_192  # of one Arrow batch
_FRONT_BYTES: Final = 8  # of a record in a batch, about: what stands in front of key, value and headers
SECRET_COLUMN: Final = "_secret_{}"  # noqa: S105  the name of a column
# Of each record: name → type. _source: the part that it is of, pickled, in the part's first row. _key, _value: as
# stored, and _key_text, _value_text as text. Those that no expression looks at are null.
RECORD_COLUMNS: Final[Mapping[str, str]] = {
    "_part": "int",
    "_source": "binary",
    "_left_out": "boolean",
    "_problem": "string",
    "_timestamp": "bigint",
    "_key": "binary",
    "_value": "binary",
    "_key_text": "string",
    "_value_text": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "headers": "map<string, binary>",
}
_PLACES: Final[Mapping[str, str]] = {"_timestamp": "timestamp", "topic": "topic", "partition": "partition"}
_ALWAYS_SENT: Final = frozenset({"_part", "_source", "_left_out", "_problem", "offset"})
FIELDS_COLUMN: Final = "_{}_fields"  # of a key or value whose schema stands in a registry: a struct
DECIDED_COLUMNS: Final = ("_part", "_source", "_left_out", "_problem", "offset", "_keep")
TRANSFORMED_COLUMNS: Final = (
    "part int, offset bigint, timestamp bigint, data binary, at bigint, size bigint, spans array<bigint>, reason string"
)
_ASKS_FOR_NULL: Final = re.compile(r"\b(key|value)\s+is\s+(?:not\s+)?null\b")
_Binary: Final = pa.binary()
_TEXTS: Final = ("string", "json")


class SourcePart(NamedTuple):
    """A part of a source partition as tasks get it: batches as stored, of which the records from `first` up to, not
    including, `end` count. leave_out: offsets that the target does not take. batch_bytes: at which a batch is full.
    batches: themselves, or where they stand in memory of the driver's. output: memory where results go, or "". schemas:
    what is known of the ids in front of its keys and values."""

    number: int
    topic: str
    partition: int
    first: int
    end: int
    batches: bytes | MemoryRegion
    leave_out: tuple[int, ...] = ()
    batch_bytes: int = 0
    output: str = ""
    schemas: RecordSchemas = NO_RECORD_SCHEMAS

    def open(self) -> RecordArrays:
        """Its records. Raises BadBatch."""
        data = self.batches.read() if isinstance(self.batches, MemoryRegion) else self.batches
        found = open_batches(list(decode_batches(memoryview(data))))
        return found.between(self.first, self.end)


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """What expressions look at, so that nothing else is made of a record. nulls: of which of `key` and `value`, as
    bytes, they only ask whether it is null: then its content does not travel. places: which of the columns that say
    where and when a record was written."""

    key: bool
    value: bool
    key_text: bool
    value_text: bool
    headers: bool
    secrets: tuple[tuple[str, SecretRef], ...] = ()
    nulls: frozenset[str] = frozenset()
    fields: tuple[FieldPlan, ...] = ()
    places: frozenset[str] = frozenset()

    @classmethod
    def of(cls, transform: RecordTransform, plans: Iterable[FieldPlan] = ()) -> RowNeeds:
        """A column is looked at where its name stands in an expression, at worst for nothing. plans: of keys and values
        whose schemas stand in a registry."""
        texts = " ".join(text for _, text in transform.expressions).lower()
        read = _ASKS_FOR_NULL.sub(" ", texts)
        return cls(
            transform.key_format == "bytes" and "key" in read,
            transform.value_format == "bytes" and "value" in read,
            transform.key_format in _TEXTS and "key" in texts,
            transform.value_format in _TEXTS and "value" in texts,
            "headers" in texts,
            transform.secrets,
            frozenset(_ASKS_FOR_NULL.findall(texts)),
            tuple(plan for plan in plans if plan.columns.num_fields or plan.drops),
            frozenset(column for column, name in _PLACES.items() if name in texts),
        )

    @property
    def columns(self) -> list[str]:
        """Those of RECORD_COLUMNS that SQL gets. For it the others are null."""
        sent = {
            "_key": self.key or "key" in self.nulls,
            "_value": self.value or "value" in self.nulls,
            "_key_text": self.key_text,
            "_value_text": self.value_text,
            "headers": self.headers,
        }
        return [name for name in RECORD_COLUMNS if name in _ALWAYS_SENT or name in self.places or sent.get(name)]

    def find_fields(self, side: SubjectSide) -> FieldPlan | None:
        """What is opened of keys, or of values, by their schemas; None: nothing."""
        return next((plan for plan in self.fields if plan.side == side), None)

    @property
    def field_columns(self) -> list[FieldPlan]:
        """Those that expressions look at."""
        return [plan for plan in self.fields if plan.columns.num_fields]


@cache
def freeze_modules() -> None:
    """Spark's Python processes collect garbage after each task (pyspark/daemon.py). Most of that time went to what they
    have imported, which is none."""
    gc.collect()
    gc.freeze()


# -- parts to rows -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RowBuilder:
    """Rows of RECORD_COLUMNS, and of a column for each secret. Raises SecretMissing when it is made."""

    needs: RowNeeds
    _secrets: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        from clusters.secrets import SecretResolver

        resolver = SecretResolver("", os.environ, where="transform.secrets")
        self._secrets = {name: resolver.text(name, ref) for name, ref in self.needs.secrets}

    def build(self, part: SourcePart) -> Iterator[pa.RecordBatch]:
        """The records of a part, the part itself with the first of them. Raises BadBatch."""
        records = part.open()
        n = len(records)
        if not n:
            return
        key_text, key_problems = _read_texts(self.needs.key_text, records.key, "the key")
        value_text, value_problems = _read_texts(self.needs.value_text, records.value, "the value")
        fields, field_problems = self._read_fields(part, records)
        problems = pa.nulls(n, pa.string())
        if key_problems or value_problems or field_problems:
            told = field_problems | value_problems | key_problems
            problems = pa.array([told.get(row) for row in range(n)], pa.string())
        source = [pickle.dumps(part), *[None] * (n - 1)]
        left_out = np.isin(records.offset, np.array(part.leave_out, dtype=np.int64))
        yield from self._name(
            [
                pa.array(np.full(n, part.number, dtype=np.int32)), pa.array(source, _Binary), pa.array(left_out),
                problems, pa.array(records.timestamp), self._show("key", self.needs.key, records.key),
                self._show("value", self.needs.value, records.value), key_text, value_text,
                pa.repeat(part.topic, n), pa.array(np.full(n, part.partition, dtype=np.int32)),
                pa.array(records.offset), self._read_headers(records.headers), *fields,
            ]
        )  # fmt: skip

    def build_note(self, number: int, offset: int, note: str) -> Iterator[pa.RecordBatch]:
        """A row that stands for no record: it passes the SQL untouched."""
        one = [number, None, True, note, 0, None, None, None, None, "", 0, offset, None]
        types = [pa.int32(), _Binary, pa.bool_(), pa.string(), pa.int64(), _Binary, _Binary, pa.string(), pa.string(),
                 pa.string(), pa.int32(), pa.int64(), pa.map_(pa.string(), _Binary)]  # fmt: skip
        nothing = [pa.nulls(1, plan.columns) for plan in self.needs.field_columns]
        yield from self._name([pa.array([value], kind) for value, kind in zip(one, types, strict=True)] + nothing)

    def _read_fields(self, part: SourcePart, records: RecordArrays) -> tuple[list[pa.Array], dict[int, str]]:
        """A column for each of `needs.field_columns`, and what is wrong in which row: also that an id is not known."""
        columns: list[pa.Array] = []
        problems: dict[int, str] = {}
        for side in SUBJECT_SIDES:
            payloads = records.key if side == "key" else records.value
            schemas, plan = part.schemas.side(side), self.needs.find_fields(side)
            if plan is not None:
                column, found = SchemaReader(plan, schemas).read_column(payloads.to_array())
                columns += [column] if plan in self.needs.field_columns else []
                problems = found | problems
            elif schemas.targets is not None:
                problems = _find_unknown_ids(side, schemas, payloads) | problems
        return columns, problems

    def _show(self, name: str, is_read: bool, column: BinaryColumn) -> pa.Array:
        """The column as SQL gets it."""
        if is_read:
            return column.to_array()
        n = len(column)
        if name not in self.needs.nulls:
            return pa.nulls(n, _Binary)
        return pa.Array.from_buffers(_Binary, n, [column.validity, pa.py_buffer(bytes(4 * n + 4)), pa.py_buffer(b"")])

    def _read_headers(self, headers: BinaryColumn) -> pa.Array:
        kind = pa.map_(pa.string(), _Binary)
        if not self.needs.headers:
            return pa.nulls(len(headers), kind)
        return pa.array([list(dict(_list_headers(each or b"\0")).items()) for each in headers.to_pylist()], kind)

    def _name(self, arrays: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        n = len(arrays[0])
        columns = dict(zip(RECORD_COLUMNS, arrays, strict=False))
        names = self.needs.columns
        arrays = [columns[name] for name in names] + arrays[len(columns) :]
        names += [FIELDS_COLUMN.format(plan.side) for plan in self.needs.field_columns]
        for name, secret in self._secrets.items():
            arrays.append(pa.repeat(secret, n))
            names.append(SECRET_COLUMN.format(name))
        table = pa.RecordBatch.from_arrays(arrays, names=names)
        for start in range(0, n, _ROWS):
            yield table.slice(start, _ROWS)


def open_parts(needs: RowNeeds, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of RECORD_COLUMNS from a column `part` of pickled parts. Raises BadBatch, SecretMissing."""
    freeze_modules()
    builder = RowBuilder(needs)
    for table in tables:
        for packed in table.column("part").to_pylist():
            yield from builder.build(pickle.loads(packed))  # noqa: S301  from our own driver


def _read_texts(wanted: bool, column: BinaryColumn, what: str) -> tuple[pa.Array, dict[int, str]]:
    """The column as text, all null where nobody looks at it; and what is wrong in which row."""
    if not wanted:
        return pa.nulls(len(column), pa.string()), {}
    try:
        return column.to_array().cast(pa.string()), {}
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        problems = {}
        for row, data in enumerate(column.to_pylist()):
            try:
                texts.append(None if data is None else data.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                problems[row] = f"{what} is no text in UTF-8 (byte {error.start})"
        return pa.array(texts, pa.string()), problems


def _find_unknown_ids(side: SubjectSide, schemas: SideSchemas, payloads: BinaryColumn) -> dict[int, str]:
    """Rows with a schema id for which the target has no known one."""
    found = {}
    for row, payload in enumerate(payloads.to_pylist()):
        try:
            id = None if payload is None else read_schema_id(payload)
        except ValueError:
            continue  # it has no id, and travels as it is
        if id is not None and not schemas.is_known(id, opened=False):
            found[row] = render_unknown_schema(UnknownSchema(side, id))
    return found


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_zigzag(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _list_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    count, at = decode_zigzag(data, 0)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_sized(data, at)
        content, at = _read_sized(data, at)
        found.append(((name or b"").decode(errors="replace"), content))
    return found


# -- what changes in a record --------------------------------------------------------------------------------------


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
        kept = [raw for name, raw in _list_raw_headers(headers) if name not in gone]
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


# -- rows to batches -----------------------------------------------------------------------------------------------


class ChangedRecords(NamedTuple):
    """Records of a part that follow one another: those that travel, as they should stand at the target, and with why
    (empty: left out on order) those that no expression could be applied to, as they came."""

    part: SourcePart
    kept: RecordArrays
    rejected: RecordArrays
    reasons: list[str]


@dataclass(slots=True)
class DecisionReader:
    """Brings rows of DECIDED_COLUMNS and `_change_N` together with the records that they are of."""

    order: ChangeOrder
    _part: SourcePart | None = None
    _records: RecordArrays | None = None
    _at: int = 0

    def read(self, table: pa.RecordBatch) -> Iterator[ChangedRecords]:
        """Raises SparkError where rows are not those of the records, as no plan of ours makes them."""
        numbers = table.column("_part").to_numpy()
        begins = table.column("_source").is_valid().to_numpy(zero_copy_only=False)
        turns = np.flatnonzero(begins[1:] | (np.diff(numbers) != 0)) + 1
        for first, end in pairwise([0, *turns.tolist(), table.num_rows]):
            if end > first:
                yield self._read_rows(table.slice(first, end - first))

    def _read_rows(self, rows: pa.RecordBatch) -> ChangedRecords:
        packed = rows.column("_source")[0].as_py()
        if packed is not None:
            self._part = pickle.loads(packed)  # noqa: S301  from the task before
            self._records, self._at = self._part.open(), 0
        if self._part is None or self._records is None:
            raise SparkError("rows of a part came without the part")
        records = self._records.slice(self._at, self._at + rows.num_rows)
        self._at += rows.num_rows
        if not np.array_equal(records.offset, rows.column("offset").to_numpy()):
            where = f"{self._part.topic}-{self._part.partition}"
            raise SparkError(f"rows of {where} came in another order than its records")
        return self._decide(self._part, records, rows)

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
                return ChangedRecords(part, _write_target_ids(kept, part.schemas), nobody, [])
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
        return ChangedRecords(part, kept_records, records.take(rejected), reasons)


def _write_target_ids(records: RecordArrays, schemas: RecordSchemas) -> RecordArrays:
    """The records with the schema ids of the target in front of keys and values."""
    key, value = (_write_ids(records.key, schemas.key), _write_ids(records.value, schemas.value))
    return dataclasses.replace(records, key=key, value=value)


def _write_ids(column: BinaryColumn, schemas: SideSchemas) -> BinaryColumn:
    if schemas.targets is None or all(id == target for id, target in schemas.targets.items()):
        return column
    ids = SideSchemaIds("", schemas.targets)
    return BinaryColumn.of([rewrite_schema_id(each, ids) for each in column.to_pylist()])


def find_task_number() -> int:
    """Of the task that this process works for; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def pack_rows(order: ChangeOrder, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of TRANSFORMED_COLUMNS: batches (without a reason), and records that no expression could be applied to."""
    freeze_modules()
    reader, writers = DecisionReader(order), dict[str, RegionWriter]()
    for table in tables:
        rows: list[tuple[Any, ...]] = []
        for found in reader.read(table):
            output = found.part.output
            writer = writers.setdefault(output, RegionWriter(output, find_task_number())) if output else None
            rows.extend(_pack(found, writer))
        if rows:
            yield _build_packed(rows)


def _pack(found: ChangedRecords, writer: RegionWriter | None) -> Iterator[tuple[Any, ...]]:
    """In the order of their offsets; a batch ends in front of a record that is rejected."""
    part, kept, rejected = found.part, found.kept, found.rejected
    records = lay_out_records(kept)
    weights = np.cumsum(records.sizes + _FRONT_BYTES) // max(part.batch_bytes, 1)
    cuts = np.searchsorted(kept.offset, rejected.offset)
    turns = np.flatnonzero((np.diff(kept.codec) != 0) | (np.diff(weights) != 0)) + 1
    edges = np.unique(np.concatenate(([0], turns, cuts, [len(kept)])).astype(np.int64)).tolist()
    raw = lay_out_records(rejected).list_records()
    at = 0
    for first, end in pairwise([*edges, len(kept)]):
        while at < len(raw) and cuts[at] <= first:
            yield part.number, raw[at].offset, raw[at].timestamp, raw[at].rest, None, None, None, found.reasons[at]
            at += 1
        if end > first:
            last = int(kept.offset[end - 1])
            batch = records.select(first, end).build_raw_batch(int(kept.codec[first]), last + 1, -1)
            yield _build_packed_row(part.number, batch, writer)


def _build_packed_row(number: int, batch: RawBatch, writer: RegionWriter | None) -> tuple[Any, ...]:
    spans = [each for span in batch.spans for each in span]
    if writer is None:
        return number, batch.end, -1, bytes(batch.data), None, None, spans, None
    return number, batch.end, -1, None, writer.append(batch.data), len(batch.data), spans, None


def _build_packed(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    long = pa.int64()
    types = [pa.int32(), long, long, _Binary, long, long, pa.list_(long), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    names = ["part", "offset", "timestamp", "data", "at", "size", "spans", "reason"]
    return pa.RecordBatch.from_arrays(arrays, names=names)
