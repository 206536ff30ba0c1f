"""Batch reading: ranges are fixed on the driver, tasks read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from clusters.settings import connection_settings
from spark.datasource.columns import checked
from spark.datasource.options import Reading
from spark.datasource.ranges import EVERYTHING, Range, planned, shared_out

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Task(InputPartition):
    """What one task reads: references to a cluster and ranges, never a secret."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class BatchReader(DataSourceReader):
    def __init__(self, reading: Reading, schema: StructType) -> None:
        self.reading, self.schema = reading, schema
        self.narrowing = EVERYTHING
        checked(reading.rows, schema)

    def partitions(self) -> Sequence[InputPartition]:
        from spark.datasource.logs import Logs

        with Logs(connection_settings(self.reading.cluster)) as logs:
            ranges = planned(logs, self.reading, self.narrowing)
        tasks = shared_out(ranges, self.reading.min_partitions, self.reading.max_offsets)
        return [Task(some) for some in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from spark.datasource.rows import read_ranges

        if isinstance(partition, Task):  # where there is nothing to read, Spark makes up a partition of its own
            yield from read_ranges(self.reading, partition.ranges, self.schema)


class PushdownReader(BatchReader):
    """Leaves unread what filters rule out. Spark refuses a reader like this one unless its setting allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from spark.datasource.filters import narrowed

        self.narrowing, left = narrowed(filters, self.reading.rows)
        return left
