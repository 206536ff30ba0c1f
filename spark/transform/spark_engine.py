"""Expressions of flows evaluated by Spark: one job a micro-batch, all partitions in it.

A record that makes an expression fail (a cast, a division by zero) fails its whole job. It is found by halving the
micro-batch, and rejected like one whose condition gives null; the others are copied.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from watershed.clusters.registry.record_schemas import UnknownSchema
from watershed.replicator.batch.record_batch import RawBatch, decode_batch, decode_batches
from watershed.replicator.batch.records import RawRecord, decode_record_fields, decode_records
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.transport.transform_thread import TransformedPart, TransformFailed, TransformRequest
from watershed.spark.transform.changed_rows import PackedRow, list_packed
from watershed.spark.transform.compiled_transform import CompiledTransform, compile_transform
from watershed.spark.transform.expression_rules import WrongExpression
from watershed.spark.transform.field_records import parse_unknown_schema
from watershed.spark.transform.record_arrays import SPARE
from watershed.spark.transform.record_rows import SourcePart
from watershed.spark.transform.shared_memory import MemoryFile, SharedMemory
from watershed.topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+(?:\.[A-Z0-9_]+)?)\]")
# What opening and laying out records raises: it tells offsets and sizes, no values.
_UNUSABLE: Final = re.compile(r"\b(?:BadBatch|OversizedBatch|OverflowError): ([^\n]+)")
_SECRET_MISSING: Final = re.compile(r"SecretMissing: (.+)")
_CONDITIONS: Final = """
    ARITHMETIC_OVERFLOW BINARY_ARITHMETIC_OVERFLOW CANNOT_PARSE_TIMESTAMP CANNOT_PARSE_DECIMAL
    CAST_INVALID_INPUT CAST_OVERFLOW CONVERSION_INVALID_INPUT DATETIME_OVERFLOW DIVIDE_BY_ZERO
    INTERVAL_ARITHMETIC_OVERFLOW INVALID_ARRAY_INDEX INVALID_ARRAY_INDEX_IN_ELEMENT_AT INVALID_BITMAP_POSITION
    INVALID_INDEX_OF_ZERO INVALID_PARAMETER_VALUE INVALID_FRACTION_OF_SECOND INVALID_JSON_RECORD_TYPE
    INVALID_UTF8_STRING INVALID_URL MALFORMED_CHARACTER_CODING MAP_KEY_DOES_NOT_EXIST NUMERIC_VALUE_OUT_OF_RANGE
    NULL_MAP_KEY DUPLICATED_MAP_KEY REMAINDER_BY_ZERO UNSUPPORTED_TIME_TYPE ILLEGAL_CHARACTER_CODING
    CANNOT_PARSE_JSON_FIELD CANNOT_DECODE_URL COLLECTION_SIZE_LIMIT_EXCEEDED INVALID_DATETIME_PATTERN
    INVALID_REGEXP_REPLACE STRING_TOO_LONG
"""
# What an expression may run into with the values of one record (Spark's error conditions). Everything else is trouble
# of the cluster, and the same record may be fine the next time.
_OF_A_RECORD: Final = frozenset(_CONDITIONS.split())
_NUMBERS: Final = 1 << 31  # of parts


_Group = list[tuple[int, "_Piece"]]  # number of the part, and it


class _PartUnusable(Exception):
    """Records of some part of the job cannot be opened, or not laid out again."""


class _RecordFailed(Exception):
    """Some record of the job makes an expression fail; condition: what Spark calls that."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


@dataclass(frozen=True, slots=True)
class _Piece:
    """The records of a request from source offset `first` up to, not including, `end`."""

    request: TransformRequest
    first: int
    end: int

    def halve(self) -> list[_Piece]:
        middle = (self.first + self.end) // 2
        return [_Piece(self.request, self.first, middle), _Piece(self.request, middle, self.end)]

    @property
    def is_one(self) -> bool:
        return self.end - self.first <= 1


