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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from watershed.clusters.registry.record_schemas import (
    NO_RECORD_SCHEMAS,
    RecordSchemas,
    SideSchemas,
    UnknownSchema,
    read_schema_id,
)
from watershed.clusters.registry.schema_id_translation import SideSchemaIds, rewrite_schema_id
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from watershed.clusters.varints import decode_zigzag, encode_zigzag
from watershed.replicator.batch.egress_compression import compress_batch
from watershed.replicator.batch.record_batch import decode_batch
from watershed.replicator.batch.record_columns import Mask, Numbers
from watershed.spark.errors import SparkError
from watershed.spark.transform.column_types import list_column
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.field_records import SchemaReader, render_unknown_schema
from watershed.spark.transform.json_members import MemberChanges, change_members
from watershed.spark.transform.record_arrays import (
    SPARE,
    BinaryColumn,
    EncodedBatch,
    RecordArrays,
    encode_batches,
    list_raw_records,
    measure_records,
    open_stored,
    restore_records,
)
from watershed.spark.transform.shared_memory import MemoryRegion, RegionWriter, read_assignment
from watershed.topology.record_transform import ChangedPart, RecordTransform, parse_changed_part

if TYPE_CHECKING:
    from watershed.topology.egress_compression import EgressCompression
    from watershed.topology.secret_ref import SecretRef

# Of one Arrow batch between SQL and Python: as many rows as take about _TABLE_BYTES, within these bounds.
_LEAST_ROWS, _MOST_ROWS, _TABLE_BYTES = 64, 32_768, 4 << 20
_PLACES_AREA: Final = 1 << 20  # of memory: the first of areas behind those that tasks write results to
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
_OF_A_ROW: Final = frozenset({"_part", "_source", "offset"})  # what says nothing of the other records alike
TRANSFORMED_COLUMNS: Final = (
    "part int, offset bigint, timestamp bigint, data binary, at bigint, size bigint, saved bigint, "
    "spans array<bigint>, reason string"
)
_ASKS_FOR_NULL: Final = re.compile(r"\b(key|value)\s+is\s+(?:not\s+)?null\b")
_Binary: Final = pa.binary()
_ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": _Binary,
    "map<string, binary>": pa.map_(pa.string(), _Binary),
}
_TEXTS: Final = ("string", "json")


