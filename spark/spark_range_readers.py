"""Readers that let Spark do the reading: ranges and comparisons are its tasks, sums and differences come back.

A task is plain Python over a stretch of ranges; the data source (`spark.source`) reads by the same functions, but to
plan one costs a proof several seconds of Spark SQL (decision 0034). A task that is tried again, or run twice by
speculation, only reads: Spark gives each task's result once, and results are found by the number of their range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.spark.errors import SparkError
from watershed.spark.failure_text import raise_as_spark_error
from watershed.spark.fingerprint import RecordFingerprints
from watershed.spark.judging.key_state_reading import (
    BucketNumber,
    BucketRead,
    KeyStateJob,
    KeyStateResult,
    build_key_state_tasks,
    compare_bucket,
    find_job_clusters,
    merge_key_state_results,
    read_key_states,
)
from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders, RangeComparison
from watershed.spark.judging.quarantine_side import add_quarantined, set_aside_quarantined
from watershed.spark.judging.record_difference import NeighbourSearch, RecordDifference, compare_records
from watershed.spark.judging.repeated_records import EarlierSearch, compare_with_repeats
from watershed.spark.progress import DriverAddress, ProgressCallback, ProgressListener, ProgressReporter
from watershed.spark.reading.broker_connections import BrokerConnections
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.lag_pause import wait_for_lag
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_address import build_partition_address
from watershed.spark.reading.range_reader import read_all_fingerprints, read_fingerprints
from watershed.spark.reading.range_requests import RangeRequest, split_into_streams
from watershed.spark.reading.range_sums import RangeSum, sum_ranges
from watershed.spark.reading.read_limits import (
    NO_READ_LIMITS,
    LimitedTask,
    ReadLimits,
    SparkTask,
    TaskResult,
    TaskRow,
    plan_read_tasks,
)
from watershed.spark.reading.read_rate import ReadRate
from watershed.spark.reading.xxh64 import U64
from watershed.spark.resource_wait import warn_while_waiting
from watershed.spark.session import find_driver_address
from watershed.topology.plan import Plan, PlanCluster

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_TASKS_PER_CORE = 2
_SMALL = 256 << 10  # bytes of an answer, where a few records are wanted
_LARGE = 4 << 20  # bytes of an answer, where a range is read here
_STRETCH = 2_000_000  # offsets a task reads at most (a chunk is never cut): what a lost executor has to read again
_WHAT = "the Spark job of the proof failed"
_REMEDY = "Nothing was found to differ, and nothing was proven; run the proof again"

_Stretch = tuple[PlanCluster, tuple[RangeRequest, ...]]


def build_spark_readers(
    session: Callable[[], SparkSession],
    plan: Plan,
    progress: ProgressCallback | None = None,
    limits: ReadLimits = NO_READ_LIMITS,
    say: Callable[[str], None] = lambda _line: None,
) -> ProofReaders:
    """`session` is called when there is something to read: a session costs ten seconds.

    progress is called while tasks read, from another thread; `say` with what read limits made the reading wait for.
    Readers raise SparkError.
    """

    def politely(
        context: SparkContext, tasks: int, task: SparkTask[TaskRow, TaskResult]
    ) -> LimitedTask[TaskRow, TaskResult]:
        wait_for_lag(limits.pauses, limits.patience_s, say)
        return LimitedTask(limits.share_for_task(tasks, context.defaultParallelism), task)

    def sums(requests: Sequence[RangeRequest]) -> dict[int, RangeSum]:
        changed = [request for request in requests if request.transform is not None]
        found = _sum_transformed(session, plan, changed) if changed else []
        plain = [request for request in requests if request.transform is None]
        return require_each_range_once(requests, [*found, *(sum_plain(plain) if plain else ())])

    def sum_plain(requests: Sequence[RangeRequest]) -> list[RangeSum]:
        with raise_as_spark_error(_WHAT, _REMEDY):
            context = session().sparkContext
            length = sum(request.end - request.start for request in requests)
            tasks = max(_TASKS_PER_CORE * context.defaultParallelism, -(-length // _STRETCH))
            polite = plan_read_tasks(requests, tasks, limits, plan.cluster)
            some = [(plan.cluster(stretch[0].cluster), tuple(stretch)) for stretch in polite]
            rows = context.parallelize(some, max(1, len(some)))
            with _listening(context, requests, progress) as listener, warn_while_waiting(context, say):
                task = partial(run_sum_task, None if listener is None else listener.line)
                found = rows.mapPartitions(politely(context, len(some), task)).collect()
                if listener is not None:
                    listener.complete(found)
        return found

    def differences(jobs: Sequence[RangeComparison]) -> list[RecordDifference]:
        plain = [job for job in jobs if job.source.transform is None]
        compared = iter(compare_plain(plain) if plain else ())
        return [
            next(compared) if job.source.transform is None else _compare_transformed(session, plan, job) for job in jobs
        ]

    def compare_plain(jobs: Sequence[RangeComparison]) -> list[RecordDifference]:
        pairs = [((plan.cluster(job.source.cluster), plan.cluster(job.target.cluster)), job) for job in jobs]
        with raise_as_spark_error(_WHAT, _REMEDY):
            context, slices = session().sparkContext, limits.tasks(len(pairs))
            with warn_while_waiting(context, say):
                rows = context.parallelize(pairs, slices)
                return rows.mapPartitions(politely(context, slices, run_comparison_task)).collect()

    def states(jobs: Sequence[KeyStateJob]) -> list[KeyStateResult]:
        tasks = build_key_state_tasks(jobs, plan.cluster)
        sides = [find_job_clusters(job, plan.cluster) for job in jobs]
        with raise_as_spark_error(_WHAT, _REMEDY):
            context, slices = session().sparkContext, limits.tasks(len(tasks))
            read = context.parallelize(tasks, slices).mapPartitions(politely(context, slices, read_key_states))
            count = limits.tasks(sum(job.buckets for job in jobs))
            compare = politely(context, count, partial(_run_bucket_task, jobs, sides))
            with warn_while_waiting(context, say):
                found = read.groupByKey(count).mapPartitions(compare).collect()
        return merge_key_state_results(jobs, found)

    return ProofReaders(sums, differences, states)


def _sum_transformed(
    session: Callable[[], SparkSession], plan: Plan, requests: Sequence[RangeRequest]
) -> list[RangeSum]:
    from watershed.spark.transform.transformed_ranges import sum_transformed_ranges

    with raise_as_spark_error(_WHAT, _REMEDY):
        tasks = _TASKS_PER_CORE * session().sparkContext.defaultParallelism
        return sum_transformed_ranges(session(), plan, requests, tasks)


def _compare_transformed(session: Callable[[], SparkSession], plan: Plan, job: RangeComparison) -> RecordDifference:
    """What should stand at the target is worked out by Spark; the two are compared here, and they are few."""
    from watershed.spark.transform.transformed_ranges import read_transformed_range

    with raise_as_spark_error(_WHAT, _REMEDY):
        source = read_transformed_range(session(), plan, job.source)
        cluster = plan.cluster(job.target.cluster)
        address = build_partition_address(cluster, job.target)
        span = OffsetRange(job.target.start, job.target.end)
        with BrokerConnections(address.settings, ReadRate(largest=_LARGE)) as connections:
            target = read_all_fingerprints(address, span, connections).without(job.target.left_out)
        near = [read_transformed_range(session(), plan, request) for request in job.near]
        aside = set_aside_quarantined(source, target, job.kept, job.limit)
        found = compare_records(
            aside.source,
            target,
            open_end=job.open_end,
            in_place=job.source.in_place,
            limit=job.limit,
            elsewhere=lambda prints: np.isin(prints, np.concatenate([each.fp for each in near] or [prints[:0]])),
        )
        return add_quarantined(found, aside)


def _listening(
    context: SparkContext, requests: Sequence[RangeRequest], progress: ProgressCallback | None
) -> AbstractContextManager[ProgressListener | None]:
    """Where tasks tell how far they are; None where nobody asked, or the driver's address cannot be listened at."""
    if progress is None:
        return nullcontext()
    bind, host = find_driver_address(context)
    try:
        return ProgressListener(requests, progress, bind=bind, host=host)
    except OSError:  # spark.driver.host is a name for others only: the proof goes on in silence
        return nullcontext()


