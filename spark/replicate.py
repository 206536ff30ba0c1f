"""The fleet as a Spark application: `python -m watershed.spark.replicate --topology PATH --target ALIAS --workers N`.

Every worker of the replicator is a Spark job of one task, which hosts it until it is told to stop. Workers share the
partitions among themselves by Kafka's group protocol, so Spark only has to keep them alive: a worker that dies makes
its task fail, and Spark starts it again, on another executor where it has to (up to _FAILURES times a task). On a
cluster every worker gets an executor of one core (decision 0034). SIGTERM or Ctrl-C to this process: workers finish
what is in flight, the session stops, exit 0. Send it to this process alone, not to its process group.

With `--epoch`, which `topology fleet supervise` gives, the application follows the fleet's record: it starts and ends
workers to the wanted number and restarts them one after the other (`replicator.worker.fleet_supervisor`). With
`--workers` it hosts that many, whatever the record says of their number.

`--state FILE` is kept up to date for whoever waits: `{"pid", "state": "starting|running|stopped|failed", "reason",
"workers": [{"id", "pid", "host", "place"}], "standing_by": 0, ...}`. Running means that all N workers are there; an
attempt that stands by takes over should the one that works end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError, SecretMissing, Unauthorised, WrongCluster
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.worker.fleet_lease import FleetLease
from watershed.replicator.worker.fleet_supervisor import FleetSupervisor
from watershed.replicator.worker.worker_processes import ProcessHost
from watershed.spark.cluster_cores import (
    BEGUN_PREFIX,
    FLEET_NAME,
    LEFT_SETTING,
    FleetCoreLimit,
    compute_fixed_size,
    compute_fleet_limit,
    describe_fixed_size,
    read_cluster_cores,
)
from watershed.spark.console import write_error_line
from watershed.spark.errors import SparkError, WrongUse
from watershed.spark.failure_text import raise_as_spark_error
from watershed.spark.fleet_connection import FleetDriver, connect_to_driver
from watershed.spark.fleet_jobs import SparkJobHost
from watershed.spark.progress import DriverAddress
from watershed.spark.resource_wait import ask_for_executors, warn_while_waiting
from watershed.spark.session import (
    create_spark_session,
    end_session,
    find_driver_address,
    is_local_master,
    merge_spark_settings,
    require_java,
)
from watershed.topology.errors import TopologyError
from watershed.topology.language.flow import MOST_WORKERS
from watershed.topology.plan import Plan, decode_plan, encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAILURES = 64  # of one task before Spark gives up
_NO_WAY = "cannot reach the driver at"
REQUIRED_SETTINGS = {
    "spark.python.worker.reuse": "false",  # a process that hosted a worker hosts nothing else
    "spark.dynamicAllocation.enabled": "false",  # tasks never end, so executors are never idle and never too few
}
# A fleet that is resized: an executor for each task that runs or waits, and none for long without one.
# A machine that is gone closes no connection. By Spark's own settings its executors are missed after two to three
# minutes (spark.network.timeout, and 60 s between two looks). The group of the workers misses them after 10 s.
_SILENCE = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "15s",
    "spark.network.timeoutInterval": "2s",
}
RESIZED_SETTINGS = {
    "spark.python.worker.reuse": "false",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
}
_ROUND_S = 0.2
_PAUSE_S = 3.0  # before a worker whose cluster did not answer is started again
_GONE_S = 10.0  # for a master to notice that a driver is gone
_GRACE_S = 20.0  # from a signal to the hard end


@dataclass(slots=True)
class FleetStateFile:
    """What `--state FILE` says; written whole each time. lacks: a reason that stands there also while it runs."""

    path: Path | None
    facts: dict[str, Any]
    lacks: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, **changes: Any) -> None:
        """Changes these facts, and replaces the file with all of them. Thread-safe."""
        with self._lock:
            self.facts |= changes
            self.facts["at_ms"] = int(time.time() * 1000)
            if self.path is None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            new.write_text(json.dumps(self.facts) + "\n", encoding="utf-8")
            new.replace(self.path)

    def report_present(self, wanted: int, present: list[dict[str, Any]], standing_by: int) -> None:
        """The workers that are there: `running` from the moment on when all are."""
        now = "running" if len(present) >= wanted or self.facts.get("state") == "running" else "starting"
        reason = {"reason": self.lacks} if now != self.facts.get("state") else {}
        self.set(state=now, workers=present, standing_by=standing_by, **reason)

    def report_failure(self, reason: str) -> None:
        """A worker ended on an error."""
        write_error_line(f"a worker ended: {reason}")
        self.set(reason=reason)

    def report_lack(self, reason: str) -> None:
        """It has fewer workers than asked for, for as long as it runs."""
        self.lacks = reason
        self.report_waiting(reason)

    def report_waiting(self, reason: str) -> None:
        """Spark has not started any task yet."""
        write_error_line(reason)
        self.set(reason=reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """Hosts the workers until they are stopped (exit code 0) or cannot go on (2)."""
    from watershed.topology import compile_path

    options = _parser().parse_args(arguments)
    state = FleetStateFile(options.state, {"pid": os.getpid(), "target": options.target, "workers": [], "reason": ""})
    try:
        state.set(state="starting")
        require_java()
        plan = compile_path(options.topology)
        _check(plan, options.target)
        workers = options.workers or _wanted(plan, options.target)
        ends = run_fleet(plan, options.topology, options.target, workers, state, options.epoch)
    except (SparkError, ClusterError, ReplicatorError, TopologyError) as error:
        state.set(state="failed", reason=str(error), workers=[])
        write_error_line(f"error: {error}")
        return 2
    failed = [reason for reason in ends if reason]
    if failed:
        state.set(state="failed", reason=failed[0], workers=[])
        write_error_line(f"error: {failed[0]}")
        return 2
    state.set(state="stopped", workers=[], standing_by=0)
    return 0


def run_fleet(
    plan: Plan, topology: Path, target: str, workers: int, state: FleetStateFile, epoch: int | None = None
) -> list[str]:
    """Host workers until they are stopped; how each ended ("" for well). Takes over SIGTERM and SIGINT.

    topology: the plan's file. With an epoch as many as the fleet's record says, from time to time; without one
    `workers`.
    """
    stopping = threading.Event()
    drivers: list[FleetDriver] = []  # the one driver, from when workers can reach it

    def stop(number: int, _frame: object) -> None:
        if stopping.is_set():
            return
        stopping.set()
        state.set(reason=f"stopped by {signal.Signals(number).name}")
        for driver in drivers:
            threading.Thread(target=driver.hang_up, daemon=True).start()
        threading.Thread(target=_give_up, args=(state,), daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    most = MOST_WORKERS if epoch is not None else workers
    master = os.environ.get("WATERSHED_SPARK_MASTER") or f"local[{most},{_FAILURES}]"
    workers = _find_size(master, workers, epoch, state, stopping)
    session = _start_session(plan, target, master, workers, epoch)
    for number in (signal.SIGTERM, signal.SIGINT):  # a SparkContext sets its own
        signal.signal(number, stop)
    try:
        with raise_as_spark_error(
            "the Spark application ended", "Start it again; what is copied stays, and is not copied again"
        ):
            context = session.sparkContext
            bind, address = find_driver_address(context)
            driver = FleetDriver(bind, address, partial(state.report_present, workers), state.report_failure)
            drivers.append(driver)
            if stopping.is_set():
                return []
            task = partial(host_worker, encode_plan(plan), target, driver.line)
            host = SparkJobHost(context, driver, task, surge=is_local_master(master), say=state.report_waiting)
            _limit_cores(host, partial(_build_near_command, topology, target), epoch)
            ask_again = None if host.limit is None else partial(ask_for_executors, context)
            with warn_while_waiting(context, partial(_report_wait, state, host), ask_again=ask_again):
                if epoch is not None:
                    _follow_record(plan, target, host, epoch, stopping)
                    return []
                ends = _host_fixed(host, workers)
            return [end for end in ends if not (stopping.is_set() and _NO_WAY in end)]  # they came too late
    except SparkError:
        if stopping.is_set():
            return []
        raise
    finally:
        for driver in drivers:
            driver.hang_up()
        end_session(session)


def _find_size(master: str, workers: int, epoch: int | None, state: FleetStateFile, stopping: threading.Event) -> int:
    """How many of these workers begin where nobody resizes the fleet; others would wait for ever. Raises WrongUse
    where none can.

    It asks for a while: a driver before us that was killed is counted until the master has noticed.
    """
    if epoch is not None:
        return workers
    left = read_cores_left(merge_spark_settings({}, {}, os.environ))
    deadline = time.monotonic() + _GONE_S
    while True:
        cores = read_cluster_cores(master)
        if cores is None:
            return workers
        size = compute_fixed_size(cores, workers, left)
        if size == workers:
            return size
        if time.monotonic() > deadline:
            break
        if stopping.wait(1.0):
            return workers
    text = describe_fixed_size(cores, workers, size, left)
    if not size:
        raise WrongUse(text)
    state.report_lack(text)
    return size


def _start_session(plan: Plan, target: str, master: str, workers: int, epoch: int | None) -> SparkSession:
    """A session that asks for no more cores than fleets may have."""
    if epoch is not None and (cores := read_cluster_cores(master)) is not None:
        left = read_cores_left(merge_spark_settings({}, {}, os.environ))
        workers = min(workers, compute_fleet_limit(cores, left=1 if left is None else left))
    return create_spark_session(
        f"{FLEET_NAME}-{plan.topology}-{target}",
        master=master,
        conf=build_fleet_settings(workers, resized=epoch is not None),
        must=REQUIRED_SETTINGS if epoch is None or is_local_master(master) else RESIZED_SETTINGS,
    )


def _limit_cores(host: SparkJobHost, near: Callable[[int, int], list[str]], epoch: int | None) -> None:
    """Of a fleet that follows its record on a standalone cluster. near: what runs a worker beside the driver."""
    master = str(host.context.master)
    if epoch is None or not master.startswith("spark://"):
        return
    left = read_cores_left(merge_spark_settings({}, {}, os.environ))
    left = 1 if left is None else left
    host.limit = FleetCoreLimit(partial(read_cluster_cores, master), str(host.context.applicationId), left)
    host.near = ProcessHost("spark", near)


def _report_wait(state: FleetStateFile, host: SparkJobHost, text: str) -> None:
    """Of jobs that wait for cores: to the state file, and to the note of the fleet's record."""
    host.spark_waits = "" if text.startswith(BEGUN_PREFIX) else text
    state.report_waiting(text)


