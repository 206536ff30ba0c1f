"""What Spark's Python workers do in front of the SQL: they open parts of a log into rows.

They read no topic. SQL gets the columns that expressions look at; the records themselves go round it, as the batches
that they came in, with the first row of their part. Rows of a part stay together and in order, because nothing is
shuffled. What is made of them behind the SQL stands in `spark.transform.changed_rows`.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from watershed.clusters.registry.record_schemas import (
    NO_RECORD_SCHEMAS,
    RecordSchemas,
    SideSchemas,
    UnknownSchema,
    read_schema_id,
)
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from watershed.replicator.batch.record_columns import Mask, Numbers
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.field_records import SchemaReader, render_unknown_schema
from watershed.spark.transform.record_arrays import (
    SPARE,
    BinaryColumn,
    RecordArrays,
    open_stored,
    restore_records,
)
from watershed.spark.transform.record_headers import list_headers
from watershed.spark.transform.shared_memory import MemoryRegion, RegionWriter, read_assignment
from watershed.topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from watershed.topology.egress_compression import EgressCompression
    from watershed.topology.secret_ref import SecretRef

# Of one Arrow batch between SQL and Python: as many rows as take about _TABLE_BYTES, within these bounds.
_LEAST_ROWS, MOST_ROWS, _TABLE_BYTES = 64, 32_768, 4 << 20
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
    batches: themselves, or where they stand in memory of the driver's, with SPARE behind them. output: memory where
    results go, or "". schemas: what is known of the ids in front of its keys and values. compression: of batches that
    have no codec. places: where its records were found in the batches, if somebody has opened it before. alike: where
    one row stands for all records that expressions cannot tell apart, the number of that row for each record, a byte
    each."""

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
        data = self.batches.map() if isinstance(self.batches, MemoryRegion) else memoryview(self.batches + SPARE)
        if self.places is not None:
            return restore_records(data, self.places.read())
        return open_stored(data).between(self.first, self.end)


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


def find_task_number() -> int:
    """Of the task that this process works for; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


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
        return pa.array([list(dict(list_headers(each or b"\0")).items()) for each in headers.to_pylist()], kind)

    def _name(self, columns: Mapping[str, pa.Array], fields: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        """Those of `needs.columns`, those of its `field_columns`, and the secrets; in Arrow batches of some MB."""
        arrays, names = [*columns.values(), *fields], list(columns)
        n = len(arrays[0])
        names += [FIELDS_COLUMN.format(plan.side) for plan in self.needs.field_columns]
        for name, secret in self._secrets.items():
            arrays.append(pa.repeat(secret, n))
            names.append(SECRET_COLUMN.format(name))
        table = pa.RecordBatch.from_arrays(arrays, names=names)
        rows = max(min(MOST_ROWS, n * _TABLE_BYTES // max(table.nbytes, 1)), _LEAST_ROWS)
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