class SourcePart(NamedTuple):
    """A part of a source partition as tasks get it: batches as stored, of which the records from `first` up to, not
    including, `end` count. leave_out: offsets that the target does not take. batch_bytes: at which a batch is full.
    batches: themselves, or where they stand in memory of the driver's. output: memory where results go, or "". schemas:
    what is known of the ids in front of its keys and values. compression: of batches that have no codec. places: where
    its records were found in the batches, if somebody has opened it before. alike: where one row stands for all records
    that expressions cannot tell apart, the number of that row for each record, a byte each."""

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
    compression: EgressCompression | None = None
    places: MemoryRegion | None = None
    alike: MemoryRegion | None = None

    def open(self) -> RecordArrays:
        """Its records. Raises BadBatch."""
        data = self.batches.read(len(SPARE)) if isinstance(self.batches, MemoryRegion) else self.batches + SPARE
        if self.places is not None:
            return restore_records(memoryview(data), memoryview(self.places.read()))
        return open_stored(memoryview(data)).between(self.first, self.end)


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """What expressions look at, so that nothing else is made of a record. nulls: of which of `key` and `value`, as
    bytes, they only ask whether it is null: then its content does not travel. places: which of the columns that say
    where and when a record was written. offset: whether that is looked at; it travels anyway."""

    key: bool
    value: bool
    key_text: bool
    value_text: bool
    headers: bool
    secrets: tuple[tuple[str, SecretRef], ...] = ()
    nulls: frozenset[str] = frozenset()
    fields: tuple[FieldPlan, ...] = ()
    places: frozenset[str] = frozenset()
    offset: bool = True

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
            "offset" in texts,
        )

    @property
    def can_share_rows(self) -> bool:
        """Whether records of a part differ for expressions only in which of key and value are null. Expressions are
        functions of what they look at, so one row then stands for all records alike."""
        whole = self.key or self.value or self.key_text or self.value_text or self.headers or self.offset
        return not whole and not self.fields and "_timestamp" not in self.places

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
    _places: dict[str, RegionWriter] = field(default_factory=dict)  # by the memory that parts name

    def __post_init__(self) -> None:
        from watershed.clusters.secrets import SecretResolver

        resolver = SecretResolver("", os.environ, where="transform.secrets")
        self._secrets = {name: resolver.text(name, ref) for name, ref in self.needs.secrets}

    def build(self, part: SourcePart) -> Iterator[pa.RecordBatch]:
        """The records of a part, the part itself with the first of them. Raises BadBatch."""
        records = part.open()
        if not len(records):
            return
        key_text, key_problems = _read_texts(self.needs.key_text, records.key, "the key")
        value_text, value_problems = _read_texts(self.needs.value_text, records.value, "the value")
        fields, field_problems = self._read_fields(part, records)
        told = field_problems | value_problems | key_problems
        left_out = np.isin(records.offset, np.array(part.leave_out, dtype=np.int64))
        rows, alike = records, None
        if self.needs.can_share_rows and not told and part.output and records.is_of_one_piece:
            firsts, alike = find_alike(records, left_out)
            rows, left_out = records.take(firsts), left_out[firsts]
        n = len(rows)
        problems = pa.array([told.get(row) for row in range(n)], pa.string()) if told else pa.nulls(n, pa.string())
        make: dict[str, Callable[[], pa.Array]] = {
            "_part": lambda: pa.repeat(pa.scalar(part.number, pa.int32()), n),
            "_source": lambda: pa.concat_arrays(
                [pa.array([pickle.dumps(self._share_places(part, records, alike))], _Binary), pa.nulls(n - 1, _Binary)]
            ),
            "_left_out": lambda: pa.array(left_out),
            "_problem": lambda: problems,
            "_timestamp": lambda: pa.array(rows.timestamp),
            "_key": lambda: self._show(self.needs.key, rows.key),
            "_value": lambda: self._show(self.needs.value, rows.value),
            "_key_text": lambda: key_text,
            "_value_text": lambda: value_text,
            "topic": lambda: pa.repeat(part.topic, n),
            "partition": lambda: pa.repeat(pa.scalar(part.partition, pa.int32()), n),
            "offset": lambda: pa.array(rows.offset),
            "headers": lambda: self._read_headers(rows.headers),
        }
        yield from self._name({name: make[name]() for name in self.needs.columns}, fields)

    def _share_places(self, part: SourcePart, records: RecordArrays, alike: Numbers | None) -> SourcePart:
        """The part as the process behind the SQL gets it, which need not look for the records again."""
        if not part.output or not records.is_of_one_piece:
            return part
        if part.output not in self._places:
            self._places[part.output] = RegionWriter(part.output, _PLACES_AREA + find_task_number())
        writer, pieces = self._places[part.output], records.render_places()
        places = MemoryRegion(part.output, writer.append(pieces), sum(map(len, pieces)))
        if alike is None:
            return part._replace(places=places)
        at = writer.append([alike.astype(np.uint8).data])
        return part._replace(places=places, alike=MemoryRegion(part.output, at, len(alike)))

    def build_note(self, number: int, offset: int, note: str, source: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """A row that stands for no record: it passes the SQL untouched. source: the part where it has no records,
        pickled."""
        row = {"_part": number, "_source": source, "_left_out": True, "_problem": note, "_timestamp": 0, "topic": "",
               "partition": 0, "offset": offset}  # fmt: skip
        nothing = [pa.nulls(1, plan.columns) for plan in self.needs.field_columns]
        yield from self._name(
            {name: pa.array([row.get(name)], _ARROW_TYPES[RECORD_COLUMNS[name]]) for name in self.needs.columns},
            nothing,
        )

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

    def _show(self, is_read: bool, column: BinaryColumn) -> pa.Array:
        """The column as SQL gets it: where it only asks for nulls, without content."""
        if is_read:
            return column.to_array()
        n = len(column)
        return pa.Array.from_buffers(_Binary, n, [column.validity, pa.py_buffer(bytes(4 * n + 4)), pa.py_buffer(b"")])

    def _read_headers(self, headers: BinaryColumn) -> pa.Array:
        kind = _ARROW_TYPES[RECORD_COLUMNS["headers"]]
        return pa.array([list(dict(_list_headers(each or b"\0")).items()) for each in headers.to_pylist()], kind)

    def _name(self, columns: Mapping[str, pa.Array], fields: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        """Those of `needs.columns`, those of its `field_columns`, and the secrets; in Arrow batches of some MB."""
        arrays, names = [*columns.values(), *fields], list(columns)
        n = len(arrays[0])
        names += [FIELDS_COLUMN.format(plan.side) for plan in self.needs.field_columns]
        for name, secret in self._secrets.items():
            arrays.append(pa.repeat(secret, n))
            names.append(SECRET_COLUMN.format(name))
        table = pa.RecordBatch.from_arrays(arrays, names=names)
        rows = max(min(_MOST_ROWS, n * _TABLE_BYTES // max(table.nbytes, 1)), _LEAST_ROWS)
        for start in range(0, n, rows):
            yield table.slice(start, rows)


def find_alike(records: RecordArrays, left_out: Mask) -> tuple[list[int], Numbers]:
    """The first record of each kind, and the kind of each record: by which of key and value are null, and whether it is
    left out."""
    kinds = (records.key.size < 0) | (records.value.size < 0).astype(np.uint8) << 1 | left_out.astype(np.uint8) << 2
    _, firsts, alike = np.unique(kinds, return_index=True, return_inverse=True)
    return firsts.tolist(), alike


def open_assigned(needs: RowNeeds, path: str, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `open_parts`, of the parts that memory of the driver's at `path` assigns to each task in a column `id`."""
    yield from open_parts(
        needs, (_read_parts(path, task) for table in tables for task in table.column("id").to_pylist())
    )


def _read_parts(path: str, task: int) -> pa.RecordBatch:
    parts = pickle.loads(read_assignment(path, task))  # noqa: S301  from our own driver
    return pa.RecordBatch.from_pydict({"part": pa.array(parts, _Binary)})


def open_parts(needs: RowNeeds, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of RECORD_COLUMNS from a column `part` of pickled parts. Raises BadBatch, SecretMissing."""
    freeze_modules()
    builder = RowBuilder(needs)
    for table in tables:
        for packed in table.column("part").to_pylist():
            part: SourcePart = pickle.loads(packed)  # noqa: S301  from our own driver
            is_empty = True
            for rows in builder.build(part):
                is_empty = False
                yield rows
            if is_empty:  # it is answered all the same
                yield from builder.build_note(part.number, part.first, "", packed)


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
        for start in range(0, len(records), _MOST_ROWS):
            end = min(start + _MOST_ROWS, len(records))
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


def find_task_number() -> int:
    """Of the task that this process works for; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def pack_rows(order: ChangeOrder, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of TRANSFORMED_COLUMNS: batches (without a reason), records that no expression could be applied to, and
    behind those of each part a row that has no content: it was looked at to its end."""
    freeze_modules()
    reader, writers = DecisionReader(order), dict[str, RegionWriter]()
    for table in tables:
        rows: list[_PackedRow] = []
        for found in reader.read(table):
            output = found.part.output
            writer = writers.setdefault(output, RegionWriter(output, find_task_number())) if output else None
            rows.extend(_pack(found, writer))
        if rows:
            yield _build_packed(rows)


class _PackedRow(NamedTuple):
    """A row of TRANSFORMED_COLUMNS: a batch, a record that is rejected, or that a part was looked at to its end."""

    part: int
    offset: int  # of the record; or behind the batch, or the part
    timestamp: int = -1
    data: bytes | None = None
    at: int | None = None  # in the output, where the batch does not travel
    size: int | None = None
    saved: int | None = None
    spans: list[int] | None = None
    reason: str | None = None


def _pack(found: ChangedRecords, writer: RegionWriter | None) -> Iterator[_PackedRow]:
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
            yield _PackedRow(part.number, *raw[at], reason=found.reasons[at])
            at += 1
        if batch is not None:
            yield _build_packed_row(part, batch, writer)
    if found.is_last:
        yield _PackedRow(part.number, part.end)


def _build_packed_row(part: SourcePart, batch: EncodedBatch, writer: RegionWriter | None) -> _PackedRow:
    pieces, saved = batch.pieces, 0
    if part.compression is not None:
        whole = memoryview(b"".join(pieces))
        compressed = compress_batch(decode_batch(whole, 0, len(whole)), part.compression)
        pieces, saved = (compressed.data,), compressed.saved
    row = _PackedRow(part.number, batch.end, saved=saved, spans=[each for span in batch.spans for each in span])
    if writer is None:
        return row._replace(data=b"".join(pieces))
    return row._replace(at=writer.append(pieces), size=sum(map(len, pieces)))


def _build_packed(rows: list[_PackedRow]) -> pa.RecordBatch:
    long = pa.int64()
    types = [pa.int32(), long, long, _Binary, long, long, long, pa.list_(long), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(_PackedRow._fields))