def _run_bucket_task(
    jobs: Sequence[KeyStateJob],
    sides: Sequence[tuple[PlanCluster, PlanCluster]],
    buckets: Iterable[tuple[BucketNumber, Iterable[BucketRead]]],
) -> Iterator[tuple[BucketNumber, KeyStateResult]]:
    """A task that compares the states of the keys of some buckets."""
    for key, reads in buckets:
        yield key, compare_bucket(jobs[key[0]], sides[key[0]], reads)


def require_each_range_once(requests: Sequence[RangeRequest], found: Iterable[RangeSum]) -> dict[int, RangeSum]:
    """What was read, by range. Raises SparkError unless every range was answered exactly once."""
    results: dict[int, RangeSum] = {}
    for each in found:
        if each.request_id in results:
            raise SparkError(f"{_WHAT}: Spark gave the result of range {each.request_id} twice. {_REMEDY}")
        results[each.request_id] = each
    if results.keys() != {request.id for request in requests}:
        raise SparkError(f"{_WHAT}: Spark gave {len(results)} results for {len(requests)} ranges. {_REMEDY}")
    return results


def run_sum_task(line: DriverAddress | None, stretches: Iterable[_Stretch]) -> Iterator[RangeSum]:
    """A task of the proof. Runs on executors, as often as Spark likes: it only reads."""
    with ProgressReporter(line) as teller:
        for cluster, requests in stretches:
            for run in split_into_streams(requests):
                for read in sum_ranges(cluster, run):
                    teller.tell(read)
                    yield read