def _host_fixed(host: SparkJobHost, workers: int) -> list[str]:
    """So many workers, until each has ended. Raises what Spark says when a job cannot go on."""
    for place in range(workers):
        host.start(place, None)
    ends: list[str] = []
    while len(ends) < workers:
        time.sleep(_ROUND_S)
        seen = host.observe().values()
        ends += [each.ended if each.failed else "" for each in seen if each.ended is not None]
    return ends


def _follow_record(plan: Plan, target: str, host: SparkJobHost, epoch: int, stopping: threading.Event) -> None:
    """As many workers as the fleet's record says, until told to stop or until another epoch has taken over."""
    holder = f"{socket.gethostname()}-{os.getpid()}"
    lease = FleetLease(resolve_connection_settings(plan.cluster(target)), plan.topology, holder, epoch=epoch)
    supervisor = FleetSupervisor(lease, lambda _engine: host, say=write_error_line)
    try:
        while not stopping.is_set() and not (lease.is_superseded and supervisor.is_empty):
            try:
                supervisor.step()
            except ClusterError as error:
                write_error_line(f"asking again: {error}")
                stopping.wait(_PAUSE_S)
    finally:
        supervisor.end_workers()
        supervisor.close()


def build_fleet_settings(workers: int, *, resized: bool = False) -> dict[str, str]:
    """What the fleet asks Spark for, unless WATERSHED_SPARK_CONF says otherwise: one core and one executor a worker.

    resized: the number of workers changes while it runs, and `workers` is the first.
    """
    found = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",  # Java only hosts; workers are Python
        "spark.executor.memoryOverhead": "1g",  # of YARN and Kubernetes: what a worker may take
        "spark.executor.cores": "1",
        "spark.task.maxFailures": str(_FAILURES),
        "spark.speculation": "false",  # a worker does not end, so there is nothing to be won by a second one
        "spark.executor.logs.rolling.strategy": "size",
        "spark.executor.logs.rolling.maxSize": str(16 << 20),
        "spark.executor.logs.rolling.maxRetainedFiles": "4",
        **_SILENCE,
    }
    if not resized:
        return found | {
            "spark.executor.instances": str(workers),  # of YARN and Kubernetes
            "spark.cores.max": str(workers),  # of a standalone cluster: leave the rest to others
        }
    return found | {
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": str(workers),
        "spark.dynamicAllocation.maxExecutors": str(MOST_WORKERS),
        "spark.dynamicAllocation.executorIdleTimeout": "30s",  # a busy driver needs longer than 10 s for its first job
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    }


