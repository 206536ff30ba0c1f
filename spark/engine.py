"""Readers that let Spark do the reading: ranges and comparisons are its tasks, sums and differences come back.

A task is plain Python over a stretch of units; the data source (`spark.source`) reads by the same functions, but to
plan one costs a proof several seconds of Spark SQL (decision 0034). A task that is tried again, or run twice by
speculation, only reads: Spark gives each task's result once, and results are found by the number of their unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from spark.cores import told_while_waiting
from spark.errors import SparkError
from spark.failure import told_as_ours
from spark.fingerprint import Prints
from spark.judging.difference import Difference, compare
from spark.judging.kept import set_aside, with_kept
from spark.judging.keys import (
    Bucket,
    Read,
    StateFound,
    StateJob,
    compare_bucket,
    put_together,
    read_keys,
    sides_of,
    tasks_of,
)
from spark.judging.near import held_in
from spark.judging.proof import Job, Readers, Subject
from spark.progress import Changed, Line, Listener, Teller
from spark.reading.addresses import address_of
from spark.reading.lag import hold_before
from spark.reading.links import Links
from spark.reading.manners import ANY_WAY, Manners, Politely, Result, Row, Task, stretches
from spark.reading.pace import Pace
from spark.reading.ranges import Expired, read_all
from spark.reading.spans import Span
from spark.reading.sums import UnitSum, read_units
from spark.reading.units import Unit, runs_of
from spark.session import driver_host
from topology.plan import Plan, PlanCluster

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_TASKS_PER_CORE = 2
_SMALL = 256 << 10  # bytes of an answer, where a few records are wanted
_STRETCH = 2_000_000  # offsets a task reads at most (a chunk is never cut): what a lost executor has to read again
_WHAT = "the Spark job of the proof failed"
_REMEDY = "Nothing was found to differ, and nothing was proven; run the proof again"

_Stretch = tuple[PlanCluster, tuple[Unit, ...]]


def spark_readers(
    session: Callable[[], SparkSession],
    plan: Plan,
    progress: Changed | None = None,
    manners: Manners = ANY_WAY,
    say: Callable[[str], None] = lambda _line: None,
) -> Readers:
    """`session` is called when there is something to read: a session costs ten seconds.

    progress is called while tasks read, from another thread; `say` with what manners made the reading wait for.
    Readers raise SparkError.
    """

    def politely(context: SparkContext, tasks: int, task: Task[Row, Result]) -> Politely[Row, Result]:
        hold_before(manners.pauses, manners.patience_s, say)
        return Politely(manners.of_task(tasks, context.defaultParallelism), task)

    def sums(units: Sequence[Unit]) -> dict[int, UnitSum]:
        with told_as_ours(_WHAT, _REMEDY):
            context = session().sparkContext
            length = sum(unit.end - unit.start for unit in units)
            tasks = max(_TASKS_PER_CORE * context.defaultParallelism, -(-length // _STRETCH))
            polite = stretches(units, tasks, manners, plan.cluster)
            some = [(plan.cluster(stretch[0].cluster), tuple(stretch)) for stretch in polite]
            rows = context.parallelize(some, max(1, len(some)))
            with _listening(context, units, progress) as listener, told_while_waiting(context, say):
                task = partial(sum_up, None if listener is None else listener.line)
                found = rows.mapPartitions(politely(context, len(some), task)).collect()
                if listener is not None:
                    listener.complete(found)
        return once(units, found)

    def differences(jobs: Sequence[Job]) -> list[Difference]:
        pairs = [((plan.cluster(job.source.cluster), plan.cluster(job.target.cluster)), job) for job in jobs]
        with told_as_ours(_WHAT, _REMEDY):
            context, slices = session().sparkContext, manners.tasks(len(pairs))
            return context.parallelize(pairs, slices).mapPartitions(politely(context, slices, compare_all)).collect()

    def states(jobs: Sequence[StateJob]) -> list[StateFound]:
        tasks = tasks_of(jobs, plan.cluster)
        sides = [sides_of(job, plan.cluster) for job in jobs]
        with told_as_ours(_WHAT, _REMEDY):
            context, slices = session().sparkContext, manners.tasks(len(tasks))
            read = context.parallelize(tasks, slices).mapPartitions(politely(context, slices, read_keys))
            count = manners.tasks(sum(job.buckets for job in jobs))
            compare = politely(context, count, partial(_compared_buckets, jobs, sides))
            found = read.groupByKey(count).mapPartitions(compare).collect()
        return put_together(jobs, found)

    return Readers(sums, differences, states)


def _listening(
    context: SparkContext, units: Sequence[Unit], progress: Changed | None
) -> AbstractContextManager[Listener | None]:
    """Where tasks tell how far they are; None where nobody asked, or the driver's address cannot be listened at."""
    if progress is None:
        return nullcontext()
    bind, host = driver_host(context)
    try:
        return Listener(units, progress, bind=bind, host=host)
    except OSError:  # spark.driver.host is a name for others only: the proof goes on in silence
        return nullcontext()


