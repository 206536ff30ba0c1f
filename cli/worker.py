"""`topology worker`: the replicator as a plain process."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

_STOPPED_S = 3.0  # how often a worker of a stopped fleet asks whether it is started
_SPARK_START_S = 300.0  # it takes tens of seconds; one that takes so long hangs

if TYPE_CHECKING:
    from watershed.clusters.settings import SettingsLookup
    from watershed.replicator.transport.transform_thread import TransformEngine
    from watershed.replicator.worker.metrics_snapshot import Health
    from watershed.topology.plan import Plan


@click.command(epilog="Example: topology worker orders.yaml --target cloud --processes 2")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--target", required=True, help="Alias of the cluster whose incoming flows are served.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="One a core is best.")
@click.option(
    "--metrics", metavar="HOST:PORT", help="Answer Prometheus there, and /health/…; process n takes PORT + n."
)
@click.option("--transforms", is_flag=True, help="Serve the flows with `transform`, which needs Spark, and no others.")
@click.option("--log", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--epoch", type=int, hidden=True, help="Of the supervisor that starts it (`topology fleet supervise`).")
def worker(
    path: Path,
    target: str,
    processes: int,
    metrics: str | None,
    transforms: bool,
    form: Literal["text", "json"],
    epoch: int | None,
) -> int:
    """Serve all flows of a topology into one cluster until stopped; those with `transform` are served by workers of
    their own, with --transforms.

    SIGTERM or Ctrl-C: what is in flight is finished and the partitions are handed to other workers. Workers share
    the partitions among themselves, also with those that Spark hosts; start as many as you like, where you like.

    With --processes, one that dies is told on stderr and started again, after 1 s at first and 30 s at most; when one
    dies 5 times in a row within 30 s of its start, all are stopped and the command ends with its exit code.

    It ends with 0 when the fleet is told to be stopped (`topology fleet stop`). With `placement: external` it waits
    instead, and goes on when the fleet is started.
    """
    plan = compile_plan_at(path)
    plan.cluster(target)
    if not any(flow.target == target for flow in plan.flows):
        raise click.UsageError(f"no flow of {plan.topology} goes into {target}")
    where = None if metrics is None else parse_metrics_address(metrics)
    if not transforms and epoch is None:
        _tell_transformed_flows(plan, target)
    if transforms and processes > 1:
        raise click.UsageError("--transforms takes one process; Spark uses all cores. Start others on other machines")
    if processes > 1:
        return _parent(path, target, processes, where, form)

    from watershed.replicator.worker.settled_heap import keep_freed_memory, share_one_heap

    share_one_heap()  # what is imported below starts threads
    if transforms:  # each micro-batch takes and frees 100 MB
        keep_freed_memory()
    from watershed.replicator.worker.log_format import configure_logging
    from watershed.replicator.worker.worker import run_worker

    configure_logging(form=form)
    connect = build_settings_lookup(plan)
    _tell_missing_rights(plan, target, connect)
    stop = threading.Event()
    with _open_engine(plan, target, epoch, where) if transforms else nullcontext() as engine:
        for number in (signal.SIGTERM, signal.SIGINT):  # a SparkContext sets its own
            signal.signal(number, lambda *_: stop.set())
        if epoch is None and not _wait_until_started(plan, target, stop, where):
            return 0
        run_worker(
            connect(target),
            connect,
            topology=plan.topology,
            worker_id=f"{socket.gethostname()}-{os.getpid()}",
            stop=stop,
            metrics=where,
            plan_hash=plan.hash,
            epoch=epoch,
            engine=engine,
        )
    if epoch is None and not stop.is_set() and _is_external(plan, target):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  it waits until the fleet is started
    return 0


def _tell_transformed_flows(plan: Plan, target: str) -> None:
    """Raises click.UsageError where all flows into the cluster are for workers with --transforms."""
    into = [flow for flow in plan.flows if flow.target == target]
    changing = [flow.id for flow in into if flow.transform is not None]
    if len(changing) == len(into):
        raise click.UsageError(f"all flows into {target} have `transform`; they are served with --transforms")
    if changing:
        click.echo(f"note: not served here, but by `topology worker --transforms`: {', '.join(changing)}", err=True)


@contextmanager
def _open_engine(
    plan: Plan, target: str, epoch: int | None, metrics: tuple[str, int] | None
) -> Iterator[TransformEngine]:
    """The engine, once its Spark has started. metrics: where this process tells meanwhile that it is alive."""
    from watershed.replicator.worker.metrics_endpoint import serve_health_alone
    from watershed.spark.transform.transform_session import open_transform_engine

    with ExitStack() as opened:
        with nullcontext() if metrics is None else serve_health_alone(build_start_health(), *metrics):
            engine = opened.enter_context(open_transform_engine(plan, target, supervised=epoch is not None))
        yield engine


def build_start_health() -> Callable[[], Health]:
    """The health of a process whose Spark is starting: never ready, and alive for as long as that may take."""
    from watershed.replicator.worker.metrics_snapshot import Health

    began = time.monotonic()

    def read() -> Health:
        waited_s = time.monotonic() - began
        return Health(waited_s <= _SPARK_START_S, False, f"Spark has been starting for {waited_s:.0f} s")

    return read


def _wait_until_started(plan: Plan, target: str, stop: threading.Event, metrics: tuple[str, int] | None = None) -> bool:
    """Wait while the fleet is stopped and its workers are not ours to start again (`placement: external`). False where
    this worker is not to begin. A target that does not answer is the worker's own trouble. metrics: where it tells its
    health meanwhile."""
    with ExitStack() as endpoint:
        return _follow_stopped_fleet(plan, target, stop, metrics, endpoint)


def _follow_stopped_fleet(
    plan: Plan, target: str, stop: threading.Event, metrics: tuple[str, int] | None, endpoint: ExitStack
) -> bool:
    from watershed.clusters.errors import ClusterError
    from watershed.clusters.fleet import read_fleet
    from watershed.replicator.worker.metrics_endpoint import serve_health_alone
    from watershed.replicator.worker.metrics_snapshot import Health

    log, told = logging.getLogger("watershed.worker"), False
    waiting = Health(True, True, "the fleet is stopped; the worker waits for `topology fleet start`")
    while not stop.is_set():
        try:
            fleet = read_fleet(build_settings_lookup(plan)(target), plan.topology, target)
        except ClusterError as error:
            if not told:
                return True
            log.warning("fleet unknown", extra={"reason": str(error)})
        else:
            if fleet is None or fleet.state == "running":
                return True
            if fleet.placement != "external":
                log.info("fleet stopped", extra={"remedy": "`topology fleet start` has it run again"})
                return False
            if not told:
                log.info("fleet stopped", extra={"remedy": "waiting for `topology fleet start`"})
                if metrics is not None:
                    endpoint.enter_context(serve_health_alone(lambda: waiting, *metrics))
            told = True
        stop.wait(_STOPPED_S)
    return False


def _is_external(plan: Plan, target: str) -> bool:
    from watershed.clusters.fleet import read_fleet

    fleet = read_fleet(build_settings_lookup(plan)(target), plan.topology, target)
    return fleet is not None and fleet.placement == "external"


def _tell_missing_rights(plan: Plan, target: str, connect: SettingsLookup) -> None:
    """What the worker may not do, told before it starts; it starts all the same, since rights may come later."""
    from watershed.clusters.errors import ClusterError
    from watershed.clusters.missing_rights import find_missing_role_rights

    log = logging.getLogger("watershed.worker")
    served = replace(plan, flows=tuple(flow for flow in plan.flows if flow.target == target))
    try:
        lacking = find_missing_role_rights(served, "worker", connect) + find_missing_role_rights(
            served, "align", connect
        )
        for missing in lacking:
            log.warning("right missing", extra={"cluster": missing.right.cluster, "reason": str(missing)})
    except ClusterError as error:
        log.warning("rights unknown", extra={"reason": str(error)})


def parse_metrics_address(metrics: str, option: str = "--metrics") -> tuple[str, int]:
    """Host and port of `--metrics HOST:PORT`. Raises click.UsageError."""
    host, _, port = metrics.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise click.UsageError(f"{option} {metrics}: say HOST:PORT, such as 127.0.0.1:9464")
    return host.strip("[]") or "127.0.0.1", int(port)


def _parent(path: Path, target: str, processes: int, metrics: tuple[str, int] | None, form: str) -> int:
    """Keep the others alive as children of ours; end with the worst of their exit codes."""
    from watershed.cli.process_supervisor import keep_processes_alive

    command = [sys.executable, "-m", "watershed.cli.main", "worker", str(path), "--target", target, "--log", form]
    own = [[] if metrics is None else ["--metrics", f"{metrics[0]}:{metrics[1] + n}"] for n in range(processes)]
    return keep_processes_alive([[*command, *each] for each in own], lambda told: click.echo(told, err=True))
