"""The budgets of a file (`slo`) in `topology status`: what the lag alone decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from watershed.topology.flow_budgets import BudgetStanding, FlowBudgets, list_budget_standings, read_flow_budgets
from watershed.topology.quantities import render_duration


def read_budgets_at(path: Path) -> dict[str, FlowBudgets]:
    """By flow, the budgets that the file declares. Raises UnreadableTopology."""
    from watershed.topology.loader import load_topology

    topology = load_topology(path).topology
    return {flow.id: read_flow_budgets(flow) for flow in topology.flows} if topology is not None else {}


def add_budget_standings(rows: list[dict[str, Any]], budgets: Mapping[str, FlowBudgets]) -> list[dict[str, Any]]:
    """Rows of `topology status` with the field `budgets`. Times are in milliseconds; `used_ms` and `left_ms` are null
    where the lag is not known."""
    for row in rows:
        standings = list_budget_standings(budgets.get(row["id"], FlowBudgets()), row["lag_ms"])
        row["budgets"] = [_to_json(each) for each in standings]
    return rows


def describe_budgets(row: Mapping[str, Any]) -> Iterator[str]:
    """One line for all budgets of a flow; nothing where it has none."""
    told = [
        f"{each['path']} {render_duration(each['limit_ms'])} {_describe_rest(each)}" for each in row.get("budgets", ())
    ]
    if told:
        yield f"budgets: {', '.join(told)}"


def _describe_rest(budget: Mapping[str, Any]) -> str:
    left = budget["left_ms"]
    if left is None:
        return "(not known: nobody reports)"
    return f"(EXCEEDED by {-left / 1000:,.1f} s)" if budget["exceeded"] else f"({left / budget['limit_ms']:.0%} left)"


def _to_json(standing: BudgetStanding) -> dict[str, Any]:
    return {
        "path": standing.path,
        "limit_ms": standing.limit_ms,
        "used_ms": standing.used_ms,
        "left_ms": standing.left_ms,
        "exceeded": standing.is_exceeded,
    }
