"""`spark.read.format("kafka-batches")`: a Python data source that reads Kafka ranges and answers with chunk sums.

Records are hashed where they are read and only sums travel: handing rows to the JVM would cost ten times as much
(research/verification §2). Options: `plan` and `units`, paths of two JSON files (the compiled plan and the ranges);
no secret is in either, they are resolved where the reading happens.

A range that cannot be read is a row too (`state` expired or failed), so that the report can name it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from clusters.errors import ClusterError
from clusters.settings import connection_settings
from spark.errors import NotReadable
from spark.fingerprint import ChunkSum, sum_prints
from spark.read import Expired, PartitionAddress, read_prints
from spark.window import Span
from topology.plan import PlanCluster, plan_from_json

SCHEMA = (
    "unit long, state string, detail string, log_start long, n long, m_lo long, m_hi long, "
    "ordered string, kh string, vh string, hh string, ts decimal(38,0), size long, ms long"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """One range to read and sum up; `id` finds its row again."""

    id: int
    cluster: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    timestamps: bool = True
    skip: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitSum:
    """What reading a unit gave. state: read, expired (`log_start` says where the log starts now) or failed."""

    unit: int
    state: str
    detail: str
    log_start: int
    sums: ChunkSum
    ms: int


@dataclass
class Stretch(InputPartition):
    """Units that follow one another in one partition of one cluster: one task, one connection."""

    cluster: PlanCluster
    units: tuple[Unit, ...]

    def __init__(self, cluster: PlanCluster, units: tuple[Unit, ...]) -> None:
        super().__init__(None)
        self.cluster, self.units = cluster, units


class KafkaBatches(DataSource):
    @classmethod
    def name(cls) -> str:
        return "kafka-batches"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> KafkaBatchesReader:
        return KafkaBatchesReader(self.options["plan"], self.options["units"])


class KafkaBatchesReader(DataSourceReader):
    def __init__(self, plan: str, units: str) -> None:
        self.plan, self.units = plan, units

    def partitions(self) -> Sequence[InputPartition]:
        plan = plan_from_json(Path(self.plan).read_text(encoding="utf-8"))
        stretches = [[Unit(**u) for u in units] for units in json.loads(Path(self.units).read_text(encoding="utf-8"))]
        return [Stretch(plan.cluster(units[0].cluster), tuple(units)) for units in stretches]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Stretch)
        for result in read_units(partition.cluster, partition.units):
            yield as_row(result)


def read_units(cluster: PlanCluster, units: Sequence[Unit]) -> Iterator[UnitSum]:
    """Sums of neighbouring units, read as one stream."""
    first, began = units[0], time.monotonic()
    waiting, sums = list(units), ChunkSum()

    def finished(state: str = "read", detail: str = "", log_start: int = -1) -> UnitSum:
        nonlocal sums, began
        now = time.monotonic()
        result = UnitSum(waiting.pop(0).id, state, detail, log_start, sums, int((now - began) * 1000))
        sums, began = ChunkSum(), now
        return result

    try:
        address = PartitionAddress(
            connection_settings(cluster),
            first.topic,
            uuid.UUID(first.topic_id),
            first.partition,
            first.timestamps,
            frozenset(first.skip),
        )
        for prints in read_prints(address, Span(first.start, units[-1].end)):
            while waiting:
                here = prints.between(waiting[0].start, waiting[0].end)
                sums += sum_prints(here)
                if not len(prints) or int(prints.offset[-1]) < waiting[0].end:
                    break
                yield finished()
    except Expired as expired:
        while waiting:
            yield finished("expired", str(expired), expired.log_start)
    except (ClusterError, NotReadable) as error:
        while waiting:
            yield finished("failed", str(error))
    while waiting:
        yield finished()


def stretch_units(units: Sequence[Unit], tasks: int) -> list[list[Unit]]:
    """Units grouped into about `tasks` stretches of like length, both clusters taking turns."""
    total = sum(unit.end - unit.start for unit in units)
    share = max(1, total // max(1, tasks))
    stretches: list[list[Unit]] = []
    length = 0
    last: Unit | None = None
    for unit in units:
        follows = last is not None and _same_log(last, unit) and last.end == unit.start
        if not follows or length >= share:
            stretches.append([])
            length = 0
        stretches[-1].append(unit)
        length += unit.end - unit.start
        last = unit
    return sorted(stretches, key=lambda units: units[0].start - units[-1].end)


def as_row(result: UnitSum) -> tuple[Any, ...]:
    from decimal import Decimal

    s = result.sums
    return (
        result.unit,
        result.state,
        result.detail,
        result.log_start,
        s.n,
        s.m_lo,
        s.m_hi,
        f"{s.order:016x}",
        f"{s.kh:016x}",
        f"{s.vh:016x}",
        f"{s.hh:016x}",
        Decimal(s.ts),
        s.size,
        result.ms,
    )


def from_row(row: Any) -> UnitSum:
    sums = ChunkSum(
        row.n,
        row.m_lo,
        row.m_hi,
        int(row.ordered, 16),
        int(row.kh, 16),
        int(row.vh, 16),
        int(row.hh, 16),
        int(row.ts),
        row.size,
    )
    return UnitSum(row.unit, row.state, row.detail, row.log_start, sums, row.ms)


def _same_log(one: Unit, two: Unit) -> bool:
    return (one.cluster, one.topic_id, one.partition) == (two.cluster, two.topic_id, two.partition)
