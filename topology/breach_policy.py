"""What workers do about a budget that is exceeded (`slo.on_breach`): nothing, let the flow pause, or let it halt.

Only `slo.lag.max` acts. A flow that stands still makes every other budget worse, or a worker cannot know that budget
(docs/decisions/0131-budgets-that-act.md).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from watershed.topology.quantities import render_duration

BreachAction = Literal["pause", "fail"]
ACTING_BUDGET: Final = "slo.lag.max"
BREACH_HOLD_S: Final = 30  # for so long a record waits too long before the flow is stopped; alerts hold as long


@dataclass(frozen=True, slots=True)
class BreachPolicy:
    """action: `pause` stops the copying until a person lets it go on; `fail` also makes it a halt, so that alerts,
    runs and tasks fail by it. lag_max_ms: `slo.lag.max` in milliseconds, above 0."""

    action: BreachAction
    lag_max_ms: int

    def to_json(self) -> dict[str, Any]:
        """As it stands in the plan."""
        return asdict(self)

    def describe(self) -> str:
        """What becomes of the flow, as `topology plan` says it."""
        done = "is paused" if self.action == "pause" else "halts"
        return (
            f"{done} when a record waits longer than {render_duration(self.lag_max_ms)} (`{ACTING_BUDGET}`) for "
            f"{BREACH_HOLD_S} s, until a person resumes it"
        )

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> BreachPolicy | None:
        """The inverse of `to_json`. Raises TypeError for anything else."""
        return None if value is None else cls(**value)