def run_comparison_task(
    pairs: Iterable[tuple[tuple[PlanCluster, PlanCluster], RangeComparison]],
) -> Iterator[RecordDifference]:
    """A task that compares two ranges record by record."""
    for clusters, job in pairs:
        source, target = (
            read_all_fingerprints(
                build_partition_address(cluster, request), OffsetRange(request.start, request.end)
            ).without(request.left_out)
            for cluster, request in zip(clusters, (job.source, job.target), strict=True)
        )
        near = _build_neighbour_search(
            build_partition_address(clusters[0], job.source),
            [OffsetRange(request.start, request.end) for request in job.near],
        )
        if job.has_repeats:
            expired: list[int] = []
            earlier = _build_earlier_search(
                build_partition_address(clusters[0], job.source),
                [OffsetRange(request.start, request.end) for request in job.near if request.end <= job.source.start],
                expired,
            )
            yield compare_with_repeats(
                source,
                target,
                open_end=job.open_end,
                limit=job.limit,
                elsewhere=near,
                earlier=earlier,
                known=job.repeated,
                is_gone=partial(_is_origin_gone, job.repeated, expired),
            )
            continue
        in_place = job.source.in_place
        aside = set_aside_quarantined(source, target, job.kept, job.limit)
        found = compare_records(
            aside.source, target, open_end=job.open_end, in_place=in_place, limit=job.limit, elsewhere=near
        )
        yield add_quarantined(found, aside)


def _build_neighbour_search(address: PartitionAddress, spans: Sequence[OffsetRange]) -> NeighbourSearch:
    """Which fingerprints the source holds in these ranges: read when it is asked, block by block, until all are found.
    Expired offsets hold none."""

    def search(prints: U64) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(prints), dtype=np.bool_)
        for span in spans:
            start = span.start
            while start < span.end and not found.all():
                try:
                    for block in read_fingerprints(address, OffsetRange(start, span.end)):
                        found |= np.isin(prints, block.fp)
                        if found.all():
                            break
                    start = span.end
                except OffsetsExpired as expired:
                    start = expired.log_start
        return found

    return search


def _is_origin_gone(known: Sequence[ExplicitRun], expired: Sequence[int], target_offset: int) -> bool:
    """Whether this is a repeat, as the ledger says, of a record in front of a source's log start. expired: those log
    starts that reading met."""
    return any(
        run.target <= target_offset < run.target + run.records
        and run.source + target_offset - run.target < max(expired, default=0)
        for run in known
    )


def _build_earlier_search(
    address: PartitionAddress, spans: Sequence[OffsetRange], expired_at: list[int]
) -> EarlierSearch:
    """Where the source holds records in these ranges: read when it is asked. Expired offsets hold none; the log starts
    that were met are added to `expired_at`."""

    def search(prints: U64) -> dict[int, list[int]]:
        found: dict[int, set[int]] = {}
        for span in spans:
            start = span.start
            while start < span.end:
                try:
                    for block in read_fingerprints(address, OffsetRange(start, span.end)):
                        for index in np.flatnonzero(np.isin(block.fp, prints)).tolist():
                            found.setdefault(int(block.fp[index]), set()).add(int(block.offset[index]))
                    start = span.end
                except OffsetsExpired as expired:
                    start = expired.log_start
                    expired_at.append(expired.log_start)
        return {fingerprint: sorted(offsets) for fingerprint, offsets in found.items()}

    return search


def count_range_records(plan: Plan, request: RangeRequest) -> int:
    """How many records a small range still holds, read here and now. Raises NotReadable, ClusterError."""
    start = request.start
    while start < request.end:
        try:
            return len(
                read_all_fingerprints(
                    build_partition_address(plan.cluster(request.cluster), request), OffsetRange(start, request.end)
                )
            )
        except OffsetsExpired as expired:
            start = expired.log_start
    return 0


@contextmanager
def open_small_range_reader(
    plan: Plan, partitions: Sequence[ProofPartition], session: Callable[[], SparkSession]
) -> Iterator[Callable[[int, str, int, OffsetRange], RecordFingerprints]]:
    """Reads small ranges of a side (0 is the source) of these partitions of one flow, here and now, in small answers;
    by `session` where records are changed on their way.

    What it gives raises OffsetsExpired, NotReadable, ClusterError.
    """
    by_place = {(partition.window.place.topic, partition.window.place.partition): partition for partition in partitions}
    with ExitStack() as stack:
        connections: dict[str, BrokerConnections] = {}

        def read(side: int, topic: str, partition: int, span: OffsetRange) -> RecordFingerprints:
            request = by_place[topic, partition].build_request(side, span, 0)
            if request.transform is not None:
                from watershed.spark.transform.transformed_ranges import read_transformed_range

                return read_transformed_range(session(), plan, request)
            address = build_partition_address(plan.cluster(request.cluster), request)
            if request.cluster not in connections:
                connections[request.cluster] = stack.enter_context(
                    BrokerConnections(address.settings, ReadRate(largest=_SMALL))
                )
            return read_all_fingerprints(address, span, connections[request.cluster])

        yield read
