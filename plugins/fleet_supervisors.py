"""The fleets of a plan as Airflow sees to them: orders, and supervisors on this host (docs/fleets.md)."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk.exceptions import AirflowException

from watershed.clusters.private_files import make_folder, replace_file
from watershed.plugins.detached_process import (
    DetachedProcess,
    ProcessStartFailed,
    build_clean_environment,
    start_detached,
)
from watershed.plugins.operators.spark_application import build_spark_environment
from watershed.plugins.state_folder import FrozenPlan, find_frozen_plan, locate_state_folder, make_file_name
from watershed.plugins.supervisor_queues import list_supervise_kinds
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.clusters.fleet import FleetRecord
    from watershed.replicator.worker.fleet_orders import FleetOrder
    from watershed.replicator.worker.fleet_status import FleetRow
    from watershed.topology.plan import Plan, WorkerPlacement


_PLAN_FILE: Final = "plan"  # in a supervisor's folder: the hash of the plan that it was started with
_LEAVE_S: Final = 20.0  # for a supervisor that is replaced to give its lease up


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one topology into one target cluster. spark: some of them are drivers of Spark."""

    topology: str
    target: str
    spark: bool
    placement: WorkerPlacement

    @property
    def folder(self) -> Path:
        """Where its supervisor runs on this host. Another host has another one, also where they share the folders."""
        return locate_state_folder() / "fleets" / self.topology / self.target / make_file_name(socket.gethostname())

    def program(self, topology: Path) -> tuple[str, list[str]]:
        """Module and arguments of the supervisor."""
        return "watershed.cli.main", ["fleet", "supervise", str(topology), "--target", self.target]

    def build_environment(self) -> dict[str, str]:
        """The environment of the supervisor, which its workers inherit."""
        return build_spark_environment() if self.spark else build_clean_environment()


def list_fleets(plan: Plan) -> list[Fleet]:
    """One fleet a target cluster that served flows write to; with Spark unless all those flows ask for processes and
    change no record."""
    from watershed.replicator.apply_fleets import choose_placement, list_served_flows

    served = list_served_flows(plan)
    fleets = []
    for target in sorted({flow.target for flow in served}):
        flows = [flow for flow in served if flow.target == target]
        spark = any(flow.engine == "spark" or flow.transform is not None for flow in flows)
        fleets.append(Fleet(plan.topology, target, spark, choose_placement(flows)))
    return fleets


def order_fleet_of(
    frozen: FrozenPlan, target: str, order: FleetOrder, workers: int | None = None
) -> tuple[FleetRecord, FleetRecord]:
    """See `replicator.worker.fleet_orders.order_fleet`."""
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.replicator.worker.fleet_orders import order_fleet

    plan = frozen.read()
    return order_fleet(resolve_connection_settings(plan.cluster(target)), plan.topology, order, workers)


def read_rows_of(plan: Plan, target: str | None = None) -> list[FleetRow]:
    """The plan's fleets as they are. Raises ClusterError."""
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.replicator.worker.fleet_status import read_fleet_rows

    return read_fleet_rows(plan, lambda alias: resolve_connection_settings(plan.cluster(alias)), target)


def start_missing_supervisors(frozen: FrozenPlan, fleets: Sequence[Fleet], log: Any) -> list[str]:
    """Start a supervisor on this host for each embedded fleet that should run and has none, here or elsewhere. One that
    runs here with other clusters than were applied is replaced; its workers go on until the new ones are ready.

    frozen: the file as it is. A supervisor gets the plan that was applied last, where this host has kept it. Returns
    the folders of those that run here. Raises AirflowException, ClusterError.
    """
    from watershed.replicator.worker.fleet_status import describe_fleet_row, describe_missing_workers

    folders = []
    plan = frozen.read()
    for fleet in fleets:
        [row] = read_rows_of(plan, fleet.target)
        log.info("%s", escape_control_lines(describe_fleet_row(row)))
        if fleet.placement == "task" and row.needs_supervisor:
            dags = ", ".join(f"{kind}__{fleet.topology}" for kind in list_supervise_kinds())
            log.warning("supervised by the task supervise_%s of: %s; unpause what is paused", fleet.target, dags)
        if fleet.placement == "external" and row.state == "running" and not row.is_at_size:
            log.warning("%s", describe_missing_workers(row))
        if fleet.placement != "embedded":
            continue
        applied = find_applied_plan(fleet, row.plan_hash)
        if row.needs_supervisor or (applied is not None and _replace_outdated(applied, fleet, log)):
            program = start_supervisor(applied or frozen, fleet)
            log.info("its supervisor runs here (pid %s), log %s", program.pid(), program.log)
        if DetachedProcess(fleet.folder).alive():
            folders.append(str(fleet.folder))
    return folders


def find_applied_plan(fleet: Fleet, plan_hash: str) -> FrozenPlan | None:
    """The plan of this hash, which a fleet's record names; None where it was applied by others than Airflow, and for
    a plan that does not have the fleet."""
    try:
        found = find_frozen_plan(plan_hash)
    except FileNotFoundError:
        return None
    return found if any(flow.target == fleet.target for flow in found.read().flows) else None


def _replace_outdated(applied: FrozenPlan, fleet: Fleet, log: Any) -> bool:
    """Have the supervisor that runs here leave if it was started with other clusters than the applied plan has: a new
    address of the target, say, reaches nobody who runs. Whether another is to be started."""
    program = DetachedProcess(fleet.folder)
    if not program.alive() or _has_same_clusters(applied, fleet):
        return False
    log.info("the supervisor (pid %s) was started with other clusters than were applied: another one", program.pid())
    program.dismiss(signal.SIGUSR1)
    deadline = time.monotonic() + _LEAVE_S
    while program.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not program.alive()


def _has_same_clusters(applied: FrozenPlan, fleet: Fleet) -> bool:
    from watershed.replicator.apply_fleets import list_fleet_clusters

    try:
        started = find_applied_plan(fleet, (fleet.folder / _PLAN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:  # of an earlier version
        return False
    if started is None:
        return False
    return started.hash == applied.hash or (
        list_fleet_clusters(started.read(), fleet.target) == list_fleet_clusters(applied.read(), fleet.target)
    )


def start_supervisor(frozen: FrozenPlan, fleet: Fleet) -> DetachedProcess:
    """A supervisor in a process that survives Airflow, or the one that runs here. Raises AirflowException."""
    module, arguments = fleet.program(frozen.topology)
    if not DetachedProcess(fleet.folder).alive():
        make_folder(fleet.folder)
        replace_file(fleet.folder / _PLAN_FILE, frozen.hash.encode())
    try:
        return start_detached(fleet.folder, module, arguments, fleet.build_environment())
    except ProcessStartFailed as failure:
        raise AirflowException(escape_control_lines(str(failure))) from None


@contextmanager
def report_cluster_errors() -> Iterator[None]:
    """What stops Watershed becomes the task's failure, with its message and no traceback."""
    from watershed.clusters.errors import ClusterError
    from watershed.replicator.errors import ReplicatorError

    try:
        yield
    except (ClusterError, ReplicatorError) as problem:
        raise AirflowException(escape_control_lines(str(problem))) from None
