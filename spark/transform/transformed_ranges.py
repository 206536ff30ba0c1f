"""A proof's view of a source whose records are changed on their way: what should stand at the target.

The records are read by the proof's own reader, and the flow's expressions are applied to them in a plan of Spark of
their own. A record that no expression can be applied to counts as it is: such a record is in quarantine, or nothing
behind it is copied.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from watershed.clusters.errors import ClusterError
from watershed.clusters.registry.record_schemas import RecordSchemas, UnknownSchema
from watershed.replicator.batch.record_columns import Numbers
from watershed.replicator.errors import BadBatch
from watershed.spark.errors import NotReadable, SparkError
from watershed.spark.fingerprint import (
    ChunkSum,
    RecordFingerprints,
    RecordSlices,
    fingerprint_slices,
    join_fingerprints,
    sum_fingerprints,
)
from watershed.spark.reading.fetch_answers import OffsetsExpired
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_address import build_partition_address
from watershed.spark.reading.range_reader import read_record_batches
from watershed.spark.reading.range_requests import RangeRequest, group_into_tasks, split_into_streams
from watershed.spark.reading.range_sums import RangeSum
from watershed.spark.reading.schema_id_rewrite import rewrite_schema_ids
from watershed.spark.reading.whole_records import WholeRecord, build_whole_records
from watershed.spark.transform.changed_rows import ChangedRecords, ChangeOrder, DecisionReader
from watershed.spark.transform.compiled_transform import (
    build_record_columns,
    change_records,
    compile_transform,
    plan_fields,
)
from watershed.spark.transform.field_records import parse_unknown_schema
from watershed.spark.transform.record_arrays import RecordArrays
from watershed.spark.transform.record_rows import RowBuilder, RowNeeds, SourcePart
from watershed.spark.transform.source_schemas import SourceSchemas, TopicPlace
from watershed.spark.transform.spark_engine import find_record_condition
from watershed.topology.plan import Plan, PlanCluster
from watershed.topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_COLUMNS: Final = "task binary"
_ANSWER_COLUMNS: Final = "answer binary"
_SPARE: Final = b"\0" * 8  # fingerprint_slices reads beyond the last record
_PART_BYTES: Final = 4 << 20  # of batches as stored that are opened together
_OUTCOME: Final = -1  # offset of a row that says how reading a range ended

_Schemas = Mapping[TopicPlace, RecordSchemas]
_Task = tuple[PlanCluster, tuple[RangeRequest, ...], _Schemas]


@dataclass(frozen=True, slots=True)
class _RangeAnswer:
    """What one range came to. blocks, records: fingerprints and whole records where they were asked for, beside the
    sums. unknown: schema ids in its records that nobody has asked for; nothing else counts then."""

    request_id: int
    state: str = "read"
    detail: str = ""
    log_start: int = -1
    sums: ChunkSum = field(default_factory=ChunkSum)
    blocks: tuple[RecordFingerprints, ...] = ()
    records: tuple[WholeRecord, ...] = ()
    unknown: frozenset[UnknownSchema] = frozenset()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an answer holds beside sums: fingerprints of all records, and whole records at these offsets."""

    prints: bool = False
    offsets: frozenset[int] = frozenset()


def sum_transformed_ranges(
    session: SparkSession, plan: Plan, requests: Sequence[RangeRequest], tasks: int
) -> list[RangeSum]:
    """Sums of the records that should stand at the target. Raises SparkError, ClusterError."""
    return [
        RangeSum(each.request_id, each.state, each.detail, each.log_start, each.sums, 0)
        for each in _read(session, plan, requests, tasks, _Wanted())
    ]


def read_transformed_range(session: SparkSession, plan: Plan, request: RangeRequest) -> RecordFingerprints:
    """The fingerprints of the records that should stand at the target, each at its source offset.

    Raises OffsetsExpired, NotReadable, SparkError, ClusterError.
    """
    return join_fingerprints(list(_read_one(session, plan, request, _Wanted(prints=True)).blocks))


def read_expected_records(
    session: SparkSession, plan: Plan, request: RangeRequest, offsets: Iterable[int]
) -> tuple[WholeRecord, ...]:
    """The records at these source offsets as they should stand at the target; those that do not travel are left out.

    Raises OffsetsExpired, NotReadable, SparkError, ClusterError.
    """
    return _read_one(session, plan, request, _Wanted(offsets=frozenset(offsets))).records


def _read_one(session: SparkSession, plan: Plan, request: RangeRequest, wanted: _Wanted) -> _RangeAnswer:
    [answer] = _read(session, plan, [request], 1, wanted)
    if answer.state == "expired":
        raise OffsetsExpired(answer.log_start)
    if answer.state != "read":
        raise NotReadable(answer.detail)
    return answer


