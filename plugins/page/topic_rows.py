"""Topics and consumer groups of a topology as the page lists them: filtered, sorted and paged here, so that a browser
never gets ten thousand rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.plugins.page.cluster_snapshots import ClusterSnapshot
from watershed.plugins.page.flow_rows import find_state_level, list_flow_reports, list_sync_reports
from watershed.plugins.page.folded_alerts import cut_alert_text
from watershed.replicator.worker.flow_state import pick_worst_state
from watershed.topology.plan import Plan, PlanFlow

ROWS_AT_ONCE = 50
_Row = dict[str, Any]
_Snapshots = Mapping[str, ClusterSnapshot]  # by alias
_ORDER = ("bad", "warn", "busy", "ok", "idle")  # those that need a person first
_GROUP_LEVELS = {"equal": "ok", "carried": "ok", "waiting": "busy", "different": "warn"}
_GROUPS = "groups"  # the kind of a report about a consumer group


def build_topics_page(plan: Plan, seen: _Snapshots, now: float, only: str = "", first: int = 0) -> _Row:
    """ROWS_AT_ONCE topics from number `first` on. now: seconds since 1970. only: text that a topic's names, flow,
    clusters or state contain."""
    rows: list[_Row] = []
    for flow in plan.flows:
        by_topic: dict[tuple[str, str], list[PartitionStatus]] = {}
        for report in list_flow_reports(flow, plan, seen[flow.target], now):
            by_topic.setdefault((report.topic, report.target_topic), []).append(report)
        rows += [_topic(flow, names, reports) for names, reports in by_topic.items()]
    return _page(rows, only, ("topic", "target_topic", "flow", "source", "target", "state"), first)


def build_groups_page(plan: Plan, seen: _Snapshots, only: str = "", first: int = 0) -> _Row:
    """ROWS_AT_ONCE consumer groups whose positions a flow carries. only: text that a group's names, flow or state
    contain."""
    rows = [
        _group(flow, report)
        for flow in plan.flows
        for report in list_sync_reports(flow, plan, seen[flow.target])
        if report.get("kind") == _GROUPS and report.get("name")
    ]
    return _page(rows, only, ("group", "target_group", "flow", "source", "target", "state"), first)


def _topic(flow: PlanFlow, names: tuple[str, str], reports: list[PartitionStatus]) -> _Row:
    state = pick_worst_state(report.state for report in reports)
    records = [report.lag_records for report in reports if report.lag_records is not None]
    return {
        "topic": names[0],
        "target_topic": names[1],
        "flow": flow.id,
        "source": flow.source,
        "target": flow.target,
        "state": state,
        "level": find_state_level(state),
        "partitions": len(reports),
        "lag_records": sum(records) if records else None,
        "lag_ms": max((report.lag_ms for report in reports if report.lag_ms is not None), default=None),
        "rate_bytes": sum(report.rate_bytes for report in reports),
    }


def _group(flow: PlanFlow, report: Mapping[str, Any]) -> _Row:
    detail = report.get("detail")
    told: Mapping[str, Any] = detail if isinstance(detail, Mapping) else {}
    partitions = told.get("partitions")
    state = str(report.get("state"))
    return {
        "group": str(report.get("name")),
        "target_group": str(told.get("target_group") or report.get("name")),
        "flow": flow.id,
        "source": flow.source,
        "target": flow.target,
        "state": state,
        "level": _GROUP_LEVELS.get(state, "bad"),
        "source_state": _text(told.get("state")),
        "target_state": _text(told.get("target_state")),
        "partitions": len(partitions) if isinstance(partitions, list) else 0,
        "lag_records": _add_up(partitions),
        "why": cut_alert_text(str(report.get("why") or _read_standby(told))),
    }


def _read_standby(detail: Mapping[str, Any]) -> str:
    """Of a Streams application, whether its state is at the target, too; empty for all other groups."""
    streams = detail.get("streams")
    return str(streams.get("told") or "") if isinstance(streams, Mapping) else ""


def _add_up(partitions: object) -> int | None:
    """Records in front of a group at the source; None where no partition tells it."""
    rows = partitions if isinstance(partitions, list) else []
    told = [row.get("lag") for row in rows if isinstance(row, Mapping)]
    known = [lag for lag in told if isinstance(lag, int) and not isinstance(lag, bool)]
    return sum(known) if known else None


def _text(value: object) -> str | None:
    return cut_alert_text(value) if isinstance(value, str) else None


def _page(rows: Iterable[_Row], only: str, names: tuple[str, ...], first: int) -> _Row:
    every = list(rows)
    text = only.casefold()
    found = [row for row in every if any(text in str(row[name]).casefold() for name in names)]
    found.sort(key=lambda row: (_ORDER.index(row["level"]), row[names[0]], row["flow"]))
    return {
        "rows": found[first : first + ROWS_AT_ONCE],
        "first": first,
        "at_once": ROWS_AT_ONCE,
        "found": len(found),
        "count": len(every),
    }
