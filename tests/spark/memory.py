"""Logs in memory in place of clusters: everything above the wire is the real reader, and no broker is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import spark.reading.ranges
from clusters import batches
from spark.engine import compare_all, once, sum_up
from spark.judging.difference import Difference
from spark.judging.proof import Job, Readers
from spark.reading.answers import Answer
from spark.reading.batches import Batch, split
from spark.reading.heads import edges_of
from spark.reading.ranges import PartitionAddress
from spark.reading.spans import Span
from spark.reading.sums import UnitSum
from spark.reading.units import Unit, stretch_units
from tests.spark.logs import Log
from topology.plan import PlanCluster

CLUSTER = {alias: PlanCluster(alias, ("127.0.0.1:1",)) for alias in ("onprem", "cloud")}
Key = tuple[str, str, int]  # cluster, topic, partition


@dataclass(slots=True)
class Stored:
    """What logs hold: batches at their base offsets. starts: where a log begins, if not at 0. an_answer: batches.
    tasks: among which what is to be read is shared out."""

    logs: dict[Key, list[tuple[int, Batch]]] = field(default_factory=dict)
    starts: dict[Key, int] = field(default_factory=dict)
    an_answer: int = 2
    tasks: int = 2

    def put(self, key: Key, log: Log, offsets: Sequence[int] | None = None) -> int:
        """Keeps a log's batches at these base offsets, or one behind the other from 0; answers the log's end."""
        end, kept = 0, []
        for at, batch in enumerate(log):
            base = end if offsets is None else offsets[at]
            [found] = split(memoryview(batches.stored(batch.raw(), base, 0)))
            kept.append((base, found))
            end = found.last_offset + 1
        self.logs[key] = kept
        return end

    def answers(self, address: PartitionAddress, span: Span, *_: object, **__: object) -> Iterator[Answer]:
        """Stands in for `spark.reading.answers.answers`."""
        key = (address.settings.alias, address.topic, address.partition)
        if span.start < self.starts.get(key, 0):
            raise spark.reading.ranges.Expired(self.starts[key])
        here = [batch for base, batch in self.logs[key] if base < span.end and batch.last_offset >= span.start]
        position = span.start
        for first in range(0, len(here), self.an_answer):
            some = here[first : first + self.an_answer]
            records = memoryview(b"".join(batch.raw for batch in some))
            yield Answer(position, records, edges_of(records))
            position = some[-1].last_offset + 1

    @contextmanager
    def in_place_of_clusters(self) -> Iterator[Readers]:
        """Readers that read these logs, as Spark's tasks read those of clusters."""
        with patch.object(spark.reading.ranges, "answers", self.answers):
            yield Readers(partial(_sums, self.tasks), _differences)


def _sums(tasks: int, units: Sequence[Unit]) -> dict[int, UnitSum]:
    stretches = [(CLUSTER[some[0].cluster], tuple(some)) for some in stretch_units(units, tasks)]
    return once(units, sum_up(None, iter(stretches)))


def _differences(jobs: Sequence[Job]) -> list[Difference]:
    return list(compare_all(((CLUSTER[job.source.cluster], CLUSTER[job.target.cluster]), job) for job in jobs))