def _read(
    session: SparkSession, plan: Plan, requests: Sequence[RangeRequest], tasks: int, wanted: _Wanted
) -> list[_RangeAnswer]:
    """One answer a request. All requests of a flow share a job; where a record makes an expression fail, the job is
    halved until that record is alone."""
    found: list[_RangeAnswer] = []
    by_transform: dict[RecordTransform, list[RangeRequest]] = {}
    for request in requests:
        assert request.transform is not None
        by_transform.setdefault(request.transform, []).append(request)
    for transform, some in by_transform.items():
        compile_transform(session, transform)
        schemas = SourceSchemas(plan, transform)
        schemas.read(sorted({_place(request) for request in some}))
        found += _read_or_halve(session, schemas, transform, some, tasks, wanted)
    return found


def _read_or_halve(
    session: SparkSession,
    schemas: SourceSchemas,
    transform: RecordTransform,
    requests: Sequence[RangeRequest],
    tasks: int,
    wanted: _Wanted,
) -> list[_RangeAnswer]:
    from pyspark.errors import PySparkException

    try:
        return _run_until_known(session, schemas, transform, requests, tasks, wanted)
    except PySparkException as error:
        if find_record_condition(error) is None:
            raise
    if len(requests) > 1:
        middle = len(requests) // 2
        first = _read_or_halve(session, schemas, transform, requests[:middle], tasks, wanted)
        return first + _read_or_halve(session, schemas, transform, requests[middle:], tasks, wanted)
    [request] = requests
    if request.end - request.start <= 1:
        plain = replace(transform, where=None, changes=(), drops=())
        return _run_until_known(session, schemas, plain, requests, 1, wanted)
    middle = (request.start + request.end) // 2
    halves = [replace(request, end=middle), replace(request, start=middle)]
    both = [_read_or_halve(session, schemas, transform, [half], tasks, wanted)[0] for half in halves]
    return [_join(both[0], both[1])]


def _join(one: _RangeAnswer, two: _RangeAnswer) -> _RangeAnswer:
    if one.state != "read" or two.state != "read":
        return one if one.state != "read" else two
    return replace(
        one,
        sums=one.sums + two.sums,
        blocks=one.blocks + two.blocks,
        records=one.records + two.records,
        unknown=one.unknown | two.unknown,
    )


def _place(request: RangeRequest) -> TopicPlace:
    return request.cluster, request.topic


def _run_until_known(
    session: SparkSession,
    schemas: SourceSchemas,
    transform: RecordTransform,
    requests: Sequence[RangeRequest],
    tasks: int,
    wanted: _Wanted,
) -> list[_RangeAnswer]:
    """Records may have ids of other subjects than those called after their topic: these are asked for, and everything
    is read again. An id that was asked for is known, or known to be absent."""
    by_id = {request.id: request for request in requests}
    while True:
        answers = _run(session, schemas, transform, requests, tasks, wanted)
        lacking = [answer for answer in answers if answer.unknown]
        if not lacking:
            return answers
        for answer in lacking:
            schemas.learn(_place(by_id[answer.request_id]), answer.unknown)


def _run(
    session: SparkSession,
    schemas: SourceSchemas,
    transform: RecordTransform,
    requests: Sequence[RangeRequest],
    tasks: int,
    wanted: _Wanted,
) -> list[_RangeAnswer]:
    known = schemas.list_known({_place(request) for request in requests})
    groups: list[_Task] = [
        (schemas.plan.cluster(group[0].cluster), tuple(group), {_place(each): known[_place(each)] for each in group})
        for group in group_into_tasks(requests, tasks)
    ]
    rows = pa.Table.from_batches([pa.RecordBatch.from_pylist([{"task": pickle.dumps(group)}]) for group in groups])
    plans = plan_fields(transform)
    needs, order = RowNeeds.of(transform, plans), ChangeOrder.of(transform, plans)
    records = session.createDataFrame(rows).mapInArrow(partial(_open_ranges, needs), build_record_columns(transform))
    answers = change_records(records, transform).mapInArrow(
        partial(_fingerprint_rows, order, {each.id: each for each in requests}, wanted), _ANSWER_COLUMNS
    )
    found: dict[int, _RangeAnswer] = {}
    for row in answers.toArrow().column("answer").to_pylist():
        answer: _RangeAnswer = pickle.loads(row)  # noqa: S301  from our own tasks
        before = found.get(answer.request_id)
        found[answer.request_id] = answer if before is None else _join(before, answer)
    if found.keys() != {request.id for request in requests}:
        raise SparkError(f"Spark answered {len(found)} of {len(requests)} ranges of the source; run the proof again")
    return list(found.values())


