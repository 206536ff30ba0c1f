"""A worker of the flows with `transform`: `python -m spark.transform.transform_worker --topology PATH --target ALIAS`.

It is the replicator's worker, in the driver of a Spark application that evaluates the expressions: executors are given
batches and give batches back. So they need no right on any cluster, and may die at any time; what a driver that dies
had begun, its successor ends from the ledger like any worker. Several share the partitions. SIGTERM or Ctrl-C: what is
in flight is finished, exit 0.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clusters.errors import ClusterError
from clusters.settings import ConnectionSettings, resolve_connection_settings
from replicator.errors import ReplicatorError
from replicator.worker.log_format import configure_logging
from replicator.worker.worker import run_worker
from spark.console import write_error_line
from spark.errors import SparkError, WrongUse
from spark.session import create_spark_session, end_session, is_local_master, read_spark_master
from spark.transform.compiled_transform import compile_transform
from spark.transform.spark_engine import SparkTransformEngine
from topology.errors import TopologyError
from topology.plan import Plan

_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # it works all the time, so that compiling it well pays
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.sql.adaptive.enabled": "false",  # nothing is shuffled
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    "spark.rpc.message.maxSize": "512",  # MiB; a micro-batch travels with its tasks
    "spark.scheduler.mode": "FAIR",
}
_MUST: Final = {"spark.python.worker.reuse": "true"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves the flows until it is stopped (exit code 0) or cannot begin (2)."""
    from topology import compile_path

    parser = argparse.ArgumentParser(prog="python -m spark.transform.transform_worker", description=__doc__)
    parser.add_argument("--topology", type=Path, required=True, help="the topology file, or a plan")
    parser.add_argument("--target", required=True, help="alias of the cluster that the flows go into")
    parser.add_argument("--epoch", type=int, help="of the supervisor that starts it")
    options = parser.parse_args(arguments)
    configure_logging()
    try:
        plan = compile_path(options.topology)
        serve_transforms(plan, options.target, options.epoch)
    except (SparkError, ClusterError, ReplicatorError, TopologyError) as error:
        write_error_line(f"error: {error}")
        return 2
    return 0


def serve_transforms(plan: Plan, target: str, epoch: int | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Raises WrongUse where no flow has `transform`, WrongExpression, SparkError,
    ClusterError."""
    flows = [flow for flow in plan.flows if flow.target == target and flow.transform is not None]
    if not flows:
        raise WrongUse(f"no flow of {plan.topology} into {target} has `transform`; `topology worker` serves the others")
    stop = threading.Event()
    session = create_spark_session(f"watershed-transform-{plan.topology}-{target}", conf=_SETTINGS, must=_MUST)
    for number in (signal.SIGTERM, signal.SIGINT):  # a SparkContext sets its own
        signal.signal(number, lambda *_: stop.set())
    try:
        for flow in flows:
            assert flow.transform is not None
            compile_transform(session, flow.transform)

        def connect(alias: str) -> ConnectionSettings:
            return resolve_connection_settings(plan.cluster(alias))

        run_worker(
            connect(target),
            connect,
            topology=plan.topology,
            worker_id=f"{socket.gethostname()}-{os.getpid()}",
            stop=stop,
            plan_hash=plan.hash,
            epoch=epoch,
            engine=SparkTransformEngine(session, _count_tasks()),
        )
    finally:
        end_session(session)


def _count_tasks() -> int:
    """How many tasks a micro-batch is cut into: on this machine one a core, on a cluster as its settings say."""
    if is_local_master(read_spark_master()):
        return max(len(os.sched_getaffinity(0)), 1)
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return max(context.defaultParallelism if context is not None else 2, 2)


if __name__ == "__main__":
    sys.exit(main())
