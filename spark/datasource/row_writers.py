"""Batch and stream writers: tasks append in transactions that they leave open, the driver ends them (`committing`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from watershed.clusters.settings import resolve_connection_settings
from watershed.spark.datasource.options import WriteOptions
from watershed.spark.datasource.row_to_batch import require_columns
from watershed.spark.errors import WrongUse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BATCH, _QUERY, _RUN = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"


class BatchWriter(DataSourceArrowWriter):
    """Spark's writer of a batch job: each task appends in a transaction, the driver commits the winners."""

    def __init__(self, writing: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _only_append(overwrite)
        require_columns(schema.names, topic=writing.topic)
        self.writing, self.job = writing, uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Appends the rows of one task; the transaction stays open. Raises NotAppended, ClusterError."""
        from pyspark import TaskContext

        from watershed.spark.datasource.driver_transaction_commit import build_transaction_prefix
        from watershed.spark.datasource.task_transaction_append import append_in_transaction

        task = TaskContext.get()
        assert task is not None
        attempt = f"{build_transaction_prefix(self.job)}{task.partitionId()}-{task.taskAttemptId()}"
        return append_in_transaction(self.writing, attempt, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits one transaction a task and aborts those of other attempts. Raises NotAppended, ClusterError."""
        from watershed.spark.datasource.driver_transaction_commit import build_transaction_prefix, commit_job

        commit_job(resolve_connection_settings(self.writing.cluster), build_transaction_prefix(self.job), messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Aborts every transaction of the job."""
        from watershed.spark.datasource.driver_transaction_commit import (
            abort_other_transactions,
            build_transaction_prefix,
        )

        abort_other_transactions(
            resolve_connection_settings(self.writing.cluster), build_transaction_prefix(self.job), ()
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Transactional ids belong to a run of the query and are used again by its next micro-batch: a broker remembers
    each of them for a week."""

    def __init__(self, writing: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _only_append(overwrite)
        if writing.topic is None:
            raise WrongUse("a stream writes to one topic: the option topic is missing")
        require_columns(schema.names, topic=writing.topic)
        self.writing, self.topic = writing, writing.topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Appends the rows of one task; the transaction stays open. Raises WrongUse, NotAppended, ClusterError."""
        from pyspark import TaskContext

        from watershed.spark.datasource.driver_transaction_commit import build_transaction_prefix
        from watershed.spark.datasource.task_transaction_append import append_in_transaction

        task = TaskContext.get()
        assert task is not None
        query, run = task.getLocalProperty(_QUERY), task.getLocalProperty(_RUN)
        if not query or not run:
            raise WrongUse("this task does not know which streaming query it belongs to; write it as a batch instead")
        attempt = f"{build_transaction_prefix(query)}{run[:8]}-{task.partitionId()}-{task.attemptNumber()}"
        return append_in_transaction(self.writing, attempt, iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits a micro-batch once, however often Spark calls. Raises NotAppended, ClusterError."""
        from watershed.spark.datasource.driver_transaction_commit import commit_micro_batch

        commit_micro_batch(resolve_connection_settings(self.writing.cluster), self.topic, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts a micro-batch, unless its commit was decided before."""
        from watershed.spark.datasource.driver_transaction_commit import abort_micro_batch

        abort_micro_batch(resolve_connection_settings(self.writing.cluster), self.topic, messages, batchId)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        raise WrongUse("kafka-batches only appends (mode append): nothing is ever deleted on a cluster")
