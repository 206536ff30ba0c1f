"""Reads the state of a plan's flows in a separate process (`plugins.shared_client_processes`), as plain JSON.

Nothing of Airflow is loaded here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watershed.plugins.state_folder import find_frozen_plan

if TYPE_CHECKING:
    from watershed.clusters.flow_records import FlowRecord
    from watershed.topology.plan import Plan, PlanFlow


def read_expected_partitions(plan: str) -> dict[str, Any]:
    """What `watershed.flows` wants of the flows that the file wants running.

    places: flow id → the [topic, partition] pairs to serve, as the source has them now. standing: flow id → its state,
    of those that were stopped since; also what a person paused of a flow that runs, by flow id and how much it is."""
    from watershed.clusters.admin import Admin
    from watershed.clusters.budget_breaches import pick_open_breach, read_budget_breaches
    from watershed.clusters.flow_records import read_flows
    from watershed.clusters.partition_orders import find_partition_order, index_partition_orders
    from watershed.clusters.settings import resolve_connection_settings

    compiled = find_frozen_plan(plan).read()
    running = _running(compiled)
    targets = sorted({flow.target for flow in running})
    settings = {alias: resolve_connection_settings(compiled.cluster(alias)) for alias in targets}
    records = {alias: read_flows(each) for alias, each in settings.items()}
    breaches = {alias: read_budget_breaches(each) for alias, each in settings.items()}
    places: dict[str, list[list[Any]]] = {}
    standing: dict[str, str] = {}
    for alias in sorted({flow.source for flow in running}):
        with Admin(resolve_connection_settings(compiled.cluster(alias))) as admin:
            topics = admin.topics().values()
        for flow in (flow for flow in running if flow.source == alias):
            record = records[flow.target].get(str(flow.id))
            if record is not None and record.state != "running":
                standing[str(flow.id)] = record.state
                continue
            breach = pick_open_breach(record, breaches[flow.target])
            if breach is not None and breach.action == "pause":  # after `fail` its partitions are halted, and told so
                standing[str(flow.id)] = f"paused by {breach.budget}"
                continue
            wanted = _selected(flow if record is None else record, topics)
            pauses = index_partition_orders(() if record is None else record.pauses)
            served = [place for place in wanted if find_partition_order(pauses, *place) is None]
            places[str(flow.id)] = served
            if len(served) < len(wanted):
                standing[f"{flow.id}, {len(wanted) - len(served)} of {len(wanted)} partitions"] = "paused"
    return {"places": places, "standing": standing}


def read_failed_budgets(plan: str) -> dict[str, dict[str, str]]:
    """Budget breaches by which flows with `slo.on_breach: fail` stand still, in all targets of the plan.

    breaches: `flow/number` → what happened, and the command that lets the flow go on. unread: alias → why a target
    cannot be asked; the others are told all the same. What counts is what was applied: a flow of the topology that
    came after the plan, or got its budget later, is told, too."""
    from watershed.clusters.budget_breaches import explain_breach, pick_open_breach, read_budget_breaches
    from watershed.clusters.errors import ClusterError
    from watershed.clusters.flow_records import read_flows
    from watershed.clusters.settings import resolve_connection_settings

    compiled = find_frozen_plan(plan).read()
    found: dict[str, str] = {}
    unread: dict[str, str] = {}
    for alias in sorted({flow.target for flow in compiled.flows}):
        try:
            settings = resolve_connection_settings(compiled.cluster(alias))
            records, breaches = read_flows(settings), read_budget_breaches(settings)
        except ClusterError as trouble:
            unread[alias] = str(trouble)
            continue
        for record in records.values():
            breach = pick_open_breach(record, breaches)
            if breach is not None and breach.action == "fail" and record.topology == compiled.topology:
                found[f"{breach.flow}/{breach.number}"] = explain_breach(record, breaches)
    return {"breaches": found, "unread": unread}


def read_newest_reports(plan: str) -> list[dict[str, Any]]:
    """Of every partition of the plan's flows."""
    from watershed.clusters.partition_status_records import read_partition_statuses
    from watershed.clusters.settings import resolve_connection_settings

    compiled = find_frozen_plan(plan).read()
    ours = {str(flow.id) for flow in _running(compiled)}
    targets = sorted({flow.target for flow in _running(compiled)})
    reports = [
        r for alias in targets for r in read_partition_statuses(resolve_connection_settings(compiled.cluster(alias)))
    ]
    return [report.to_json() for report in reports if report.flow in ours]


def read_fleet_states(plan: str) -> list[dict[str, Any]]:
    """The plan's fleets that have to be there: target, whether they are what they should be, and one line for people.
    waits: somebody else than Airflow has to start workers; the line says which."""
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.replicator.apply_fleets import list_served_flows
    from watershed.replicator.worker.fleet_status import describe_fleet_row, describe_missing_workers, read_fleet_rows

    compiled = find_frozen_plan(plan).read()
    served = {flow.target for flow in list_served_flows(compiled)}
    rows = [
        row
        for row in read_fleet_rows(compiled, lambda alias: resolve_connection_settings(compiled.cluster(alias)))
        if row.target in served
    ]
    waiting = {row.target: row.placement == "external" and row.present < row.wanted for row in rows}
    return [
        {
            "target": row.target,
            "at_size": row.is_at_size,
            "waits": waiting[row.target],
            "text": describe_missing_workers(row) if waiting[row.target] else describe_fleet_row(row),
        }
        for row in rows
    ]


def _running(plan: Plan) -> list[PlanFlow]:
    return [flow for flow in plan.flows if flow.state == "running"]


def _selected(flow: PlanFlow | FlowRecord, topics: Any) -> list[list[Any]]:
    return [[str(t.name), p] for t in topics if flow.selects(str(t.name)) for p in range(t.partitions)]