@dataclass(slots=True)
class SparkTransformEngine:
    """A `replicator.transport.transform_thread.TransformEngine` of one session. tasks: of a job, at most. memory: where
    tasks run on this machine, they reach batches there instead of through Java."""

    session: SparkSession
    tasks: int = 2
    memory: SharedMemory | None = None
    _compiled: dict[RecordTransform, CompiledTransform] = field(default_factory=dict)
    _plans: dict[tuple[RecordTransform, int], Callable[[], object]] = field(default_factory=dict)  # by tasks, too
    _next_number: int = 0  # of a part: no job of the last hours had it

    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        """One result a request, in their order. Raises TransformFailed."""
        try:
            compiled = self._compiled.get(transform) or compile_transform(self.session, transform)
        except WrongExpression as error:
            raise TransformFailed(
                f"{error}. Change it, and `topology apply`; `topology lint --spark` tells such", is_lasting=True
            ) from None
        self._compiled[transform] = compiled
        pieces = [_Piece(request, request.part.start, request.part.end) for request in requests]
        return self._transform(compiled, pieces)

    def _transform(self, compiled: CompiledTransform, pieces: list[_Piece]) -> list[TransformedPart]:
        try:
            return self._run(compiled, pieces)
        except (_RecordFailed, _PartUnusable) as failed:
            if len(pieces) > 1:
                middle = len(pieces) // 2
                return self._transform(compiled, pieces[:middle]) + self._transform(compiled, pieces[middle:])
            [piece] = pieces
            if isinstance(failed, _PartUnusable):
                return [TransformedPart([], [], failed=str(failed))]
            if piece.is_one:
                return [TransformedPart([], [_reject(piece, failed.condition)])]
            halves = [self._transform(compiled, [half])[0] for half in piece.halve()]
            return [_join_halves(*halves)]

    def _run(self, compiled: CompiledTransform, pieces: list[_Piece]) -> list[TransformedPart]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        first = self._next_number
        self._next_number = (first + len(pieces)) % _NUMBERS
        try:
            rows = self._run_job(compiled, _group_pieces(pieces, self.tasks), first)
            return _read_results(pieces, rows, first, None if self.memory is None else self.memory.output)
        except TransformFailed:
            self._retire()
            raise
        except (PySparkException, Py4JError) as error:
            self._retire()
            raise _judge(error) from None
        except OSError as error:
            self._retire()
            raise TransformFailed(f"memory for a micro-batch: {error}; it is tried again") from None

    def _run_job(self, compiled: CompiledTransform, groups: list[_Group], first: int) -> list[PackedRow]:
        """first: the number of the first part."""
        if self.memory is None:
            told = [_build_parts(group, first, None) for group in groups]
            tables = [pa.RecordBatch.from_pydict({"part": pa.array(parts, pa.binary())}) for parts in told]
            return list_packed(compiled.apply(self.session.createDataFrame(pa.Table.from_batches(tables))).toArrow())
        self.memory.begin()
        tasks = 1 if len(groups) == 1 else self.tasks
        told = [_build_parts(group, first, self.memory) for group in groups]
        told += [[] for _ in range(tasks - len(groups))]
        self.memory.assign([pickle.dumps(parts) for parts in told])
        self._find_plan(compiled, tasks, self.memory)()
        answers = self.memory.read_answers(tasks)
        return [row for answer in answers for row in pickle.loads(answer)]  # noqa: S301  from our own tasks

    def _find_plan(self, compiled: CompiledTransform, tasks: int, memory: SharedMemory) -> Callable[[], object]:
        """Spark analyses and compiles it once; that costs more than a job of some thousand records."""
        found = self._plans.get((compiled.transform, tasks))
        if found is None:
            paths = memory.assignments.path, memory.output.path
            found = compiled.plan_assigned(self.session, *paths, tasks)
            self._plans[compiled.transform, tasks] = found
        return found

    def _retire(self) -> None:
        self._plans.clear()  # they name the memory
        if self.memory is not None:
            self.memory.retire()

    def close(self) -> None:
        """Gives back the memory."""
        if self.memory is not None:
            self.memory.close()


def _join_halves(one: TransformedPart, two: TransformedPart) -> TransformedPart:
    return TransformedPart(
        one.batches + two.batches, one.rejected + two.rejected, one.unknown | two.unknown, one.failed or two.failed
    )


def _judge(error: Exception) -> Exception:
    """What a failed job means. Spark's text may hold values of records, so that only its condition is told."""
    condition = find_record_condition(error)
    if condition is not None:
        return _RecordFailed(condition)
    if unusable := _UNUSABLE.search(str(error)):
        return _PartUnusable(unusable[1])
    if missing := _SECRET_MISSING.search(str(error)):  # it names the reference, never what stands there
        return TransformFailed(f"on a machine where Spark runs: {missing[1]}", is_lasting=True)
    found = _CONDITION.findall(str(error))
    return TransformFailed(
        f"Spark did not evaluate the flow's expressions ({', '.join(dict.fromkeys(found)) or type(error).__name__}); "
        "its log says more, and it is tried again"
    )


