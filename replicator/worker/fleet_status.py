"""What each fleet of a plan is, beside what it should be: for the command line, Airflow and the page. Data only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.fleet import (
    FleetRecord,
    SupervisorRecord,
    build_fleet_key,
    build_supervisor_key,
    read_fleet_members,
    read_fleets,
    read_lease_holder,
    read_supervisors,
)
from watershed.clusters.settings import SettingsLookup
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX
from watershed.topology.plan import Plan, WorkerPlacement
from watershed.topology.shell_command import render_shell_command

FleetState = Literal["running", "stopped", "not applied"]
_SUPERVISOR_CLIENT_PREFIX = "watershed-supervisor-"


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A fleet. state: as it should be. wanted, present: numbers of workers, as they should be and as they are. workers:
    the names of those that are there, sorted; none while the group rebalances, which `rebalancing` tells. supervisor:
    the name of the process that holds the lease, "" without one. restarting: a rolling restart goes on, or is due.
    note: what keeps the fleet from its size, for people. plan_hash: of the plan that was applied last."""

    topology: str
    target: str
    state: FleetState
    engine: Literal["spark", "process"] | None = None
    placement: WorkerPlacement | None = None
    wanted: int = 0
    workers: tuple[str, ...] = ()
    supervisor: str = ""
    restarting: bool = False
    note: str = ""
    rebalancing: bool = False
    plan_hash: str = ""

    @property
    def present(self) -> int:
        """How many workers are there."""
        return len(self.workers)

    @property
    def is_at_size(self) -> bool:
        """Whether the fleet is what it should be."""
        enough = self.present >= self.wanted if self.placement == "external" else self.present == self.wanted
        return self.state != "not applied" and enough and not self.restarting and not self.rebalancing

    @property
    def needs_supervisor(self) -> bool:
        """Whether somebody has to start one."""
        return self.state == "running" and self.placement != "external" and not self.supervisor


def read_fleet_rows(plan: Plan, connect: SettingsLookup, target: str | None = None) -> list[FleetRow]:
    """One row for each cluster that a flow of the plan goes into, by alias. target: for this one only.

    Raises ClusterError.
    """
    rows = []
    for alias in sorted({flow.target for flow in plan.flows}):
        if target in (None, alias):
            settings = connect(alias)
            fleet = read_fleets(settings).get(build_fleet_key(plan.topology, alias))
            supervisor = read_supervisors(settings).get(build_supervisor_key(plan.topology, alias))
            with Admin(settings) as admin:
                rows.append(build_fleet_row(plan.topology, alias, fleet, supervisor, admin))
    return rows


def build_fleet_row(
    topology: str,
    target: str,
    fleet: FleetRecord | None,
    supervisor: SupervisorRecord | None,
    admin: ClusterProtocol,
) -> FleetRow:
    """A row from the fleet's records and its groups. Raises ClusterError."""
    members = read_fleet_members(admin, topology)
    present = _strip(WORKER_CLIENT_PREFIX, members or ())
    if fleet is None:
        return FleetRow(topology, target, "not applied", workers=present, rebalancing=members is None)
    holder = read_lease_holder(admin, topology, target)
    watched = holder != "" and supervisor is not None
    return FleetRow(
        topology,
        target,
        fleet.state,
        fleet.engine,
        fleet.placement,
        fleet.wanted,
        present,
        holder.removeprefix(_SUPERVISOR_CLIENT_PREFIX),
        restarting=(watched or fleet.placement != "external") and _is_restart_due(fleet, supervisor),
        note=supervisor.note if supervisor is not None and watched else "",
        rebalancing=members is None,
        plan_hash=fleet.plan_hash,
    )


def _is_restart_due(fleet: FleetRecord, supervisor: SupervisorRecord | None) -> bool:
    """Whether workers that should run have not all seen the last restart; without a lease holder, too: the next one has
    yet to begin it."""
    restarted = 0 if supervisor is None else supervisor.restarted
    return fleet.state == "running" and restarted < fleet.restarts


def describe_fleet_row(row: FleetRow) -> str:
    """One line for people."""
    if row.state == "not applied":
        return f"{row.target}: not applied"
    words = [f"{row.target}: {row.state}, {row.present} of {row.wanted} workers, {row.engine}, {row.placement}"]
    if row.supervisor:
        words.append(f"supervised by {row.supervisor}")
    elif row.placement != "external":
        words.append("no supervisor")
    if row.rebalancing:
        words.append("sharing its partitions anew")
    if row.restarting and not row.note:
        words.append("restarting")
    return ", ".join(words) + (f" ({row.note})" if row.note else "")


def describe_missing_workers(row: FleetRow, file: str = "FILE") -> str:
    """What to run where the workers of a fleet with `placement: external` are to be. file: the topology file's path."""
    command = render_shell_command("topology", "worker", file, "--target", row.target)
    return (
        f"{row.target}: {row.present} of {row.wanted} workers are there; start {row.wanted - row.present} more where "
        f"they are to run, each with `{command}` (docs/fleets.md)"
    )


def _strip(prefix: str, clients: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(each.removeprefix(prefix) for each in clients))
