"""Reading the states of compacted partitions: each task reads a range and gives the last record of every key in it,
shared out by the keys' hashes; each bucket is then compared by itself. Never a record travels, and never all keys meet.

A key that differs is looked for behind the window *after* the window was read: what the cleaner took away meanwhile, it
took because of a later record, which is there by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from clusters.admin import Admin
from clusters.names import TopicPartition
from spark.fingerprint import Prints
from spark.judging.state import Compared, Keyed, Rewritten, added, compare_states, joined, last_by_key, shared_out
from spark.reading.addresses import address_of
from spark.reading.ranges import Expired, PartitionAddress, read_prints
from spark.reading.spans import Span
from spark.reading.units import Kept, Unit
from topology.plan import PlanCluster

_BUCKET = 1_000_000  # records whose keys are compared at once


class StateJob(NamedTuple):
    """A partition: the ranges to read on both sides. low: as in `state.compare_states`. records: about so many are in
    the ranges, for the number of buckets."""

    source: tuple[Unit, ...]
    target: tuple[Unit, ...]
    records: int
    low: tuple[int, int] = (-1, -1)
    limit: int = 0
    kept: tuple[Kept, ...] = ()

    @property
    def buckets(self) -> int:
        return max(1, -(-self.records // _BUCKET))


class StateFound(NamedTuple):
    """expired: where the logs of source and target began when a range turned out not to be there any more, else -1."""

    compared: Compared
    expired: tuple[int, int] = (-1, -1)


_Side = tuple[PlanCluster, Unit]
Bucket = tuple[int, int]  # number of the job, of the bucket
Read = tuple[int, Keyed, int]  # side, its keys, where its log begins if something expired, else -1


def tasks_of(jobs: Sequence[StateJob], cluster: Callable[[str], PlanCluster]) -> list[tuple[int, int, int, _Side]]:
    """(job, its buckets, side, what to read)."""
    return [
        (number, job.buckets, side, (cluster(unit.cluster), unit))
        for number, job in enumerate(jobs)
        for side, units in enumerate((job.source, job.target))
        for unit in units
    ]


def read_keys(tasks: Iterable[tuple[int, int, int, _Side]]) -> Iterator[tuple[Bucket, Read]]:
    """Raises NotReadable, ClusterError."""
    for job, buckets, side, (cluster, unit) in tasks:
        keys, expired = _keys_in(address_of(cluster, unit), unit)
        for bucket, part in enumerate(shared_out(keys, buckets)):
            yield (job, bucket), (side, part, expired)


def compare_bucket(job: StateJob, sides: tuple[PlanCluster, PlanCluster], reads: Iterable[Read]) -> StateFound:
    """Raises NotReadable, ClusterError."""
    parts: tuple[list[Keyed], list[Keyed]] = ([], [])
    expired = [-1, -1]
    for side, keys, log_start in reads:
        parts[side].append(keys)
        expired[side] = max(expired[side], log_start)
    units = job.source[-1], job.target[-1]
    rewritten = _behind([(cluster, unit) for cluster, unit in zip(sides, units, strict=True)])
    in_place = job.source[0].in_place
    source, target = joined(parts[0]), joined(parts[1])
    kept = {each.offset: each for each in job.kept}
    found = compare_states(source, target, rewritten, low=job.low, in_place=in_place, kept=kept, limit=job.limit)
    return StateFound(found, (expired[0], expired[1]))


def put_together(jobs: Sequence[StateJob], found: Iterable[tuple[Bucket, StateFound]]) -> list[StateFound]:
    """One answer for every job."""
    by_job: dict[int, list[StateFound]] = {number: [] for number in range(len(jobs))}
    for (job, _), each in found:
        by_job[job].append(each)
    return [
        StateFound(
            added([each.compared for each in some], jobs[number].limit),
            (max((e.expired[0] for e in some), default=-1), max((e.expired[1] for e in some), default=-1)),
        )
        for number, some in by_job.items()
    ]


def states_here(jobs: Sequence[StateJob], cluster: Callable[[str], PlanCluster]) -> list[StateFound]:
    """All of it in this process: what Spark does with tasks."""
    buckets: dict[Bucket, list[Read]] = {}
    for key, read in read_keys(tasks_of(jobs, cluster)):
        buckets.setdefault(key, []).append(read)
    found = [
        (key, compare_bucket(jobs[key[0]], sides_of(jobs[key[0]], cluster), some)) for key, some in buckets.items()
    ]
    return put_together(jobs, found)


def sides_of(job: StateJob, cluster: Callable[[str], PlanCluster]) -> tuple[PlanCluster, PlanCluster]:
    return cluster(job.source[0].cluster), cluster(job.target[0].cluster)


def _keys_in(address: PartitionAddress, unit: Unit) -> tuple[Keyed, int]:
    """(the last record of every key that is still there, where the log begins if something was not, else -1)."""
    found: list[Keyed] = []
    start, expired = unit.start, -1
    while start < unit.end:
        try:
            for block in read_prints(address, Span(start, unit.end)):
                found.append(last_by_key(block.without(unit.left_out)))
                if len(found) == 32:
                    found = [joined(found)]
            break
        except Expired as gone:
            start = expired = max(gone.log_start, start + 1)
            found = []
    return joined(found), expired


def _behind(sides: Sequence[_Side]) -> Rewritten:
    """Which keys were written behind these ranges, on either side, as of now. Where what stood there expired, all."""

    def rewritten(kh: np.ndarray) -> np.ndarray:
        found = np.zeros(len(kh), dtype=np.bool_)
        for cluster, unit in sides:
            address = address_of(cluster, unit)
            with Admin(address.settings) as admin:
                key = TopicPartition(unit.topic, unit.partition)
                end = admin.offsets([key])[key].end
            try:
                for block in _blocks(address, unit.end, end):
                    found |= np.isin(kh, block.kh)
            except Expired:
                found[:] = True
        return found

    return rewritten


def _blocks(address: PartitionAddress, start: int, end: int) -> Iterator[Prints]:
    return read_prints(address, Span(start, end)) if end > start else iter(())
