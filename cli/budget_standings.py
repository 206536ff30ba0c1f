"""The budgets of a file (`slo`) in `topology status`: what the lag alone decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from watershed.topology.quantities import render_duration


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
