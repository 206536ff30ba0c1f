"""Reading the states of compacted partitions: each task reads a range and gives the last record of every key in it,
shared out by the keys' hashes; each bucket is then compared by itself. Never a record travels, and never all keys meet.

A key that differs is looked for behind the window *after* the window was read: what the cleaner took away meanwhile, it
took because of a later record, which is there by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.fingerprint import RecordFingerprints
from watershed.spark.judging.key_state import (
    KeyState,
    KeyStateDifference,
    RewrittenKeys,
    add_key_differences,
    compare_key_states,
    find_last_by_key,
    join_key_states,
    split_by_key_hash,
)
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_address import build_partition_address
from watershed.spark.reading.range_reader import read_fingerprints
from watershed.spark.reading.range_requests import QuarantinedOffset, RangeRequest
from watershed.spark.reading.xxh64 import U64
from watershed.topology.plan import PlanCluster

_BUCKET = 1_000_000  # records whose keys are compared at once


class KeyStateJob(NamedTuple):
    """A compacted partition: the ranges to read on both sides. records: about how many they hold, which gives the
    number of buckets. low, limit, kept: as in `compare_key_states`."""

    source: tuple[RangeRequest, ...]
    target: tuple[RangeRequest, ...]
    records: int
    low: tuple[int, int] = (-1, -1)
    limit: int = 0
    kept: tuple[QuarantinedOffset, ...] = ()

    @property
    def buckets(self) -> int:
        """Into how many parts the keys are split, so that one fits into memory."""
        return max(1, -(-self.records // _BUCKET))


class KeyStateResult(NamedTuple):
    """expired: where the logs of source and target began when a range turned out not to be there any more, else -1."""

    compared: KeyStateDifference
    expired: tuple[int, int] = (-1, -1)


_Side = tuple[PlanCluster, RangeRequest]
BucketNumber = tuple[int, int]  # number of the job, of the bucket
BucketRead = tuple[int, KeyState, int]  # side, its keys, where its log begins if something expired, else -1


def build_key_state_tasks(
    jobs: Sequence[KeyStateJob], cluster: Callable[[str], PlanCluster]
) -> list[tuple[int, int, int, _Side]]:
    """One task for each range: (job, its buckets, side, cluster and range)."""
    return [
        (number, job.buckets, side, (cluster(request.cluster), request))
        for number, job in enumerate(jobs)
        for side, requests in enumerate((job.source, job.target))
        for request in requests
    ]


def read_key_states(tasks: Iterable[tuple[int, int, int, _Side]]) -> Iterator[tuple[BucketNumber, BucketRead]]:
    """The last record of every key of each range, by bucket. Raises NotReadable, ClusterError."""
    for job, buckets, side, (cluster, request) in tasks:
        keys, expired = _keys_in(build_partition_address(cluster, request), request)
        for bucket, part in enumerate(split_by_key_hash(keys, buckets)):
            yield (job, bucket), (side, part, expired)


def compare_bucket(
    job: KeyStateJob, sides: tuple[PlanCluster, PlanCluster], reads: Iterable[BucketRead]
) -> KeyStateResult:
    """Compares the keys of one bucket on both sides. Raises NotReadable, ClusterError."""
    parts: tuple[list[KeyState], list[KeyState]] = ([], [])
    expired = [-1, -1]
    for side, keys, log_start in reads:
        parts[side].append(keys)
        expired[side] = max(expired[side], log_start)
    requests = job.source[-1], job.target[-1]
    rewritten = _behind([(cluster, request) for cluster, request in zip(sides, requests, strict=True)])
    in_place = job.source[0].in_place
    source, target = join_key_states(parts[0]), join_key_states(parts[1])
    kept = {each.offset: each for each in job.kept}
    found = compare_key_states(source, target, rewritten, low=job.low, in_place=in_place, kept=kept, limit=job.limit)
    return KeyStateResult(found, (expired[0], expired[1]))


def merge_key_state_results(
    jobs: Sequence[KeyStateJob], found: Iterable[tuple[BucketNumber, KeyStateResult]]
) -> list[KeyStateResult]:
    """One result for every job, in their order."""
    by_job: dict[int, list[KeyStateResult]] = {number: [] for number in range(len(jobs))}
    for (job, _), each in found:
        by_job[job].append(each)
    return [
        KeyStateResult(
            add_key_differences([each.compared for each in some], jobs[number].limit),
            (max((e.expired[0] for e in some), default=-1), max((e.expired[1] for e in some), default=-1)),
        )
        for number, some in by_job.items()
    ]


def compare_states_locally(jobs: Sequence[KeyStateJob], cluster: Callable[[str], PlanCluster]) -> list[KeyStateResult]:
    """The same in this process, without Spark."""
    buckets: dict[BucketNumber, list[BucketRead]] = {}
    for key, read in read_key_states(build_key_state_tasks(jobs, cluster)):
        buckets.setdefault(key, []).append(read)
    found = [
        (key, compare_bucket(jobs[key[0]], find_job_clusters(jobs[key[0]], cluster), some))
        for key, some in buckets.items()
    ]
    return merge_key_state_results(jobs, found)


def find_job_clusters(job: KeyStateJob, cluster: Callable[[str], PlanCluster]) -> tuple[PlanCluster, PlanCluster]:
    """Clusters of source and target of a job."""
    return cluster(job.source[0].cluster), cluster(job.target[0].cluster)


def _keys_in(address: PartitionAddress, request: RangeRequest) -> tuple[KeyState, int]:
    """(the last record of every key that is still there, where the log begins if something was not, else -1)."""
    found: list[KeyState] = []
    start, expired = request.start, -1
    while start < request.end:
        try:
            for block in read_fingerprints(address, OffsetRange(start, request.end)):
                found.append(find_last_by_key(block.without(request.left_out)))
                if len(found) == 32:
                    found = [join_key_states(found)]
            break
        except OffsetsExpired as gone:
            start = expired = max(gone.log_start, start + 1)
            found = []
    return join_key_states(found), expired


def _behind(sides: Sequence[_Side]) -> RewrittenKeys:
    """Search for keys that were written behind these ranges, on either side, as of now. After an expiry: all keys."""

    def rewritten(kh: U64) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(kh), dtype=np.bool_)
        for cluster, request in sides:
            address = build_partition_address(cluster, request)
            with Admin(address.settings) as admin:
                key = TopicPartition(request.topic, request.partition)
                end = admin.offsets([key])[key].end
            try:
                for block in _blocks(address, request.end, end):
                    found |= np.isin(kh, block.kh)
            except OffsetsExpired:
                found[:] = True
        return found

    return rewritten


def _blocks(address: PartitionAddress, start: int, end: int) -> Iterator[RecordFingerprints]:
    return read_fingerprints(address, OffsetRange(start, end)) if end > start else iter(())
