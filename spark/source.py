"""`spark.read.format("kafka-batches")`: record batches of a Kafka cluster as rows, for anybody's Spark.

::

    from spark.source import register

    register(session)
    frame = (
        session.read.format("kafka-batches")
        .option("topology", "topology.yaml").option("cluster", "onprem").option("topics", "orders")
        .load()
    )

Options, columns, costs and examples: docs/spark.md. Why a row is a batch and writing is transactional: decision 0033.
Spark makes a process for each step of planning, so this module imports little.
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

from spark.errors import WrongUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "kafka-batches"


def register(session: SparkSession) -> None:
    """Make the format known to a session, for as long as it lives; executors elsewhere get our packages (what those
    import they must have themselves, see docs/engines.md)."""
    from spark.session import is_local, ship

    if not is_local(session.sparkContext.master):
        ship(session.sparkContext)
    session.dataSource.register(KafkaBatches)


class KafkaBatches(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from spark.datasource.columns import schema_of
        from spark.datasource.options import kind_of_rows

        return schema_of(*kind_of_rows(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark.datasource.options import reading
        from spark.datasource.reading import BatchReader, PushdownReader

        asked = reading(self.options)
        if asked.limit is not None:
            raise WrongUse("maxOffsetsPerTrigger is for streams; a batch read takes all from startingOffsets on")
        return (PushdownReader if asked.pushdown else BatchReader)(asked, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark.datasource.options import reading
        from spark.datasource.streaming import StreamReader

        return StreamReader(reading(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark.datasource.options import writing
        from spark.datasource.writing import BatchWriter

        return BatchWriter(writing(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark.datasource.options import writing
        from spark.datasource.writing import StreamWriter

        return StreamWriter(writing(self.options), schema, overwrite)
