"""`topology status`: what every flow and partition is doing."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
from watershed.cutover.operations.moved_applications import describe_moved_applications
from watershed.topology.external_flows import render_external_flows
from watershed.topology.flow_budgets import add_budget_standings, read_budgets_at
from watershed.topology.shell_command import quote_shell_argument

if TYPE_CHECKING:
    from watershed.clusters.flow_records import FlowRecord
    from watershed.clusters.partition_status_records import PartitionStatus
    from watershed.clusters.settings import ConnectionSettings
    from watershed.topology.plan import Plan

_ALIKE = 3  # partitions of which the same is told are told one by one up to so many


@click.command(epilog="Example: topology status orders.yaml --watch")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="A live table, until Ctrl-C; with --format json a document a second.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(path: Path, watch: bool, form: str) -> int:
    """State, lag and rate of every flow, partition by partition where something is wrong.

    Read from the target clusters alone. A partition whose worker has said nothing for 15 s is `silent`: nobody
    serves it. One that was halted stays so: it needs a decision, whoever serves it. Meanwhile the time behind grows,
    unless the flow was stopped.
    """
    plan = compile_plan_at(path)
    connect = build_settings_lookup(plan)
    targets = {flow.target: connect(flow.target) for flow in plan.flows}
    others = render_external_flows(plan.external_flows)
    budgets = read_budgets_at(path)

    def read_rows() -> list[dict[str, Any]]:
        return add_budget_standings(_flows(plan, targets, path), budgets)

    if watch and form == "text" and sys.stdout.isatty():
        from watershed.cli.status_table import watch_flows

        return watch_flows(plan.topology, read_rows, others=others)
    from watershed.clusters.errors import ClusterError

    while True:
        try:
            flows = read_rows()
        except ClusterError as error:
            if not watch:
                raise
            click.echo(f"not read: {error}", err=True)
            time.sleep(1)
            continue
        if form == "json":
            told = {
                "schema": 1,
                "topology": plan.topology,
                "flows": flows,
                "copied_by_others": [each.to_json() for each in plan.external_flows],
                "moved": describe_moved_applications(plan, connect),
            }
            click.echo(json.dumps(told, indent=2))
        else:
            click.echo(_table(flows))
            for line in (*others, *describe_moved_applications(plan, connect)):
                click.echo(line)
        if not watch:
            return 0
        time.sleep(1)


def _flows(plan: Plan, targets: dict[str, ConnectionSettings], path: Path) -> list[dict[str, Any]]:
    from watershed.clusters.budget_breaches import describe_breach, pick_open_breach, read_budget_breaches
    from watershed.clusters.flow_records import read_flows
    from watershed.clusters.latency_buckets import describe_latency
    from watershed.clusters.partition_status_records import read_status_reports
    from watershed.clusters.worker_heartbeats import add_worker_latencies
    from watershed.replicator.worker.flow_state import is_lag_lower_bound, pick_worst_state

    now = int(time.time() * 1000)  # before the reading: what is older than it by that time is not silent
    desired = {flow_id: record for each in targets.values() for flow_id, record in read_flows(each).items()}
    breaches = {flow: breach for each in targets.values() for flow, breach in read_budget_breaches(each).items()}
    read = [read_status_reports(each) for each in targets.values()]
    reports = [report for each in read for report in each.partitions]
    beside = [report for each in read for report in each.beside]
    heartbeats = [heartbeat for each in read for heartbeat in each.heartbeats]
    latencies = add_worker_latencies(heartbeats, now)
    versions = {heartbeat.worker: heartbeat.version for heartbeat in heartbeats}
    rows = []
    for flow in plan.flows:
        record = desired.get(flow.id)
        partitions = [_partition(report, now, path, record) for report in reports if report.flow == flow.id]
        lags = [row["lag_records"] for row in partitions if row["lag_records"] is not None]
        waits = [row["lag_ms"] for row in partitions if row["lag_ms"] is not None]
        states = {row["state"] for row in partitions}
        wanted = record.state if record else "not applied"
        breach = pick_open_breach(record, breaches)
        if breach is not None and breach.action == "pause" and wanted == "running":
            wanted = "paused"
        state = wanted if wanted != "running" else pick_worst_state(states or {"starting"})
        rows.append(
            {
                "id": flow.id,
                "state": state,
                "desired": wanted,
                "guarantee": record.guarantee if record else None,
                "lag_records": sum(lags) if lags else None,
                "lag_is_lower_bound": is_lag_lower_bound(state, states, (row["lag_records"] for row in partitions)),
                "lag_bytes": _sum(row["lag_bytes"] for row in partitions),
                "lag_ms": max(waits) if waits else None,
                "event_age_ms": max((row["event_age_ms"] or 0 for row in partitions), default=None),
                "latency": describe_latency(latencies.get(flow.id, {})),
                "open_records": sum(row["open_records"] for row in partitions),
                "rate_bytes": sum(row["rate_bytes"] for row in partitions),
                "compression": record.flow.compression.to_json() if record and record.flow.compression else None,
                "transform": record.flow.transform.describe() if record and record.flow.transform else None,
                "copied_bytes": sum(row["copied_bytes"] for row in partitions),
                "saved_bytes": sum(row["saved_bytes"] for row in partitions),
                "end": str(record.flow.end) if record and record.flow.end is not None else None,
                "retired": sorted(record.retired) if record else [],
                "paused": [asdict(each) for each in record.pauses] if record else [],
                "breach": asdict(breach) | {"text": describe_breach(breach)} if breach is not None else None,
                "moved": [asdict(each) for each in record.moves] if record else [],
                "versions": sorted({versions.get(row["worker"], "") or "unknown" for row in partitions}),
                "partitions": partitions,
                "sync": [report.to_json() for report in beside if report.flow == flow.id],
            }
        )
    return rows


def _partition(report: PartitionStatus, now: int, path: Path, record: FlowRecord | None) -> dict[str, Any]:
    from watershed.replicator.worker.flow_state import is_silent, mark_if_silent

    row = mark_if_silent(report, now, flow_state=record.state if record is not None else None).to_json()
    row["silent"] = is_silent(report, now)
    if report.remedy is not None:
        row["remedy"] = re.sub(r"\bFILE\b", lambda _: quote_shell_argument(path), report.remedy)  # ready to be typed
    return row


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _table(flows: list[dict[str, Any]]) -> str:
    from watershed.cli.copy_mode_text import describe_single_batch_mode
    from watershed.cli.flow_record_text import describe_flow_record, render_flow_lag
    from watershed.cli.sync_text import describe_flow_sync

    width = max([32, *(len(flow["id"]) for flow in flows)])
    lines = [f"{'flow':<{width}} {'state':<20} {'partitions':>10} {'lag':>12} {'behind':>9} {'rate':>11}"]
    for flow in flows:
        lag = render_flow_lag(flow, sized=False)
        behind = "-" if flow["lag_ms"] is None else f"{flow['lag_ms'] / 1000:,.1f} s"
        rate = f"{flow['rate_bytes'] / 1e6:,.1f} MB/s"
        count = len(flow["partitions"])
        lines.append(f"{flow['id']:<{width}} {flow['state']:<20} {count:>10} {lag:>12} {behind:>9} {rate:>11}")
        lines += [f"  {line}" for line in describe_flow_record(flow)]
        if len(flow["versions"]) > 1:
            lines.append(f"  workers of several versions: {', '.join(flow['versions'])}")
        if old := describe_single_batch_mode(flow):
            lines.append(f"  {old}")
        lines += [f"  {line}" for line in describe_flow_sync(flow)]
        lines += _render_partitions(flow["partitions"])
    return "\n".join(lines)


def _render_partitions(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What there is to tell of single partitions. More than _ALIKE of which the same is told are one entry."""
    from watershed.cli.alignment_progress import render_alignment_progress
    from watershed.replicator.worker.flow_state import describe_likeness

    for row in rows:
        if row.get("aligning"):
            yield f"  {_name(row)}: {render_alignment_progress(row['aligning'])}"
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        names = row["flow"], row["topic"], row["target_topic"]
        told = [describe_likeness(row[field], names) for field in ("error", "remedy", "note")]
        if any(told):
            alike.setdefault((row["state"], *told), []).append(row)
    for group in alike.values():
        if len(group) <= _ALIKE:
            for row in group:
                yield from _render_partition(row, _name(row))
        else:
            named = ", ".join(map(_name, group[:_ALIKE]))
            yield from _render_partition(group[0], f"{named} and {len(group) - _ALIKE:,} more alike; the first")


def _render_partition(row: dict[str, Any], name: str) -> Iterator[str]:
    if row["error"]:
        yield f"  {name}: {row['state']}: {row['error']}"
    if row["remedy"]:
        yield f"    what to do: {row['remedy']}"
    if row["note"]:
        yield f"  {name}: note: {row['note']}"


def _name(row: dict[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"
