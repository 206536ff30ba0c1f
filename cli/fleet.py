"""`topology fleet`: how many workers a fleet has, and who sees to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
from watershed.topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from watershed.clusters.fleet import FleetRecord
    from watershed.replicator.worker.fleet_orders import FleetOrder
    from watershed.replicator.worker.worker_host import WorkerHost
    from watershed.topology.plan import Plan

_PARENT_S = 1.0


@click.group(epilog="Example: topology fleet scale orders.yaml --target cloud --workers 4")
def fleet() -> None:
    """Start, resize, restart or stop the workers of a topology into one cluster; supervise them.

    Each order changes the fleet's record at the target cluster. A supervisor follows it within seconds, wherever it
    runs. An order that is given twice changes nothing the second time.
    """


def _path_and_target(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--target", required=True, help="Alias of the cluster that the fleet's workers write to.")(
        command
    )
    return click.argument("path", type=click.Path(path_type=Path))(command)


@fleet.command("start", epilog="Example: topology fleet start orders.yaml --target cloud")
@_path_and_target
@click.option("--workers", type=click.IntRange(1, 256), help="How many; default: as many as it had.")
def start_fleet(path: Path, target: str, workers: int | None) -> int:
    """Have the fleet run."""
    return _order(path, target, "start", workers)


@fleet.command("stop", epilog="Example: topology fleet stop orders.yaml --target cloud")
@_path_and_target
def stop_fleet(path: Path, target: str) -> int:
    """Have all workers finish what is in flight and end; positions are kept."""
    return _order(path, target, "stop")


@fleet.command("scale", epilog="Example: topology fleet scale orders.yaml --target cloud --workers 4")
@_path_and_target
@click.option("--workers", type=click.IntRange(1, 256), required=True, help="How many there should be.")
def scale_fleet(path: Path, target: str, workers: int) -> int:
    """Change the number of workers; the others go on copying meanwhile.

    The number stays until the file's `workers.count` changes and is applied. Sixteen workers serve; more stand by.
    """
    return _order(path, target, "scale", workers)


@fleet.command("restart", epilog="Example: topology fleet restart orders.yaml --target cloud")
@_path_and_target
def restart_fleet(path: Path, target: str) -> int:
    """Replace the workers one after the other, each when the others serve all partitions."""
    return _order(path, target, "restart")


@fleet.command("status", epilog="Example: topology fleet status orders.yaml")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--target", help="Only the fleet into this cluster.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show_fleets(path: Path, target: str | None, form: str) -> int:
    """What each fleet should be, what it is, and who supervises it. Exit code 3 while one is not as it should be; a
    fleet into which no flow of the file runs does not count.
    """
    from watershed.replicator.apply_fleets import list_served_flows
    from watershed.replicator.worker.fleet_status import describe_fleet_row, describe_missing_workers, read_fleet_rows

    plan = compile_plan_at(path)
    if target is not None:
        _require_fleet(plan, target)
    rows = read_fleet_rows(plan, build_settings_lookup(plan), target)
    if form == "json":
        found = [asdict(row) | {"present": row.present, "at_size": row.is_at_size} for row in rows]
        click.echo(json.dumps({"schema": 1, "topology": plan.topology, "fleets": found}, indent=2))
    else:
        for row in rows:
            click.echo(describe_fleet_row(row))
            if row.workers:  # as `topology flow move --to` takes them
                click.echo(f"  workers: {', '.join(row.workers)}")
            if row.needs_supervisor:
                click.echo(f"  what to do: `{_supervise_command(path, row.target)}`, or the DAG fleet__{plan.topology}")
            elif row.placement == "external" and not row.is_at_size and row.state == "running":
                click.echo(f"  what to do: {describe_missing_workers(row, str(path))}")
    served = {flow.target for flow in list_served_flows(plan)}
    return 0 if all(row.is_at_size or row.target not in served for row in rows) else 3


@fleet.command("supervise", epilog="Example: topology fleet supervise orders.yaml --target cloud")
@_path_and_target
@click.option("--metrics", metavar="HOST:PORT", help="Workers answer Prometheus there; worker n takes PORT + n.")
@click.option("--log", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--end-with-parent", is_flag=True, hidden=True, help="Leave when the process that started it has ended.")
def supervise_fleet(
    path: Path, target: str, metrics: str | None, form: Literal["text", "json"], end_with_parent: bool
) -> int:
    """Keep the fleet as its record says until stopped, as the engine of the file has it.

    Start it on as many hosts as you like: one supervises, the others stand by. SIGTERM or Ctrl-C: the workers hand
    their partitions over and end. When it is killed, or gets SIGUSR1, they go on until another
    supervisor has its own ready.
    """
    from watershed.cli.worker import parse_metrics_address
    from watershed.replicator.worker.fleet_lease import FleetLease
    from watershed.replicator.worker.fleet_supervisor import FleetSupervisor
    from watershed.replicator.worker.log_format import configure_logging
    from watershed.replicator.worker.transform_places import TransformPlaces

    plan = compile_plan_at(path)
    _require_fleet(plan, target)
    where = None if metrics is None else parse_metrics_address(metrics)
    configure_logging(form=form)
    ended, left = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    signal.signal(signal.SIGUSR1, lambda *_: left.set())
    if end_with_parent:
        threading.Thread(target=_watch_parent, args=(os.getppid(), left), daemon=True).start()

    def make_host(engine: Literal["spark", "process"]) -> WorkerHost:
        return _make_host(engine, path, target, where, form)

    lease = FleetLease(build_settings_lookup(plan)(target), plan.topology, f"{socket.gethostname()}-{os.getpid()}")

    def say(text: str) -> None:
        click.echo(text, err=True)

    transforms = TransformPlaces(_make_transform_host(path, target, form), say)
    FleetSupervisor(lease, make_host, say=say, transforms=transforms).run(ended, left)
    return 0


def _make_host(
    engine: Literal["spark", "process"], path: Path, target: str, metrics: tuple[str, int] | None, form: str
) -> WorkerHost:
    from watershed.replicator.worker.worker_processes import ProcessHost

    def process(place: int, epoch: int) -> list[str]:
        own = [] if metrics is None else ["--metrics", f"{metrics[0]}:{metrics[1] + place}"]
        words = ["worker", str(path), "--target", target, "--epoch", str(epoch), "--log", form]
        return [sys.executable, "-m", "watershed.cli.main", *words, *own]

    def spark(_place: int, epoch: int) -> list[str]:
        words = ["--topology", str(path), "--target", target, "--epoch", str(epoch)]
        return [sys.executable, "-m", "watershed.spark.replicate", *words]

    if engine == "spark":
        return ProcessHost("spark", spark, hosts_whole_fleet=True)
    return ProcessHost("process", process)


def _make_transform_host(path: Path, target: str, form: str) -> WorkerHost:
    from watershed.replicator.worker.worker_processes import ProcessHost

    def command(_place: int, epoch: int) -> list[str]:
        words = ["worker", str(path), "--target", target, "--epoch", str(epoch), "--log", form, "--transforms"]
        return [sys.executable, "-m", "watershed.cli.main", *words]

    return ProcessHost("process", command)


def _watch_parent(parent: int, left: threading.Event) -> None:
    """A task that was killed is noticed by Airflow minutes later. Its workers go on until the next one has its own."""
    while os.getppid() == parent:
        time.sleep(_PARENT_S)
    left.set()


def _order(path: Path, target: str, order: FleetOrder, workers: int | None = None) -> int:
    from watershed.replicator.worker.fleet_orders import order_fleet
    from watershed.replicator.worker.fleet_status import describe_fleet_row, describe_missing_workers, read_fleet_rows

    plan = compile_plan_at(path)
    _require_fleet(plan, target)
    connect = build_settings_lookup(plan)
    [row] = read_fleet_rows(plan, connect, target)
    click.echo(f"now: {describe_fleet_row(row)}")
    before, after = order_fleet(connect(target), plan.topology, order, workers)
    if before == after:
        click.echo("nothing to change" if order != "restart" else "it is restarting already")
    else:
        click.echo(f"{target}: {_describe(before)} -> {_describe(after)}")
    if after.state == "running" and row.placement != "external" and not row.supervisor:
        how = f"`{_supervise_command(path, target)}`, or the DAG fleet__{plan.topology}"
        click.echo(f"note: no supervisor follows this; start one: {how}", err=True)
    elif after.state == "running" and row.placement == "external" and row.present < after.workers:
        click.echo(f"note: {describe_missing_workers(replace(row, wanted=after.workers), str(path))}", err=True)
    return 0


def _describe(record: FleetRecord) -> str:
    workers = f"{record.workers} worker" + ("" if record.workers == 1 else "s")
    return f"{record.state}, {workers}, restart {record.restarts}"


def _supervise_command(path: Path, target: str) -> str:
    return render_shell_command("topology", "fleet", "supervise", path, "--target", target)


def _require_fleet(plan: Plan, target: str) -> None:
    plan.cluster(target)
    if not any(flow.target == target for flow in plan.flows):
        raise click.UsageError(f"no flow of {plan.topology} goes into {target}")
