"""The page's fleet panel: for each target cluster the workers that are wanted, and those that report.

A fleet's desired state is its record in `watershed.flows`; who serves what is in the workers' own reports. Where the
record names no number, `wanted` is the highest that a flow of the file asks for, as `replicate__<name>` starts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from watershed.clusters.fleet import SupervisorRecord
from watershed.plugins.page.cluster_snapshots import ClusterSnapshot
from watershed.plugins.page.flow_rows import build_cluster_row, list_flow_reports
from watershed.replicator.worker.flow_state import is_silent
from watershed.topology.plan import Plan

_WORKERS = 100


@dataclass(frozen=True, slots=True)
class FleetWorkerRow:
    """A worker that serves partitions. age_ms: of its newest report."""

    name: str
    partitions: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class FleetPanelRow:
    """The workers for one target cluster.

    desired: `running`, `stopped`, or `unknown` where the cluster holds no record. present: workers with a report that
    is not too old; None where no partition has to be served, because only then workers report. unserved: partitions
    without such a worker. supervisor: who starts and heals the workers, as far as its newest record says; placement:
    where; None: not known. ready: the supervisor has seen its workers come up. since_ms: when it wrote that. note: what
    keeps the fleet from its size. level: ok | idle | warn | bad.
    """

    target: str
    engine: str
    desired: str
    wanted: int | None
    present: int | None
    unserved: int
    level: str
    says: str
    placement: str | None = None
    supervisor: str | None = None
    ready: bool = False
    since_ms: int | None = None
    note: str = ""
    workers: tuple[FleetWorkerRow, ...] = ()
    more_workers: int = 0


def build_fleets_view(plan: Plan, seen: Mapping[str, ClusterSnapshot], now: float) -> dict[str, Any]:
    """One row a target cluster, in their order by alias. now: seconds since 1970."""
    targets = sorted({flow.target for flow in plan.flows})
    return {
        "topology": plan.topology,
        "at": int(now * 1000),
        "fleets": [
            asdict(_fleet(plan, target, seen[target], now)) | {"cluster": build_cluster_row(target, seen[target], now)}
            for target in targets
        ],
    }


def _fleet(plan: Plan, target: str, snapshot: ClusterSnapshot, now: float) -> FleetPanelRow:
    flows = [flow for flow in plan.flows if flow.target == target]
    record = snapshot.fleets.get((plan.topology, target), {})
    supervisor = snapshot.supervisors.get((plan.topology, target))
    reports = [report for flow in flows for report in list_flow_reports(flow, plan, snapshot, now)]
    heard = [report for report in reports if not is_silent(report, int(now * 1000))]
    at_ms: dict[str, int] = {}
    counts: dict[str, int] = {}
    for report in heard:
        at_ms[report.worker] = max(report.at_ms, at_ms.get(report.worker, 0))
        counts[report.worker] = counts.get(report.worker, 0) + 1
    workers = [
        FleetWorkerRow(name, counts[name], max(0, int(now * 1000) - at_ms[name])) for name in sorted(counts) if name
    ]
    desired = str(record.get("state") or "unknown")
    ordered = record.get("workers")
    wanted = ordered if isinstance(ordered, int) and not isinstance(ordered, bool) else max(f.workers for f in flows)
    level, says = _judge(desired, wanted, len(workers), len(reports) - len(heard), snapshot)
    states = {flow.id: str(snapshot.flows.get(flow.id, {}).get("state") or flow.state) for flow in flows}
    is_standing = not reports and desired == "running" and snapshot.complete and "running" not in states.values()
    if is_standing:
        level, says = _judge_standing(states, supervisor)
    return FleetPanelRow(
        target=target,
        engine=_text(record.get("engine")) or " and ".join(sorted({flow.engine for flow in flows})),
        placement=_text(record.get("placement")),
        supervisor=supervisor.holder if supervisor else None,
        ready=supervisor is not None and supervisor.ready,
        since_ms=supervisor.at_ms if supervisor else None,
        note=supervisor.note if supervisor and desired == "running" else "",
        desired=desired,
        wanted=wanted,
        present=None if is_standing else len(workers),
        unserved=len(reports) - len(heard),
        level=level,
        says=says,
        workers=tuple(workers[:_WORKERS]),
        more_workers=max(0, len(workers) - _WORKERS),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _judge(desired: str, wanted: int, present: int, unserved: int, snapshot: ClusterSnapshot) -> tuple[str, str]:
    """The level, and a sentence."""
    if not snapshot.complete:
        return "idle", "Nothing is known yet: the cluster has not been read."
    if desired == "stopped":
        left = f" {present} still report." if present else ""
        return "idle", f"Stopped on purpose.{left}"
    if desired == "unknown":
        return "idle", "This topology was not applied to the cluster yet: start replication."
    if not present:
        return "bad", (
            "No worker reports. The supervisor starts missing ones again; without a supervisor, Heal does. Look into "
            "the log of the fleet if none comes."
        )
    if unserved:
        return "warn", f"{unserved:,} partitions have no worker that reports."
    if present < wanted:
        return "warn", (
            f"{present} of {wanted} workers serve partitions. The supervisor starts a missing one again; without a "
            "supervisor, Heal does. A worker without a partition is not counted."
        )
    return "ok", "As many workers as wanted, and every partition is served."


def _judge_standing(states: Mapping[str, str], supervisor: SupervisorRecord | None) -> tuple[str, str]:
    """A worker reports partitions, and here is none to serve. So only the supervisor knows of workers."""
    flow, state = next(iter(states.items()))
    why = f"Nothing has to be copied: {f'{flow} is {state}' if len(states) == 1 else 'its flows stand still'}."
    if supervisor is None:
        return "idle", f"{why} Whether workers are there is not known: no supervisor has reported."
    if supervisor.ready:
        return "idle", f"{why} The workers are there and wait."
    return "warn", f"{why} The supervisor has not seen its workers yet."
