"""The Spark session that evaluates the expressions of a worker's flows (`topology worker --transforms`).

The worker is the driver. Executors are given batches and give batches back: they need no right on any cluster, and may
die at any time. What a driver that dies had begun, its successor ends from the ledger like any worker.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from watershed.spark.errors import WrongUse
from watershed.spark.session import create_spark_session, end_session, is_local_master, read_spark_master
from watershed.spark.transform.compiled_transform import compile_transform
from watershed.spark.transform.expression_rules import WrongExpression
from watershed.spark.transform.shared_memory import SharedMemory, can_share_memory
from watershed.spark.transform.spark_engine import SparkTransformEngine
from watershed.topology.plan import Plan, PlanFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("watershed.transforms")

# Java compiles in two stages. Its optimising compiler took as much of the first minute as all tasks, for code that runs
# once a job. What runs for each record has these numbers of calls and loops, a hundred times Java's own, in seconds.
_COMPILED_LATE: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions "  # those of another Java than HotSpot have other compilers
    "-XX:Tier4InvocationThreshold=500000 -XX:Tier4MinInvocationThreshold=60000 -XX:Tier4CompileThreshold=1500000 "
    "-XX:Tier4BackEdgeThreshold=4000000"
)
_NO_EARLY_COLLECTIONS: Final = "-XX:MetaspaceSize=192m"  # what the classes of Spark take
_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {_NO_EARLY_COLLECTIONS} {_COMPILED_LATE}",
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.sql.adaptive.enabled": "false",  # nothing is shuffled
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",  # a batch of records ends with it
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",  # of records that SQL reads whole
    "spark.log.level": "OFF",  # what a failed expression says names values of records
    "spark.rpc.message.maxSize": "512",  # MiB; a micro-batch travels with its tasks
}
# Elsewhere our packages come with the tasks.
_LOCAL: Final = {"spark.python.daemon.module": "watershed.spark.transform.python_daemon"}
_MUST: Final = {"spark.python.worker.reuse": "true"}  # a Python process for each task would cost more than the task


@contextmanager
def open_transform_engine(plan: Plan, target: str, *, supervised: bool) -> Iterator[SparkTransformEngine]:
    """For a worker into one cluster. supervised: the flows may come later, with a plan that is applied then.

    A flow with an expression that cannot be used is logged, and its partitions halt at their first record. Raises
    WrongUse where no flow has `transform`, WrongExpression where each has such an expression and none may come later,
    SparkError.
    """
    flows = [flow for flow in plan.flows if flow.target == target and flow.transform is not None]
    if not flows and not supervised:
        raise WrongUse(
            f"no flow of {plan.topology} into {target} has `transform`; `topology worker` without --transforms serves "
            "the others"
        )
    local = is_local_master(read_spark_master())
    conf = _SETTINGS | (_LOCAL if local else {})
    session = create_spark_session(f"watershed-transform-{plan.topology}-{target}", conf=conf, must=_MUST)
    try:
        wrong = _find_wrong_flows(session, flows)
        if len(wrong) == len(flows) and not supervised:
            raise next(iter(wrong.values()))
        for flow_id, error in wrong.items():  # its partitions say so as well, once they have records
            log.error("expression refused", extra={"flow": flow_id, "reason": str(error)})
        parallel = len(os.sched_getaffinity(0)) if local else session.sparkContext.defaultParallelism
        memory = SharedMemory() if local and can_share_memory() else None
        engine = SparkTransformEngine(session, max(parallel, 1 if local else 2), memory)
        try:
            yield engine
        finally:
            engine.close()
    finally:
        end_session(session)


def _find_wrong_flows(session: SparkSession, flows: Sequence[PlanFlow]) -> dict[str, WrongExpression]:
    """Flow id → what is wrong with it, of those whose expressions cannot be used."""
    wrong = {}
    for flow in flows:
        assert flow.transform is not None
        try:
            compile_transform(session, flow.transform)
        except WrongExpression as error:
            wrong[flow.id] = error
    return wrong
