"""What the page says of flows and clusters, as JSON: plain functions over a plan and snapshots of its clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from watershed.clusters.budget_breaches import describe_breach
from watershed.clusters.errors import UnreadableControlRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.latency_buckets import describe_latency
from watershed.clusters.partition_orders import (
    PartitionMove,
    PartitionOrderIndex,
    PartitionPause,
    describe_move,
    describe_pause,
    find_partition_order,
    index_partition_orders,
)
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.plugins.page.cluster_snapshots import CLUSTER_ANSWER_S, SNAPSHOT_PAUSE_S, ClusterSnapshot
from watershed.plugins.page.folded_alerts import cut_alert_text, fold_alerts, list_remedy_operations
from watershed.plugins.page.graph_layout import MAX_DRAWN_ARROWS, FlowArrow, build_flow_arrows, lay_out_graph
from watershed.plugins.page.lag_history import build_charts
from watershed.replicator.worker.flow_state import (
    SILENT_STATE,
    is_halted,
    is_lag_lower_bound,
    mark_if_silent,
    pick_worst_state,
)
from watershed.topology.egress_compression import EgressCompression, describe_saved_bytes
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.record_transform import RecordTransform

_Row = dict[str, Any]
_Snapshots = Mapping[str, ClusterSnapshot]  # by alias

_NOT_APPLIED, _NO_ANSWER, _READING = "not_applied", "unknown", "reading"
_LEVELS = {
    "complete": "ok",
    "running": "ok",
    "catching_up": "busy",
    "aligning": "busy",
    "starting": "busy",
    "retrying": "warn",
}
_LEVELS |= {
    SILENT_STATE: "warn",
    "paused": "idle",
    "stopped": "idle",
    _NOT_APPLIED: "idle",
    _NO_ANSWER: "warn",
    _READING: "idle",
}
_RANK = ("idle", "ok", "busy", "warn", "bad")  # what stands still on purpose needs nobody
_ATTENTION = ("bad", "warn")
_LATE_S = CLUSTER_ANSWER_S + SNAPSHOT_PAUSE_S + 2.0  # a cluster whose last answer is older does not answer
FLOWS_AT_ONCE = 50
_PAGE = 100  # partitions at once
_CLUSTERS = 250  # clusters at once; those that do not answer first
_PAIR = " → "  # between the two clusters of a pair
_BESIDE = 50  # things beside records at once
_SELECTORS = 6


def build_flows_overview(
    plan: Plan, seen: _Snapshots, now: float, only: str = "", *, pair: str = "", first: int = 0
) -> _Row:
    """Clusters, FLOWS_AT_ONCE flows from number `first` on, and where the graph draws all of them. now: seconds since
    1970.

    only: `attention`, or text that a flow's id, clusters or topics contain. pair: only flows from one cluster to
    another, as `source → target`.
    """
    reports = {flow.id: list_flow_reports(flow, plan, seen[flow.target], now) for flow in plan.flows}
    rows = [_build_flow_row(flow, plan, seen, now, reports[flow.id]) for flow in plan.flows]
    shown = [row for row in rows if _matches(row, only) and pair in ("", f"{row['source']}{_PAIR}{row['target']}")]
    shown.sort(key=lambda row: (-_RANK.index(row["level"]), row["id"]))
    names = {alias for row in shown for alias in (row["source"], row["target"])}
    names = names if only or pair else {cluster.alias for cluster in plan.clusters}
    drawn = build_flow_arrows((row["id"], row["source"], row["target"]) for row in shown)
    by_id = {row["id"]: row for row in shown}
    clusters = [build_cluster_row(alias, seen[alias], now) for alias in sorted(names)]
    alerts, more_alerts = fold_alerts(report for row in shown for report in reports[row["id"]])
    legible = len(drawn) <= MAX_DRAWN_ARROWS and len(names) <= _CLUSTERS
    return {
        "topology": plan.topology,
        "plan": plan.hash,
        "at": int(now * 1000),
        "clusters": sorted(clusters, key=lambda each: each["state"] != "silent")[:_CLUSTERS],
        "cluster_count": len(clusters),
        "flows": shown[first : first + FLOWS_AT_ONCE],
        "first": first,
        "found": len(shown),
        "count": len(rows),
        "totals": _totals(rows),
        "alerts": [each | {"level": find_state_level(each["state"])} for each in alerts],
        "more_alerts": more_alerts,
        "charts": build_charts([snapshot.history.read(plan.topology) for snapshot in _targets(plan, seen)], now),
        "graph": lay_out_graph(sorted(names), drawn, _list_forward_ways(plan)) if legible else None,
        "arrows": [_arrow(each, by_id) for each in drawn] if legible else [],
        "too_many": not legible,
        "others": [tool.describe() for tool in plan.external_flows],
    }


def build_cluster_panel(plan: Plan, seen: _Snapshots, now: float, alias: str) -> _Row:
    """A cluster with its flows, FLOWS_AT_ONCE at most, those that need attention first; `found`: how many there are."""
    mine = [flow for flow in plan.flows if alias in (flow.source, flow.target)]
    reports = {flow.id: list_flow_reports(flow, plan, seen[flow.target], now) for flow in mine}
    rows = [_build_flow_row(flow, plan, seen, now, reports[flow.id]) for flow in mine]
    rows.sort(key=lambda row: (-_RANK.index(row["level"]), row["id"]))
    names = ("id", "level", "state", "source", "target")
    return build_cluster_row(alias, seen[alias], now) | {
        "flows": [{name: row[name] for name in names} for row in rows[:FLOWS_AT_ONCE]],
        "found": len(rows),
    }


def _targets(plan: Plan, seen: _Snapshots) -> Iterable[ClusterSnapshot]:
    """The snapshots that hold the reports of this plan's flows, each once."""
    return [seen[alias] for alias in sorted({flow.target for flow in plan.flows})]