def find_record_condition(error: Exception) -> str | None:
    """What Spark calls the trouble that an expression had with the values of one record; None for other troubles."""
    found: list[str] = _CONDITION.findall(str(error))
    return next((condition for condition in found if condition.partition(".")[0] in _OF_A_RECORD), None)


def _group_pieces(pieces: Sequence[_Piece], tasks: int) -> list[_Group]:
    """A group a task, each with about as many bytes."""
    share = sum(piece.request.part.size for piece in pieces) / tasks
    groups: list[_Group] = [[]]
    size = 0
    for number, piece in enumerate(pieces):
        if groups[-1] and size >= share * len(groups) and len(groups) < tasks:
            groups.append([])
        groups[-1].append((number, piece))
        size += piece.request.part.size
    return groups


def _build_parts(group: _Group, first: int, memory: SharedMemory | None) -> list[bytes]:
    """The parts of a task, pickled. first: the number of the job's first part."""
    parts = [
        SourcePart(
            (first + number) % _NUMBERS,
            piece.request.key.topic,
            piece.request.key.partition,
            piece.first,
            piece.end,
            piece.request.part.read() if memory is None else memory.input.append([*piece.request.part.pieces, SPARE]),
            tuple(sorted(offset for offset in piece.request.leave_out if piece.first <= offset < piece.end)),
            piece.request.batch_bytes,
            "" if memory is None else memory.output.path,
            piece.request.schemas,
            piece.request.compression,
        )
        for number, piece in group
    ]
    return [pickle.dumps(part) for part in parts]


def _read_results(
    pieces: Sequence[_Piece], rows: Sequence[PackedRow], first: int, output: MemoryFile | None
) -> list[TransformedPart]:
    """Raises TransformFailed where rows are missing, or are those of another job: what is not answered to its end would
    be left out."""
    results = [TransformedPart([], []) for _ in pieces]
    unknown: list[set[UnknownSchema]] = [set() for _ in pieces]
    open_ends = dict.fromkeys((first + number) % _NUMBERS for number in range(len(pieces)))
    numbers = {number: at for at, number in enumerate(open_ends)}
    for row in rows:
        if row.part not in open_ends:
            told = f"Spark answered part {row.part}, which is answered already or of another micro-batch"
            raise TransformFailed(f"{told}; it is tried again")
        result, piece = results[numbers[row.part]], pieces[numbers[row.part]]
        if row.reason is not None:
            if (lacking := parse_unknown_schema(row.reason)) is not None:
                unknown[numbers[row.part]].add(lacking)
                continue
            reason = row.reason or piece.request.leave_out[row.offset]
            result.rejected.append(_build_rejected(RawRecord(row.offset, row.timestamp, row.data), reason))
        elif row.spans is None:
            del open_ends[row.part]
        else:
            data = memoryview(row.data) if output is None else output.read(row.at, row.size)
            result.batches.append(_read_batch(row, row.spans, data))
    if open_ends:
        told = f"{len(open_ends)} of {len(pieces)} parts were not answered to their end"
        raise TransformFailed(f"Spark lost rows of a micro-batch: {told}; it is tried again")
    return [result._replace(unknown=frozenset(ids)) for result, ids in zip(results, unknown, strict=True)]


def _read_batch(row: PackedRow, numbers: list[int], data: memoryview) -> RawBatch:
    spans = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    batch = decode_batch(data, 0, len(data))
    return batch._replace(base=spans[0][0], end=row.offset, spans=spans, saved=row.saved)


def _build_rejected(record: RawRecord, reason: str) -> RejectedRecord:
    key, value, headers = decode_record_fields(record.rest)
    return RejectedRecord(record.offset, record.timestamp, key, value, headers, reason)


def _reject(piece: _Piece, condition: str) -> RejectedRecord:
    for batch in decode_batches(memoryview(piece.request.part.read())):
        for record in decode_records(batch) if batch.base <= piece.first < batch.end else ():
            if record.offset == piece.first:
                return _build_rejected(record, f"an expression fails for it: Spark says {condition}")
    raise AssertionError(f"no record at offset {piece.first}, and yet an expression failed for one there")
