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
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from clusters.errors import ClusterError
from replicator.batch.records import RawRecord
from spark.errors import NotReadable, SparkError
from spark.fingerprint import (
    ChunkSum,
    RecordFingerprints,
    RecordSlices,
    fingerprint_slices,
    join_fingerprints,
    sum_fingerprints,
)
from spark.reading.batch_decoding import locate_records
from spark.reading.fetch_answers import OffsetsExpired
from spark.reading.offset_range import OffsetRange
from spark.reading.range_address import build_partition_address
from spark.reading.range_reader import read_record_batches
from spark.reading.range_requests import RangeRequest, group_into_tasks, split_into_streams
from spark.reading.range_sums import RangeSum
from spark.transform.compiled_transform import build_record_columns, change_records, compile_transform
from spark.transform.record_rows import ChangeOrder, RecordRowBuilder, RowNeeds, change_record
from spark.transform.spark_engine import find_record_condition
from topology.plan import Plan, PlanCluster
from topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_COLUMNS: Final = "task binary"
_ANSWER_COLUMNS: Final = "answer binary"
_SPARE: Final = b"\0" * 8  # fingerprint_slices reads beyond the last record
_BLOCK_ROWS: Final = 8_192
_OUTCOME: Final = -1  # offset of a row that says how reading a range ended

_Task = tuple[PlanCluster, tuple[RangeRequest, ...]]


@dataclass(frozen=True, slots=True)
class _RangeAnswer:
    """What one range came to. blocks: fingerprints where they were asked for, else only their sums."""

    request_id: int
    state: str = "read"
    detail: str = ""
    log_start: int = -1
    sums: ChunkSum = field(default_factory=ChunkSum)
    blocks: tuple[RecordFingerprints, ...] = ()


def sum_transformed_ranges(
    session: SparkSession, plan: Plan, requests: Sequence[RangeRequest], tasks: int
) -> list[RangeSum]:
    """Sums of the records that should stand at the target. Raises SparkError."""
    return [
        RangeSum(each.request_id, each.state, each.detail, each.log_start, each.sums, 0)
        for each in _read(session, plan, requests, tasks, keep=False)
    ]


def read_transformed_range(session: SparkSession, plan: Plan, request: RangeRequest) -> RecordFingerprints:
    """The fingerprints of the records that should stand at the target, each at its source offset.

    Raises OffsetsExpired, NotReadable, SparkError.
    """
    [answer] = _read(session, plan, [request], 1, keep=True)
    if answer.state == "expired":
        raise OffsetsExpired(answer.log_start)
    if answer.state != "read":
        raise NotReadable(answer.detail)
    return join_fingerprints(list(answer.blocks))