def host_worker(
    plan_text: str,
    target: str,
    line: DriverAddress,
    epoch: int | None,
    place: int,
    _index: int,
    _rows: Iterator[int],
) -> Iterator[str]:
    """One task: a worker, until the driver hangs up, the fleet's record says stopped, or a later epoch is ready.

    A cluster that is in trouble is tried again; what a person has to mend ends the task with its reason.
    """
    from watershed.replicator.worker.log_format import configure_logging
    from watershed.replicator.worker.worker import run_worker

    configure_logging()
    plan = decode_plan(plan_text)
    worker_id = f"{socket.gethostname()}-{place}-{os.getpid()}"
    stop = threading.Event()
    about = {"place": place, "id": worker_id, "pid": os.getpid(), "host": socket.gethostname()}
    try:
        held = connect_to_driver(line, about, stop)
    except OSError as error:
        where = f"{line.host}:{line.port} ({error})"
        yield f"{socket.gethostname()} {_NO_WAY} {where}; see spark.driver.host in docs/engines.md"
        return
    if held is None:
        yield ""
        return

    def connect(alias: str) -> ConnectionSettings:
        return resolve_connection_settings(plan.cluster(alias))

    try:
        while not stop.is_set():
            try:
                run_worker(
                    connect(target),
                    connect,
                    topology=plan.topology,
                    worker_id=worker_id,
                    stop=stop,
                    plan_hash=plan.hash,
                    epoch=epoch,
                )
                break
            except (SecretMissing, WrongCluster, Unauthorised, ReplicatorError, TopologyError) as error:
                held.fail(str(error))
                yield str(error)
                return
            except ClusterError as error:  # it does not answer, or not yet as it should
                write_error_line(f"worker {worker_id}: {error}")
                stop.wait(_PAUSE_S)
            except Exception:  # Spark starts the task again at once; its attempts are counted
                stop.wait(_PAUSE_S)
                raise
    finally:
        held.release_place()
    yield ""


