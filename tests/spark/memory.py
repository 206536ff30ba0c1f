"""Logs in memory in place of clusters: everything above the wire is the real reader, and no broker is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import watershed.spark.reading.range_reader
from tests.spark.logs import Log
from watershed.clusters import record_batch
from watershed.spark.judging.proof_inputs import ProofReaders, RangeComparison
from watershed.spark.judging.record_difference import RecordDifference
from watershed.spark.reading.batch_decoding import BatchView, split_checked_batches
from watershed.spark.reading.batch_headers import find_batch_edges
from watershed.spark.reading.fetch_answers import FetchAnswer, OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_requests import RangeRequest, group_into_tasks
from watershed.spark.reading.range_sums import RangeSum
from watershed.spark.spark_range_readers import require_each_range_once, run_comparison_task, run_sum_task
from watershed.topology.plan import PlanCluster

CLUSTER = {alias: PlanCluster(alias, ("127.0.0.1:1",)) for alias in ("onprem", "cloud")}
Key = tuple[str, str, int]  # cluster, topic, partition


@dataclass(slots=True)
class Stored:
    """What logs hold: batches at their base offsets. starts: where a log begins, if not at 0. an_answer: batches.
    tasks: among which what is to be read is shared out."""

    logs: dict[Key, list[tuple[int, BatchView]]] = field(default_factory=dict)
    starts: dict[Key, int] = field(default_factory=dict)
    an_answer: int = 2
    tasks: int = 2

    def put(self, key: Key, log: Log, offsets: Sequence[int] | None = None) -> int:
        """Keeps a log's batches at these base offsets, or one behind the other from 0; answers the log's end."""
        end, kept = 0, []
        for at, batch in enumerate(log):
            base = end if offsets is None else offsets[at]
            [found] = split_checked_batches(memoryview(record_batch.assign_batch_offset(batch.raw(), base, 0)))
            kept.append((base, found))
            end = found.last_offset + 1
        self.logs[key] = kept
        return end

    def answers(self, address: PartitionAddress, span: OffsetRange, *_: object, **__: object) -> Iterator[FetchAnswer]:
        """Stands in for `spark.reading.fetch_answers.fetch_range`."""
        key = (address.settings.alias, address.topic, address.partition)
        if span.start < self.starts.get(key, 0):
            raise OffsetsExpired(self.starts[key])
        here = [batch for base, batch in self.logs[key] if base < span.end and batch.last_offset >= span.start]
        position = span.start
        for first in range(0, len(here), self.an_answer):
            some = here[first : first + self.an_answer]
            records = memoryview(b"".join(batch.raw for batch in some))
            yield FetchAnswer(position, records, find_batch_edges(records))
            position = some[-1].last_offset + 1

    @contextmanager
    def in_place_of_clusters(self) -> Iterator[ProofReaders]:
        """Readers that read these logs, as Spark's tasks read those of clusters."""
        with patch.object(watershed.spark.reading.range_reader, "fetch_range", self.answers):
            yield ProofReaders(partial(_sums, self.tasks), _differences)


def _sums(tasks: int, units: Sequence[RangeRequest]) -> dict[int, RangeSum]:
    stretches = [(CLUSTER[some[0].cluster], tuple(some)) for some in group_into_tasks(units, tasks)]
    return require_each_range_once(units, run_sum_task(None, iter(stretches)))


def _differences(jobs: Sequence[RangeComparison]) -> list[RecordDifference]:
    return list(run_comparison_task(((CLUSTER[job.source.cluster], CLUSTER[job.target.cluster]), job) for job in jobs))