def _compared_buckets(
    jobs: Sequence[StateJob],
    sides: Sequence[tuple[PlanCluster, PlanCluster]],
    buckets: Iterable[tuple[Bucket, Iterable[Read]]],
) -> Iterator[tuple[Bucket, StateFound]]:
    """A task that compares the states of the keys of some buckets."""
    for key, reads in buckets:
        yield key, compare_bucket(jobs[key[0]], sides[key[0]], reads)


def once(units: Sequence[Unit], found: Iterable[UnitSum]) -> dict[int, UnitSum]:
    """What was read, by unit. Raises SparkError unless every unit was answered exactly once."""
    results: dict[int, UnitSum] = {}
    for each in found:
        if each.unit in results:
            raise SparkError(f"{_WHAT}: Spark gave the result of range {each.unit} twice. {_REMEDY}")
        results[each.unit] = each
    if results.keys() != {unit.id for unit in units}:
        raise SparkError(f"{_WHAT}: Spark gave {len(results)} results for {len(units)} ranges. {_REMEDY}")
    return results


def sum_up(line: Line | None, stretches: Iterator[_Stretch]) -> Iterator[UnitSum]:
    """A task of the proof. Runs on executors, as often as Spark likes: it only reads."""
    with Teller(line) as teller:
        for cluster, units in stretches:
            for run in runs_of(units):
                for read in read_units(cluster, run):
                    teller.tell(read)
                    yield read


def compare_all(pairs: Iterator[tuple[tuple[PlanCluster, PlanCluster], Job]]) -> Iterator[Difference]:
    """A task that compares two ranges record by record."""
    for clusters, job in pairs:
        source, target = (
            read_all(address_of(cluster, unit), Span(unit.start, unit.end)).without(unit.left_out)
            for cluster, unit in zip(clusters, (job.source, job.target), strict=True)
        )
        near = held_in(address_of(clusters[0], job.source), [Span(unit.start, unit.end) for unit in job.near])
        in_place = job.source.in_place
        aside = set_aside(source, target, job.kept, job.limit)
        found = compare(aside.source, target, open_end=job.open_end, in_place=in_place, limit=job.limit, elsewhere=near)
        yield with_kept(found, aside)


def records_in(plan: Plan, unit: Unit) -> int:
    """How many records a small range still holds, read here and now. Raises NotReadable, ClusterError."""
    start = unit.start
    while start < unit.end:
        try:
            return len(read_all(address_of(plan.cluster(unit.cluster), unit), Span(start, unit.end)))
        except Expired as expired:
            start = expired.log_start
    return 0


@contextmanager
def reader_of(plan: Plan, subjects: Sequence[Subject]) -> Iterator[Callable[[int, str, int, Span], Prints]]:
    """Reads small ranges of a side (0 is the source) of these partitions of one flow, here and now, in small answers.

    What it gives raises Expired, NotReadable, ClusterError.
    """
    by_place = {(subject.window.place.topic, subject.window.place.partition): subject for subject in subjects}
    with ExitStack() as stack:
        links: dict[str, Links] = {}

        def read(side: int, topic: str, partition: int, span: Span) -> Prints:
            unit = by_place[topic, partition].unit(side, span, 0)
            address = address_of(plan.cluster(unit.cluster), unit)
            if unit.cluster not in links:
                links[unit.cluster] = stack.enter_context(Links(address.settings, Pace(largest=_SMALL)))
            return read_all(address, span, links[unit.cluster])

        yield read