def read_cores_left(settings: Mapping[str, str]) -> int | None:
    """How many cores of a standalone cluster fleets leave to proofs; None where nobody says so. Raises WrongUse."""
    text = settings.get(LEFT_SETTING)
    if text is None:
        return None
    if not text.isdigit():
        raise WrongUse(f"{LEFT_SETTING} {text}: expected a number of cores, 0 for none")
    return int(text)


def _build_near_command(topology: Path, target: str, _place: int, epoch: int) -> list[str]:
    """What runs a worker beside the driver. It may outlive it: it ends when a later epoch is ready."""
    return [
        sys.executable,
        "-m",
        "watershed.cli.main",
        "worker",
        str(topology),
        "--target",
        target,
        "--epoch",
        str(epoch),
    ]


def _check(plan: Plan, target: str) -> None:
    """Say now what would make every worker fail. Raises WrongUse, ClusterError."""
    if not any(flow.target == target for flow in plan.flows):
        known = sorted({flow.target for flow in plan.flows})
        raise WrongUse(f"no flow of {plan.topology} goes into {target}; flows go into {', '.join(known) or 'nothing'}")
    with Admin(resolve_connection_settings(plan.cluster(target))) as admin:
        admin.check_identity()


def _wanted(plan: Plan, target: str) -> int:
    return max(flow.workers for flow in plan.flows if flow.target == target)


def _give_up(state: FleetStateFile) -> None:
    time.sleep(_GRACE_S)
    state.set(state="failed", reason=f"workers did not end within {_GRACE_S:.0f} s")
    os._exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m watershed.spark.replicate", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--target", required=True, metavar="ALIAS", help="serve all flows into this cluster")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="default: what the flows ask for")
    parser.add_argument("--epoch", type=int, metavar="N", help="of the supervisor that starts it")
    parser.add_argument("--state", type=Path, metavar="FILE", help="pid and state, for whoever waits")
    return parser


if __name__ == "__main__":
    sys.exit(main())
