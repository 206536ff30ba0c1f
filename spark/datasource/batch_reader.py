"""Batch reading: ranges are fixed on the driver, tasks read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from watershed.clusters.settings import resolve_connection_settings
from watershed.spark.datasource.columns import require_known_columns
from watershed.spark.datasource.log_slices import NO_FILTER_BOUNDS, LogSlice, plan_log_slices, plan_task_slices
from watershed.spark.datasource.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class ReadTask(InputPartition):
    """What one task reads: references to a cluster and ranges, never a secret."""

    def __init__(self, ranges: Sequence[LogSlice]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class BatchReader(DataSourceReader):
    """Spark's reader of a batch query: slices of logs become tasks."""

    def __init__(self, reading: ReadOptions, schema: StructType) -> None:
        self.reading, self.schema = reading, schema
        self.narrowing = NO_FILTER_BOUNDS
        require_known_columns(reading.rows, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each part of the logs, with offsets fixed now. Raises WrongUse, ClusterError."""
        from watershed.spark.datasource.log_offsets import LogOffsetReader

        with LogOffsetReader(resolve_connection_settings(self.reading.cluster)) as logs:
            ranges = plan_log_slices(logs, self.reading, self.narrowing)
        tasks = plan_task_slices(ranges, self.reading.min_partitions, self.reading.max_offsets)
        return [ReadTask(some) for some in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one task, on an executor. Raises NotReadable, ClusterError."""
        from watershed.spark.datasource.arrow_rows import read_row_batches

        if isinstance(partition, ReadTask):  # where there is nothing to read, Spark makes up a partition of its own
            yield from read_row_batches(self.reading, partition.ranges, self.schema)


class PushdownReader(BatchReader):
    """Leaves unread what filters rule out. Spark refuses a reader like this one unless its setting allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes over what bounds offsets and timestamps; returns the filters that Spark still has to apply."""
        from watershed.spark.datasource.filter_pushdown import narrow_by_filters

        self.narrowing, left = narrow_by_filters(filters, self.reading.rows)
        return left
