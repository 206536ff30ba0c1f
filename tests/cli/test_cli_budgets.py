"""`topology status` says how much of the budgets is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from watershed.cli.budget_standings import describe_budgets
from watershed.topology.flow_budgets import FlowBudgets, add_budget_standings, read_budgets_at

FILE = """apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: x, owner: us}
clusters: {a: {bootstrap: ["a:9092"]}, b: {bootstrap: ["b:9092"]}}
defaults: {slo: {lag: {max: 1m, p99: 5s}}}
flows: [{source: a, target: b, topics: {include: [t]}, slo: {rpo: 10m, outage_allowance: 2d}}]
"""


def describe(lag_ms: int | None) -> list[str]:
    row: dict[str, Any] = {"id": "a-to-b", "lag_ms": lag_ms}
    budgets = {"a-to-b": FlowBudgets(lag_p99=5_000, lag_max=60_000, rpo=600_000)}
    return list(describe_budgets(add_budget_standings([row], budgets)[0]))


def test_budgets_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(FILE)
    expected = FlowBudgets(lag_p99=5_000, lag_max=60_000, rpo=600_000, outage_allowance=172_800_000)
    assert read_budgets_at(tmp_path / "x.yaml") == {"a-to-b": expected}


@pytest.mark.parametrize(
    ("lag_ms", "line"),
    [
        (6_000, "budgets: slo.lag.max 1m (90% left), slo.rpo 10m (99% left)"),
        (60_000, "budgets: slo.lag.max 1m (0% left), slo.rpo 10m (90% left)"),
        (61_500, "budgets: slo.lag.max 1m (EXCEEDED by 1.5 s), slo.rpo 10m (90% left)"),
        (None, "budgets: slo.lag.max 1m (not known: nobody reports), slo.rpo 10m (not known: nobody reports)"),
    ],
)
def test_what_is_left_is_told(lag_ms: int | None, line: str) -> None:
    assert describe(lag_ms) == [line]


def test_a_flow_without_budgets_says_nothing() -> None:
    [row] = add_budget_standings([{"id": "other", "lag_ms": 5}], {})
    assert row["budgets"] == []
    assert list(describe_budgets(row)) == []
