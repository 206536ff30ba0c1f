"""Looks at the flows of a plan, as they are taken in a process apart (`plugins.watershed_apart`): plain JSON.

Nothing of Airflow is loaded here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugins.watershed_state import frozen_plan

if TYPE_CHECKING:
    from topology.plan import Plan, PlanFlow


def expected_partitions(plan: str) -> dict[str, list[list[Any]]]:
    """Flow id → the [topic, partition] of its source that it selects, as the source has them now."""
    from clusters.admin import Admin
    from clusters.settings import connection_settings

    compiled = frozen_plan(plan).read()
    wanted = {}
    for alias in sorted({flow.source for flow in _running(compiled)}):
        with Admin(connection_settings(compiled.cluster(alias))) as admin:
            topics = admin.topics().values()
        for flow in (flow for flow in _running(compiled) if flow.source == alias):
            wanted[str(flow.id)] = _selected(flow, topics)
    return wanted


def newest_reports(plan: str) -> list[dict[str, Any]]:
    """Of every partition of the plan's flows."""
    from clusters.settings import connection_settings
    from clusters.status import read_status

    compiled = frozen_plan(plan).read()
    ours = {str(flow.id) for flow in _running(compiled)}
    targets = sorted({flow.target for flow in _running(compiled)})
    reports = [r for alias in targets for r in read_status(connection_settings(compiled.cluster(alias)))]
    return [report.to_json() for report in reports if report.flow in ours]


def _running(plan: Plan) -> list[PlanFlow]:
    return [flow for flow in plan.flows if flow.state == "running"]


def _selected(flow: PlanFlow, topics: Any) -> list[list[Any]]:
    return [[str(t.name), p] for t in topics if flow.selects(str(t.name)) for p in range(t.partitions)]
