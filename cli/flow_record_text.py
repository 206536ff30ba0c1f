"""What `topology status` says of a flow's record, in the table and in the live one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from watershed.cli.budget_standings import describe_budgets
from watershed.clusters.budget_breaches import build_answer_command
from watershed.clusters.partition_orders import (
    PartitionMove,
    PartitionPause,
    describe_move,
    describe_pause,
    find_partition_order,
    index_partition_orders,
    is_chosen_worker,
)
from watershed.topology.egress_compression import EgressCompression, describe_saved_bytes
from watershed.topology.rounded_amounts import render_decimal_size


def describe_flow_record(flow: dict[str, Any]) -> list[str]:
    """What the flow was promised, what it let go of, and that nobody serves it. flow: a row of `topology status`."""
    lines = []
    if flow.get("guarantee"):
        lines.append(f"guarantee: {flow['guarantee']}")
    if compression := EgressCompression.from_json(flow.get("compression")):
        lines.append(f"compression: {describe_saved_bytes(compression, flow['copied_bytes'], flow['saved_bytes'])}")
    if flow.get("transform"):
        lines.append(f"transform: {flow['transform']}")
    if latency := flow.get("latency"):
        lines.append(f"latency that copying adds: p50 {latency['p50_ms']:,g} ms, p99 {latency['p99_ms']:,g} ms")
    lines += describe_budgets(flow)
    if breach := flow.get("breach"):
        lines.append(f"{breach['text']}; `{build_answer_command(flow['id'])}` lets it go on")
    if flow.get("end"):
        lines.append(f"ends at {flow['end']}; nothing behind it is copied")
    if flow.get("retired"):
        lines.append(f"applications have moved, so it no longer copies: {', '.join(flow['retired'])}")
    lines += _describe_pauses(flow)
    lines += _describe_moves(flow)
    if flow["desired"] == "running" and not flow["partitions"]:
        lines.append(
            "no worker reports a partition of it: no topic matches, no worker runs, or its log says what fails"
        )
    return lines


def _describe_pauses(flow: dict[str, Any]) -> Iterator[str]:
    """Each pause; and that workers of an earlier version pause more, because they read the flow as a paused one."""
    pauses = index_partition_orders(PartitionPause(**each) for each in flow.get("paused", ()))
    yield from map(describe_pause, pauses.values())
    more = [
        f"{row['topic']}-{row['partition']}"
        for row in flow["partitions"]
        if pauses and row["state"] == "paused" and not find_partition_order(pauses, row["topic"], row["partition"])
    ]
    if more and flow["desired"] == "running":
        yield (
            f"{len(more)} more partitions stand still ({', '.join(more[:3])}{', …' if len(more) > 3 else ''}): their "
            "workers are of a version that knows no pauses of single partitions; `topology fleet restart` replaces them"
        )


def _describe_moves(flow: dict[str, Any]) -> Iterator[str]:
    """Each move with what has become of it, as workers report the partitions that it holds for."""
    moves = index_partition_orders(PartitionMove(**each) for each in flow.get("moved", ()))
    for move in moves.values():
        about = [r for r in flow["partitions"] if find_partition_order(moves, r["topic"], r["partition"]) is move]
        others = sorted({row["worker"] for row in about if not is_chosen_worker(row["worker"], move.worker)})
        yield describe_move(move) + (
            f"; served by {', '.join(others)}, until worker {move.worker} is there" if others else ""
        )


def render_flow_lag(flow: Mapping[str, Any], *, sized: bool = True) -> str:
    """`1,204 (3.1 MB)`, `-` when not known, `≥ 1,204` where it may be more. flow: a row of `topology status --format
    json`."""
    records, size = flow["lag_records"], flow["lag_bytes"] if sized else None
    if records is None:
        return "-"
    least = "≥ " if flow["lag_is_lower_bound"] else ""
    return f"{least}{records:,}" + (f" ({render_decimal_size(size)})" if size else "")