def _list_forward_ways(plan: Plan) -> list[tuple[str, str]]:
    """Source and target of the flows that are drawn from left to right. Of two flows in opposite directions that is the
    one along which applications move, then one that is nobody's way back, then the first of the file."""
    moving = plan.migration.flow if plan.migration is not None else ""
    waves = plan.migration.waves if plan.migration is not None else ()
    back = {wave.rollback.reverse for wave in waves if wave.rollback is not None}
    ordered = sorted(plan.flows, key=lambda flow: (flow.id != moving, flow.id in back))
    found: dict[tuple[str, str], None] = {}
    for flow in ordered:
        if (flow.target, flow.source) not in found:
            found[flow.source, flow.target] = None
    return [*found]


def build_cluster_row(alias: str, seen: ClusterSnapshot, now: float) -> _Row:
    """state: answers | reading | silent. age_ms: of its last answer, None before the first. Time during which nobody
    had the page open does not count: the cluster was not asked then."""
    age = None if seen.answered_at is None else max(0.0, now - seen.answered_at)
    if age is None:
        state = "silent" if seen.problem else "reading"
    elif min(age, now - seen.since) > _LATE_S:
        state = "silent"
    else:
        state = "answers" if seen.complete and age <= _LATE_S else "reading"
    return {
        "alias": alias,
        "state": state,
        "age_ms": None if age is None else int(age * 1000),
        "problem": cut_alert_text(seen.problem) if state != "answers" else None,
    }


def _build_flow_row(
    flow: PlanFlow, plan: Plan, seen: _Snapshots, now: float, reports: Sequence[PartitionStatus]
) -> _Row:
    """One flow in all; `state` as in `topology status`; or `not_applied`; or, before its target was read,
    `reading`, or `unknown` when it does not answer."""
    target = seen[flow.target]
    record = _record(flow, plan, target)
    states = Counter(report.state for report in reports)
    answers = build_cluster_row(flow.target, target, now)["state"]
    breach = target.breaches.get(flow.id) if record is not None else None
    if record is not None:
        desired = str(record.get("state"))
        if breach is not None and breach.action == "pause" and desired == "running":
            desired = "paused"
    elif target.complete:
        desired = _NOT_APPLIED
    else:
        desired = _NO_ANSWER if answers == "silent" else _READING
    state = desired if desired != "running" else pick_worst_state(states or {"starting"})
    if answers == "silent" and desired == "running":
        state = pick_worst_state([state, SILENT_STATE])
    elif answers == "reading" and desired == "running":
        state = _READING  # what was seen of it is from before
    loud = next((report for report in reports if report.state == state and report.error), None)
    return {
        "id": flow.id,
        "source": flow.source,
        "target": flow.target,
        "topics": _topics(flow),
        "state": state,
        "level": find_state_level(state),
        "desired": desired,
        "partitions": len(reports),
        "states": dict(states),
        "lag_records": _sum(report.lag_records for report in reports),
        "lag_is_lower_bound": is_lag_lower_bound(state, states, (report.lag_records for report in reports)),
        "lag_ms": max((report.lag_ms for report in reports if report.lag_ms is not None), default=None),
        "rate_bytes": sum(report.rate_bytes for report in reports),
        "error": cut_alert_text(loud.error) if loud is not None else None,
        "breach": cut_alert_text(describe_breach(breach)) if breach is not None else None,
        "changed": record is not None and record.get("plan_hash") != plan.hash,
    }


