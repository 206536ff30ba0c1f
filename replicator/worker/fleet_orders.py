"""Orders to a fleet: they change its record, and its supervisor follows. The same for the command line and Airflow."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, get_args

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.fleet import (
    FleetRecord,
    build_supervisor_key,
    read_fleet,
    read_lease_holder,
    read_supervisors,
    write_fleet,
)
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.errors import ReplicatorError
from watershed.topology.language.flow import MOST_WORKERS

FleetOrder = Literal["start", "stop", "scale", "restart"]
_TRIES: Final = 5  # others may write the record between our reading and writing
FLEET_ORDERS: Final[tuple[FleetOrder, ...]] = get_args(FleetOrder)


class FleetOrderRefused(ReplicatorError):
    """An order that the fleet cannot follow as it is."""


def order_fleet(
    target: ConnectionSettings, topology: str, order: FleetOrder, workers: int | None = None
) -> tuple[FleetRecord, FleetRecord]:
    """Write the fleet's record as the order wants it. Returns it as it was and as it is; equal where nothing changes.

    workers: how many there should be, for `scale` and `start`. Raises FleetOrderRefused and ClusterError.
    """
    first = now = _read_applied(target, topology)
    for _ in range(_TRIES):
        restarted = _read_restarted(target, now) if order == "restart" and now.state == "running" else 0
        after = change_fleet(now, order, workers, restarted)
        if after == now:
            return first, now
        with ControlWriter(target, client_id="watershed-fleet") as writer:
            write_fleet(writer, after)
        now = _read_applied(target, topology)
        if now == after:
            return first, after
    raise FleetOrderRefused(
        f"others change the fleet of {topology} into {target.alias} at the same time; give the order again"
    )


def _read_applied(target: ConnectionSettings, topology: str) -> FleetRecord:
    record = read_fleet(target, topology, target.alias)
    if record is None:
        raise FleetOrderRefused(
            f"topology {topology} has no fleet into {target.alias} yet; run `topology apply` with its file first"
        )
    return record


def _read_restarted(target: ConnectionSettings, fleet: FleetRecord) -> int:
    """The restart that all workers have seen. Raises FleetOrderRefused where nobody would restart them."""
    known = read_supervisors(target).get(build_supervisor_key(fleet.topology, fleet.target))
    if fleet.placement == "external":
        with Admin(target) as admin:
            if not read_lease_holder(admin, fleet.topology, fleet.target):
                raise FleetOrderRefused(
                    f"no supervisor runs the workers of {fleet.topology} into {fleet.target} (`placement: external`): "
                    "restart them one after the other where they run, such as by `kubectl rollout restart`"
                )
    return fleet.restarts if known is None else known.restarted


def change_fleet(record: FleetRecord, order: FleetOrder, workers: int | None, restarted: int) -> FleetRecord:
    """The record after an order. restarted: the restart that all workers have seen. While an earlier one goes on,
    another order to restart changes nothing.

    Raises FleetOrderRefused.
    """
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise FleetOrderRefused(f"{workers} workers: a fleet has from 1 to {MOST_WORKERS}; `stop` ends all of them")
    if order == "scale" and workers is None:
        raise FleetOrderRefused("scale needs the number of workers")
    if order == "restart" and record.state == "stopped":
        raise FleetOrderRefused(
            f"the fleet of {record.topology} into {record.target} is stopped; `start` starts it, with fresh workers"
        )
    if order == "restart":
        return record if restarted < record.restarts else replace(record, restarts=record.restarts + 1)
    wanted = workers if workers is not None and order in ("start", "scale") else record.workers
    if order == "scale":
        return replace(record, workers=wanted)
    return replace(record, state="running" if order == "start" else "stopped", workers=wanted)
