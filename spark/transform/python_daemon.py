"""The process that Spark forks its Python processes from (spark.python.daemon.module), on the driver's machine.

It imports what tasks need, so that they need not: 1.0 s of processor time for each of four processes.
"""

import gc

import pyarrow as pa
from pyspark.daemon import manager

import watershed.spark.transform.changed_rows  # noqa: F401
from watershed.replicator.worker.settled_heap import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()
    pa.array([])  # for its first array pyarrow imports pandas, if it is there
    gc.freeze()  # a collection in one process would copy the pages that all share
    manager()