def build_flow_detail(flow: PlanFlow, plan: Plan, seen: _Snapshots, now: float, first: int = 0, only: str = "") -> _Row:
    """A flow, PAGE of its partitions from the `first` on, those that need attention before the others, and what travels
    beside its records. only: text that a partition's topics or state contain."""
    target = seen[flow.target]
    every = list_flow_reports(flow, plan, target, now)
    row = _build_flow_row(flow, plan, seen, now, every)
    reports = sorted((each for each in every if _holds(each, only)), key=_attention_first)
    record = _record(flow, plan, target)
    sync = list_sync_reports(flow, plan, target)
    beside = Counter((str(each.get("kind")), str(each.get("state"))) for each in sync)
    amiss = [each for each in sync if each.get("state") not in ("equal", "carried")]
    alerts, more_alerts = fold_alerts(every)
    orders = _read_orders(record)
    pauses = index_partition_orders(orders.pauses)
    return row | {
        "naming": flow.naming.policy,
        "offsets": flow.offsets,
        "offsets_reason": flow.offsets_reason,
        "delivery": flow.delivery,
        "guarantee": None if record is None else record.get("guarantee"),
        "latency": None if record is None else describe_latency(target.latencies.get(flow.id, {})),
        "compression": _describe_compression(record, every),
        "transform": _describe_transform(record),
        "quota": flow.quota,
        "engine": flow.engine,
        "workers": sorted({f"{report.worker}" for report in every if report.worker})[:_PAGE],
        "alerts": [each | {"level": find_state_level(each["state"])} for each in alerts],
        "more_alerts": more_alerts,
        "charts": build_charts([target.history.read(plan.topology, flow.id)] if record is not None else [], now),
        "ends": _explain_ends(flow, every),
        "first": first,
        "found": len(reports),
        "rows": [_partition(report, now, pauses) for report in reports[first : first + _PAGE]],
        "paused": [_describe_order(each, describe_pause(each)) for each in orders.pauses[:_PAGE]],
        "moved": [_describe_order(each, describe_move(each)) for each in orders.moves[:_PAGE]],
        "beside": [{"kind": kind, "state": state, "count": n} for (kind, state), n in sorted(beside.items())],
        "amiss": [{key: each.get(key) for key in ("kind", "name", "state", "why")} for each in amiss[:_BESIDE]],
        "more_amiss": max(0, len(amiss) - _BESIDE),
        "cluster": build_cluster_row(flow.target, target, now),
    }


class _PartitionOrders(NamedTuple):
    pauses: tuple[PartitionPause, ...] = ()
    moves: tuple[PartitionMove, ...] = ()


def _read_orders(record: Mapping[str, Any] | None) -> _PartitionOrders:
    """What persons ordered about single partitions; none where the record cannot be read, which workers do not obey
    either."""
    try:
        known = FlowRecord.from_json(record) if record is not None else None
    except UnreadableControlRecord:
        known = None
    return _PartitionOrders() if known is None else _PartitionOrders(known.pauses, known.moves)


def _describe_order(order: PartitionPause | PartitionMove, text: str) -> _Row:
    return {"topic": order.topic, "partition": order.partition, "text": cut_alert_text(text)}


def _describe_transform(record: Mapping[str, Any] | None) -> str:
    """What the flow's record says is done to records; empty where they travel as they are."""
    found = RecordTransform.from_json(record["flow"].get("transform")) if record is not None else None
    return found.describe() if found is not None else ""


def _describe_compression(record: Mapping[str, Any] | None, reports: Iterable[PartitionStatus]) -> str:
    """The compression that the flow's record asks for, and what it has saved; empty without one."""
    asked = EgressCompression.from_json(record["flow"].get("compression")) if record is not None else None
    if asked is None:
        return ""
    copied, saved = 0, 0
    for report in reports:
        copied, saved = copied + report.copied_bytes, saved + report.saved_bytes
    return describe_saved_bytes(asked, copied, saved)


def _explain_ends(flow: PlanFlow, reports: Iterable[PartitionStatus]) -> str:
    """Why the ends of two logs differ although everything is copied; empty where none do."""
    apart = [
        report.target_end - report.source_end
        for report in reports
        if report.lag_records == 0 and min(report.source_end, report.target_end) >= 0
    ]
    apart = [each for each in apart if each]
    if not apart:
        return ""
    told = f"{len(apart):,} partitions are copied to their end, and yet their two log ends differ. Nothing is missing. "
    why = ["Transaction markers, aborted records and records that compaction removed take an offset and are not copied"]
    if any(each > 0 for each in apart):
        why.append("the target's log may hold older records, records of other flows, and markers of its own")
    if flow.offsets == "aligned":
        why.append("with equal offsets, the end of a log that ends with such offsets follows with the next record")
    return told + "; ".join(why) + ". A proof compares the records themselves."


def _holds(report: PartitionStatus, only: str) -> bool:
    text = only.casefold()
    return any(text in each.casefold() for each in (report.topic, report.target_topic, report.state))