# -- what tasks do -------------------------------------------------------------------------------------------------


def _open_ranges(needs: RowNeeds, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    builder = RowBuilder(needs)
    for table in tables:
        for packed in table.column("task").to_pylist():
            cluster, requests, schemas = pickle.loads(packed)  # noqa: S301  from our own driver
            for run in split_into_streams(requests):
                for request in run:
                    yield from _open_range(builder, cluster, request, schemas[_place(request)])


def _open_range(
    builder: RowBuilder, cluster: PlanCluster, request: RangeRequest, schemas: RecordSchemas
) -> Iterator[pa.RecordBatch]:
    """Its records, and behind them a row that says how reading it ended."""
    outcome = _RangeAnswer(request.id)
    waiting: list[bytes] = []
    try:
        address = build_partition_address(cluster, request)
        for batch in read_record_batches(address, OffsetRange(request.start, request.end)):
            waiting.append(bytes(batch.raw))
            if sum(map(len, waiting)) >= _PART_BYTES:
                yield from builder.build(_build_part(request, waiting, schemas))
                waiting = []
        yield from builder.build(_build_part(request, waiting, schemas))
    except OffsetsExpired as expired:
        outcome = replace(outcome, state="expired", detail=str(expired), log_start=expired.log_start)
    except (ClusterError, NotReadable, BadBatch) as error:
        outcome = replace(outcome, state="failed", detail=str(error))
    yield from builder.build_note(request.id, _OUTCOME, pickle.dumps(outcome).hex())


def _build_part(request: RangeRequest, batches: Sequence[bytes], schemas: RecordSchemas) -> SourcePart:
    whole = b"".join(batches)
    place = (request.topic, request.partition)
    return SourcePart(request.id, *place, request.start, request.end, whole, schemas=schemas)


def _fingerprint_rows(
    order: ChangeOrder, requests: Mapping[int, RangeRequest], wanted: _Wanted, tables: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    reader = DecisionReader(order)
    for table in tables:
        answers: list[_RangeAnswer] = []
        notes = np.flatnonzero(table.column("offset").to_numpy() == _OUTCOME).tolist()
        for first, end in pairwise([-1, *notes, table.num_rows]):  # between two notes are records
            for found in reader.read(table.slice(first + 1, end - first - 1)):
                answers.append(_fingerprint(found, requests[found.part.number], wanted))
            if end < table.num_rows:
                note = table.column("_problem")[end].as_py()
                answers.append(pickle.loads(bytes.fromhex(note)))  # noqa: S301  from the task before
        if answers:
            yield pa.RecordBatch.from_pydict({"answer": [pickle.dumps(each) for each in answers]})


def _fingerprint(found: ChangedRecords, request: RangeRequest, wanted: _Wanted) -> _RangeAnswer:
    """What should stand at the target, with what was rejected, as it came, in its place."""
    both = [each for each in (found.kept, found.rejected) if len(each)]
    sides = [rewrite_schema_ids(_build_slices(each), request.ids) for each in both]
    parts = [fingerprint_slices(each, timestamps=request.timestamps) for each in sides]
    records = tuple(
        record
        for each, some in zip(sides, parts, strict=True)
        if wanted.offsets
        for record in build_whole_records(each, some, wanted.offsets)
    )
    prints = join_fingerprints(parts)
    if len(found.rejected):
        prints = prints.take(np.argsort(prints.offset, kind="stable"))
    prints = prints.without(request.left_out)
    unknown = frozenset(id for reason in found.reasons if (id := parse_unknown_schema(reason)) is not None)
    blocks = (prints,) if wanted.prints else ()
    return _RangeAnswer(request.id, sums=sum_fingerprints(prints), blocks=blocks, records=records, unknown=unknown)


def _build_slices(records: RecordArrays) -> RecordSlices:
    places: list[Numbers] = []
    pieces: dict[int, tuple[int, memoryview]] = {}  # by identity: columns as they came share their bytes
    base = 0
    for column in (records.key, records.value, records.headers):
        if id(column.data) not in pieces:
            pieces[id(column.data)] = base, column.data
            base += len(column.data)
        places += [pieces[id(column.data)][0] + column.at, column.size]
    whole = [data for _, data in pieces.values()]
    joined = whole[0] if len(whole) == 1 else b"".join((*whole, _SPARE))
    return RecordSlices(np.frombuffer(joined, dtype=np.uint8), records.offset, records.timestamp, *places)
