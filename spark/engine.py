"""Readers that let Spark do the reading: sums through the data source, differences as tasks."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clusters.settings import connection_settings
from spark.difference import Difference, compare
from spark.errors import SparkError
from spark.proof import Job, Readers
from spark.read import PartitionAddress, read_all
from spark.source import KafkaBatches, Unit, stretch_units
from spark.sums import UnitSum, from_row
from spark.window import Span
from topology.plan import Plan, plan_from_json, plan_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 2


def spark_readers(session: Callable[[], SparkSession], plan: Plan, directory: Path) -> Readers:
    """`session` is called when there is something to read: a session costs ten seconds.

    `directory` takes the plan and the ranges, which the data source is pointed to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    plan_path, units_path = directory / "plan.json", directory / "units.json"
    text = plan_json(plan)

    def sums(units: Sequence[Unit]) -> dict[int, UnitSum]:
        spark = session()
        spark.dataSource.register(KafkaBatches)
        stretches = stretch_units(units, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
        plan_path.write_text(text, encoding="utf-8")
        units_path.write_text(json.dumps([[_unit_json(u) for u in s] for s in stretches]), encoding="utf-8")
        frame = spark.read.format("kafka-batches").option("plan", str(plan_path)).option("units", str(units_path))
        with _told_as_ours():
            return {row.unit: from_row(row) for row in frame.load().collect()}

    def differences(jobs: Sequence[Job]) -> list[Difference]:
        context = session().sparkContext
        with _told_as_ours():
            return context.parallelize(list(jobs), len(jobs)).mapPartitions(lambda some: _compare(text, some)).collect()

    return Readers(sums, differences)


@contextmanager
def _told_as_ours() -> Iterator[None]:
    """A job that failed is an error of the proof (exit 2); uncaught it would end as 1, which means "different"."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        ours = re.findall(r"^(?:clusters|spark|topology)\.[\w.]+: (.+)$", str(error), re.MULTILINE)
        why = ours[-1] if ours else type(error).__name__
        raise SparkError(f"the Spark job of the proof failed: {why[:300]}. Run the proof again") from error


def _compare(plan_text: str, jobs: Iterator[Job]) -> Iterator[Difference]:
    plan = plan_from_json(plan_text)
    for job in jobs:
        source, target = (
            read_all(_address(plan, unit), Span(unit.start, unit.end)) for unit in (job.source, job.target)
        )
        yield compare(source, target, open_end=job.open_end)


def _address(plan: Plan, unit: Unit) -> PartitionAddress:
    settings = connection_settings(plan.cluster(unit.cluster))
    return PartitionAddress(
        settings, unit.topic, uuid.UUID(unit.topic_id), unit.partition, unit.timestamps, frozenset(unit.skip)
    )


def records_in(plan: Plan, unit: Unit) -> int:
    """How many records a small range holds, read here and now. Raises Expired, NotReadable, ClusterError."""
    return len(read_all(_address(plan, unit), Span(unit.start, unit.end)))


def _unit_json(unit: Unit) -> dict[str, object]:
    return {name: getattr(unit, name) for name in unit.__dataclass_fields__}
