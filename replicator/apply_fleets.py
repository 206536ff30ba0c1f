"""The fleets of a plan: what `topology apply` writes down of them (`clusters.fleet.FleetRecord`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from watershed.clusters.fleet import FleetRecord, build_fleet_key
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, WorkerPlacement


def build_fleet_record(plan: Plan, target: str, before: FleetRecord | None) -> FleetRecord:
    """The fleet into `target` as it should be once the plan is applied. before: as it was applied last, or None.

    What was ordered since stays: whether it is stopped, how often it was restarted, and how many workers it has, unless
    the file asks for another number than before.
    """
    flows = [flow for flow in plan.flows if flow.target == target]
    planned = max(flow.workers for flow in flows)
    clusters = list_fleet_clusters(plan, target)
    if before is None:
        before = FleetRecord(plan.topology, target, "running", plan.hash, planned, planned)
    record = before.with_plan(plan.hash, clusters)
    workers = planned if before.planned != planned or not before.clusters else before.workers
    return FleetRecord(
        plan.topology,
        target,
        record.state,
        plan.hash,
        workers,
        planned,
        "spark" if any(flow.engine == "spark" for flow in flows) else "process",
        choose_placement(flows),
        record.restarts,
        clusters,
        record.superseded,
    )


def find_fleet_changes(plan: Plan, fleets: Mapping[str, FleetRecord]) -> list[FieldDrift]:
    """What applying changes in the records of fleets. fleets: those of all targets, by key (`read_fleets`)."""
    found: list[FieldDrift] = []
    for target in sorted({flow.target for flow in plan.flows}):
        before = fleets.get(build_fleet_key(plan.topology, target))
        record = build_fleet_record(plan, target, before)
        if record != before:
            live, wanted = _describe_fleet(before), _describe_fleet(record)
            found += [
                FieldDrift(target, "fleet", plan.topology, name, live.get(name), text)
                for name, text in wanted.items()
                if live.get(name) != text
            ]
    return found


def _describe_fleet(record: FleetRecord | None) -> dict[str, str]:
    """What applying may change, for people."""
    if record is None:
        return {}
    told = {name: str(record.to_json()[name]) for name in ("state", "workers", "engine", "placement")}
    return told | {"clusters": ", ".join(record.clusters), "plan": record.plan_hash}


def list_fleet_clusters(plan: Plan, target: str) -> dict[str, PlanCluster]:
    """The clusters that workers of the fleet connect to, by alias."""
    aliases = {target, *(flow.source for flow in plan.flows if flow.target == target)}
    return {alias: plan.cluster(alias) for alias in sorted(aliases)}


def list_served_flows(plan: Plan) -> list[PlanFlow]:
    """The flows for which fleets have to be there: those that run, and the flow back of a migration, which its switch
    starts and a rollback needs."""
    return [flow for flow in plan.flows if flow.state == "running" or _leads_back(plan, flow)]


def _leads_back(plan: Plan, flow: PlanFlow) -> bool:
    if plan.migration is None:
        return False
    there = plan.flow(plan.migration.flow)
    return (flow.source, flow.target) == (there.target, there.source)


def choose_placement(flows: Iterable[PlanFlow]) -> WorkerPlacement:
    """The placement of a fleet; its flows agree (rule OPS907)."""
    found = {flow.placement for flow in flows}
    return next((each for each in ("external", "task") if each in found), "embedded")
