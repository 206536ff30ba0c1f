"""`spark.read.format("kafka-batches")`: record batches of a Kafka cluster as rows, for anybody's Spark.

::

    from watershed.spark.source import register_format

    register_format(session)
    frame = (
        session.read.format("kafka-batches")
        .option("topology", "topology.yaml").option("cluster", "onprem").option("topics", "orders")
        .load()
    )

Options, columns, costs and examples: docs/kafka-batches.md. Why a row is a batch and writing is transactional:
decision 0033. Spark makes a process for each step of planning, so this module imports little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from watershed.spark.errors import WrongUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT_NAME = "kafka-batches"


def register_format(session: SparkSession) -> None:
    """Make the format known to a session, for as long as it lives; executors elsewhere get our packages (what those
    import they must have themselves, see docs/engines.md)."""
    from watershed.spark.session import is_local_master, ship_packages

    if not is_local_master(session.sparkContext.master or ""):  # typed optional; a running context has one
        ship_packages(session.sparkContext)
    session.dataSource.register(KafkaBatches)


class KafkaBatches(DataSource):
    """The format `kafka-batches`: topics as rows of records or of whole record batches, for reading and writing."""

    @classmethod
    def name(cls) -> str:
        """The name in `spark.read.format(...)`."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Columns of the rows that the options ask for. Raises WrongUse."""
        from watershed.spark.datasource.columns import build_row_schema
        from watershed.spark.datasource.options import parse_row_options

        return build_row_schema(*parse_row_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`. Raises WrongUse."""
        from watershed.spark.datasource.batch_reader import BatchReader, PushdownReader
        from watershed.spark.datasource.options import parse_read_options

        asked = parse_read_options(self.options)
        if asked.limit is not None:
            raise WrongUse("maxOffsetsPerTrigger is for streams; a batch read takes all from startingOffsets on")
        return (PushdownReader if asked.pushdown else BatchReader)(asked, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`. Raises WrongUse."""
        from watershed.spark.datasource.options import parse_read_options
        from watershed.spark.datasource.stream_reader import StreamReader

        return StreamReader(parse_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`. Raises WrongUse."""
        from watershed.spark.datasource.options import parse_write_options
        from watershed.spark.datasource.row_writers import BatchWriter

        return BatchWriter(parse_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`. Raises WrongUse."""
        from watershed.spark.datasource.options import parse_write_options
        from watershed.spark.datasource.row_writers import StreamWriter

        return StreamWriter(parse_write_options(self.options), schema, overwrite)