def _read(
    session: SparkSession, plan: Plan, requests: Sequence[RangeRequest], tasks: int, *, keep: bool
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
        found += _read_or_halve(session, plan, transform, some, tasks, keep)
    return found


def _read_or_halve(
    session: SparkSession,
    plan: Plan,
    transform: RecordTransform,
    requests: Sequence[RangeRequest],
    tasks: int,
    keep: bool,
) -> list[_RangeAnswer]:
    from pyspark.errors import PySparkException

    try:
        return _run(session, plan, transform, requests, tasks, keep)
    except PySparkException as error:
        if find_record_condition(error) is None:
            raise
    if len(requests) > 1:
        middle = len(requests) // 2
        first = _read_or_halve(session, plan, transform, requests[:middle], tasks, keep)
        return first + _read_or_halve(session, plan, transform, requests[middle:], tasks, keep)
    [request] = requests
    if request.end - request.start <= 1:
        plain = replace(transform, where=None, changes=(), drops=())
        return _run(session, plan, plain, requests, 1, keep)
    middle = (request.start + request.end) // 2
    halves = [replace(request, end=middle), replace(request, start=middle)]
    both = [_read_or_halve(session, plan, transform, [half], tasks, keep)[0] for half in halves]
    return [_join(both[0], both[1])]


def _join(one: _RangeAnswer, two: _RangeAnswer) -> _RangeAnswer:
    if one.state != "read" or two.state != "read":
        return one if one.state != "read" else two
    return replace(one, sums=one.sums + two.sums, blocks=one.blocks + two.blocks)


def _run(
    session: SparkSession,
    plan: Plan,
    transform: RecordTransform,
    requests: Sequence[RangeRequest],
    tasks: int,
    keep: bool,
) -> list[_RangeAnswer]:
    groups: list[_Task] = [
        (plan.cluster(group[0].cluster), tuple(group)) for group in group_into_tasks(requests, tasks)
    ]
    rows = pa.Table.from_batches([pa.RecordBatch.from_pylist([{"task": pickle.dumps(group)}]) for group in groups])
    needs, order = RowNeeds.of(transform), ChangeOrder.of(transform)
    records = session.createDataFrame(rows).mapInArrow(partial(_open_ranges, needs), build_record_columns(transform))
    answers = change_records(records, transform).mapInArrow(
        partial(_fingerprint_rows, order, {each.id: each for each in requests}, keep), _ANSWER_COLUMNS
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
    columns = RecordRowBuilder(needs)
    for table in tables:
        for packed in table.column("task").to_pylist():
            cluster, requests = pickle.loads(packed)  # noqa: S301  from our own driver
            for run in split_into_streams(requests):
                for request in run:
                    yield from _open_range(columns, cluster, request)
    if len(columns):
        yield columns.take()


def _open_range(columns: RecordRowBuilder, cluster: PlanCluster, request: RangeRequest) -> Iterator[pa.RecordBatch]:
    """Its records, and behind them a row that says how reading it ended."""
    outcome = _RangeAnswer(request.id)
    place = {"part": request.id, "topic": request.topic, "partition": request.partition, "batch_bytes": 0}
    try:
        address = build_partition_address(cluster, request)
        for batch in read_record_batches(address, OffsetRange(request.start, request.end)):
            slices = locate_records([batch])
            for record in _list_records(slices, request):
                columns.add(place, record, 0, is_left_out=False)
                if len(columns) >= _BLOCK_ROWS:
                    yield columns.take()
    except OffsetsExpired as expired:
        outcome = replace(outcome, state="expired", detail=str(expired), log_start=expired.log_start)
    except (ClusterError, NotReadable, ValueError) as error:
        outcome = replace(outcome, state="failed", detail=str(error))
    columns.add(
        place, RawRecord(_OUTCOME, -1, b"\x01\x01\x00"), 0, is_left_out=True, problem=pickle.dumps(outcome).hex()
    )


def _list_records(slices: RecordSlices, request: RangeRequest) -> Iterator[RawRecord]:
    data = slices.data
    for row, offset in enumerate(slices.offset.tolist()):
        if request.start <= offset < request.end:
            # The encoded record behind its front: key, value and headers stand one behind the other.
            begin = _find_field_start(data, int(slices.key_at[row]), int(slices.key_len[row]))
            end = int(slices.headers_at[row]) + int(slices.headers_len[row])
            yield RawRecord(offset, int(slices.ts[row]), bytes(data[begin:end].tobytes()))


def _find_field_start(data: np.ndarray[Any, np.dtype[np.uint8]], at: int, length: int) -> int:
    """Where the length in front of a field stands: a zigzag varint, whose other bytes have their highest bit set."""
    size = 1
    number = max(length, 0) << 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return at - size


def _fingerprint_rows(
    order: ChangeOrder, requests: Mapping[int, RangeRequest], keep: bool, tables: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for table in tables:
        blocks = _Blocks(requests, keep)
        for row in order.list_rows(table):
            part, offset, timestamp, _codec, _bytes, headers, key, value, problem, kept, left_out, *changes = row
            if left_out:
                blocks.answers.append(pickle.loads(bytes.fromhex(problem)))  # noqa: S301  from the task before
            elif problem is None and kept is False:
                continue
            elif problem is None and kept is None:
                blocks.add(part, offset, timestamp, key, value, headers)
            else:
                if problem is None:
                    try:
                        value, headers = change_record(order, value, headers, changes)
                    except ValueError:
                        problem = "it cannot be changed"
                blocks.add(part, offset, timestamp, key, value, headers)
        found = blocks.close()
        if found:
            yield pa.RecordBatch.from_pydict({"answer": [pickle.dumps(each) for each in found]})


@dataclass(slots=True)
class _Blocks:
    """Records that are fingerprinted together, by range."""

    requests: Mapping[int, RangeRequest]
    keep: bool
    answers: list[_RangeAnswer] = field(default_factory=list)
    _rows: list[tuple[int, int, bytes | None, bytes | None, bytes]] = field(default_factory=list)
    _part: int = -1

    def add(
        self, part: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes
    ) -> None:
        if part != self._part:
            self._finish()
            self._part = part
        self._rows.append((offset, timestamp, key, value, headers))

    def close(self) -> list[_RangeAnswer]:
        """All answers, in order: the outcome of a range behind its records."""
        self._finish()
        return self.answers

    def _finish(self) -> None:
        if not self._rows:
            return
        request = self.requests[self._part]
        prints = fingerprint_slices(_lay_out(self._rows), timestamps=request.timestamps).without(request.left_out)
        self._rows = []
        blocks = (prints,) if self.keep else ()
        self.answers.append(_RangeAnswer(request.id, sums=sum_fingerprints(prints), blocks=blocks))


def _lay_out(rows: Sequence[tuple[int, int, bytes | None, bytes | None, bytes]]) -> RecordSlices:
    pieces: list[bytes] = []
    at = 0
    places: list[tuple[int, int]] = []
    for _, _, *fields in rows:
        for each in fields:
            places.append((at, -1 if each is None else len(each)))
            pieces.append(each or b"")
            at += len(each or b"")
    data = np.frombuffer(b"".join((*pieces, _SPARE)), dtype=np.uint8)
    table = np.array(places, dtype=np.int64).reshape(len(rows), 3, 2)
    return RecordSlices(
        data,
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.int64),
        *(table[:, number, side].copy() for number in range(3) for side in range(2)),
    )
