"""`spark.read.format("kafka-batches")`: a Python data source that reads Kafka ranges and answers with chunk sums.

Records are hashed where they are read and only sums travel: handing rows to the JVM would cost ten times as much
(research/verification §2). Options: `plan` and `units`, paths of two JSON files (the compiled plan and the ranges);
no secret is in either, they are resolved where the reading happens.

Spark plans a Python data source in three processes of their own, so this module imports little; the reading itself
is `spark.sums`. A range that cannot be read is a row too (`state` expired or failed), so that the report can name it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

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


@dataclass
class Stretch(InputPartition):
    """Units of one cluster: one task. Those that follow one another in a partition are read as one stream."""

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
        stretches = [[_unit(u) for u in units] for units in json.loads(Path(self.units).read_text(encoding="utf-8"))]
        return [Stretch(plan.cluster(units[0].cluster), tuple(units)) for units in stretches]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from spark.sums import as_row, read_units

        assert isinstance(partition, Stretch)
        for run in runs_of(partition.units):
            for result in read_units(partition.cluster, run):
                yield as_row(result)


def stretch_units(units: Sequence[Unit], tasks: int) -> list[list[Unit]]:
    """Units in log order, grouped into about `tasks` stretches of like length, each of one cluster."""
    share = max(1, sum(unit.end - unit.start for unit in units) // max(1, tasks))
    stretches: list[list[Unit]] = []
    length = 0
    for unit in sorted(units, key=lambda unit: (*_log(unit), unit.start, unit.end)):
        if not stretches or stretches[-1][-1].cluster != unit.cluster or length >= share:
            stretches.append([])
            length = 0
        stretches[-1].append(unit)
        length += unit.end - unit.start
    return sorted(stretches, key=lambda units: -sum(unit.end - unit.start for unit in units))


def runs_of(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Units that follow one another in one log, so that they can be read as one stream."""
    run: list[Unit] = []
    for unit in units:
        if run and (_log(run[-1]) != _log(unit) or run[-1].end != unit.start):
            yield run
            run = []
        run.append(unit)
    if run:
        yield run


def _unit(fields: dict[str, Any]) -> Unit:
    return Unit(**fields | {"skip": tuple(fields["skip"])})  # JSON knows no tuples


def _log(unit: Unit) -> tuple[str, str, int, bool, tuple[int, ...]]:
    """What units must share to be read as one stream."""
    return unit.cluster, unit.topic_id, unit.partition, unit.timestamps, unit.skip