def find_state_level(state: str) -> str:
    """ok | busy | idle | warn | bad: the colour; a state that is not listed is a halt."""
    return _LEVELS.get(state, "bad")


def _record(flow: PlanFlow, plan: Plan, target: ClusterSnapshot) -> Mapping[str, Any] | None:
    """The desired flow; None for another topology's of the same id, which this user may not be allowed to see."""
    record = target.flows.get(flow.id)
    return record if record is not None and record.get("topology") == plan.topology else None


def list_sync_reports(flow: PlanFlow, plan: Plan, target: ClusterSnapshot) -> list[Mapping[str, Any]]:
    """What travels beside the records of a flow; empty where its record is another topology's."""
    return [] if _record(flow, plan, target) is None else list(target.sync.get(flow.id, {}).values())


def list_flow_reports(flow: PlanFlow, plan: Plan, target: ClusterSnapshot, now: float) -> list[PartitionStatus]:
    """The newest report of every partition, too old ones marked so (`mark_if_silent`); empty where the flow's record
    is another topology's. now: seconds since 1970."""
    record = _record(flow, plan, target)
    if record is None:
        return []
    now_ms, state = int(now * 1000), record.get("state")
    heard_ms = None if target.answered_at is None else int(target.answered_at * 1000)
    return [
        mark_if_silent(report, now_ms, flow_state=state, heard_ms=heard_ms)
        for report in target.reports.get(flow.id, {}).values()
    ]


def _partition(report: PartitionStatus, now: float, pauses: PartitionOrderIndex[PartitionPause]) -> _Row:
    """paused: the number of the partition that a person paused, "all" for its whole topic; None where nobody did."""
    pause = find_partition_order(pauses, report.topic, report.partition)
    return {
        "paused": None if pause is None else "all" if pause.partition is None else pause.partition,
        "topic": report.topic,
        "target_topic": report.target_topic,
        "partition": report.partition,
        "state": report.state,
        "level": find_state_level(report.state),
        "position": report.source_position,
        "source_end": report.source_end,
        "target_end": report.target_end,
        "lag_records": report.lag_records,
        "lag_ms": report.lag_ms,
        "rate_bytes": report.rate_bytes,
        "copied_bytes": report.copied_bytes,
        "error": cut_alert_text(report.error),
        "remedy": cut_alert_text(report.remedy),
        "note": cut_alert_text(report.note),
        "operations": list_remedy_operations(report.state),
        "aligning": report.aligning,
        "worker": report.worker,
        "age_ms": max(0, int(now * 1000) - report.at_ms),
    }


def _arrow(each: FlowArrow, by_id: Mapping[str, _Row]) -> _Row:
    rows = [by_id[flow] for flow in each.flows]
    state = max((row["state"] for row in rows), key=lambda each: (_RANK.index(find_state_level(each)), each))
    return {
        "key": each.key,
        "source": each.source,
        "target": each.target,
        "flow": each.flows[0] if len(each.flows) == 1 else None,
        "count": len(each.flows),
        "state": state,
        "level": find_state_level(state),
        "states": dict(Counter(row["state"] for row in rows)),
        "lag_records": _sum(row["lag_records"] for row in rows),
        "lag_is_lower_bound": any(row["lag_is_lower_bound"] for row in rows),
        "lag_ms": max((row["lag_ms"] for row in rows if row["lag_ms"] is not None), default=None),
        "rate_bytes": sum(row["rate_bytes"] for row in rows),
    }


def _totals(rows: Sequence[_Row]) -> _Row:
    return {
        "states": dict(Counter(row["state"] for row in rows)),
        "levels": dict(Counter(row["level"] for row in rows)),
        "lag_records": _sum(row["lag_records"] for row in rows),
        "lag_is_lower_bound": any(row["lag_is_lower_bound"] for row in rows),
        "lag_ms": max((row["lag_ms"] for row in rows if row["lag_ms"] is not None), default=None),
        "rate_bytes": sum(row["rate_bytes"] for row in rows),
        "partitions": sum(row["partitions"] for row in rows),
    }


def _matches(row: _Row, only: str) -> bool:
    if only == "attention":
        return row["level"] in _ATTENTION
    text = only.casefold()
    return any(text in str(row[name]).casefold() for name in ("id", "source", "target", "topics", "state"))


def _attention_first(report: PartitionStatus) -> tuple[Any, ...]:
    rank = {"bad": 0, "warn": 1}.get(find_state_level(report.state), 2)
    return (rank, not is_halted(report.state), report.topic, report.partition)


def _topics(flow: PlanFlow) -> str:
    names = [each.text for each in flow.topics.include]
    more = f" and {len(names) - _SELECTORS} more" if len(names) > _SELECTORS else ""
    return ", ".join(names[:_SELECTORS]) + more


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
