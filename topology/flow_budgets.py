"""What a flow promises about time (`slo` in the file): the budgets as plain numbers, and how each stands now.

docs/decisions/0130-what-a-budget-means.md says exactly what each budget means and how it is watched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from watershed.topology.loader import load_topology
from watershed.topology.model import Flow

OUTAGE_WARNING_SHARE: Final = 0.5  # of `slo.outage_allowance`: the other half is for repairing
LONGEST_MEASURED_LATENCY_MS: Final = 3_355_443  # the end of the last bucket of the exported histograms


@dataclass(frozen=True, slots=True)
class FlowBudgets:
    """The budgets of a flow in milliseconds; None where the file declares none."""

    lag_p99: int | None = None
    lag_max: int | None = None
    end_to_end_max: int | None = None
    outage_allowance: int | None = None
    rpo: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """How a budget stands. path: the key in the file. limit_ms: what it allows. used_ms: what is used now; None where
    nobody knows it."""

    path: str
    limit_ms: int
    used_ms: int | None

    @property
    def is_exceeded(self) -> bool:
        """Whether more is used than the file allows."""
        return self.used_ms is not None and self.used_ms > self.limit_ms

    @property
    def left_ms(self) -> int | None:
        """What is left, below zero when the budget is exceeded; None where nobody knows what is used."""
        return None if self.used_ms is None else self.limit_ms - self.used_ms

    def to_json(self) -> dict[str, Any]:
        """As `topology status --format json` and the page tell it."""
        return {
            "path": self.path,
            "limit_ms": self.limit_ms,
            "used_ms": self.used_ms,
            "left_ms": self.left_ms,
            "exceeded": self.is_exceeded,
        }


def read_budgets_at(path: Path) -> dict[str, FlowBudgets]:
    """By flow, the budgets that the file declares. Raises UnreadableTopology."""
    topology = load_topology(path).topology
    return {flow.id: read_flow_budgets(flow) for flow in topology.flows} if topology is not None else {}


def read_flow_budgets(flow: Flow) -> FlowBudgets:
    """The budgets that the file declares for the flow, `defaults` included."""
    get = flow.settings.get
    return FlowBudgets(
        lag_p99=get("slo", "lag", "p99"),
        lag_max=get("slo", "lag", "max"),
        end_to_end_max=get("slo", "end_to_end", "max"),
        outage_allowance=get("slo", "outage_allowance"),
        rpo=get("slo", "rpo"),
    )


def list_budget_standings(budgets: FlowBudgets, lag_ms: int | None) -> Iterator[BudgetStanding]:
    """The budgets that the lag alone decides, in the order of the language's reference. lag_ms: how long the oldest
    uncopied record of the flow has been waiting. The other budgets need the past, which Prometheus keeps."""
    for path, limit in (
        ("slo.lag.max", budgets.lag_max),
        ("slo.outage_allowance", budgets.outage_allowance),
        ("slo.rpo", budgets.rpo),
    ):
        if limit:  # nothing is left of zero, whatever the lag is: rule SLO703 says so
            yield BudgetStanding(path, limit, lag_ms)


def add_budget_standings(rows: list[dict[str, Any]], budgets: Mapping[str, FlowBudgets]) -> list[dict[str, Any]]:
    """Rows of flows (`id`, `lag_ms`) with the field `budgets`, a list of BudgetStanding.to_json(). Times are in
    milliseconds; `used_ms` and `left_ms` are null where the lag is not known."""
    for row in rows:
        standings = list_budget_standings(budgets.get(row["id"], FlowBudgets()), row["lag_ms"])
        row["budgets"] = [each.to_json() for each in standings]
    return rows
