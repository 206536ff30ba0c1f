"""How far a copy would have fallen behind, had it run through the history at a given rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from watershed.topology.usage.history import UsagePeriod

PAUSE_S = 600  # a worker's update or a broker's restart, at the worst moment


@dataclass(frozen=True, slots=True)
class LagForecast:
    """largest: bytes that wait at the worst moment. longest_s: the longest time until the flow is level again; None: it
    is still behind at the end. behind: share of the known intervals at whose end something waits, 0 to 1.
    after_pause_s: how long the flow catches up after a pause of `PAUSE_S` at the peak; None: never."""

    largest: float
    longest_s: float | None
    behind: float
    after_pause_s: float | None


def forecast_lag(values: Sequence[float], period: UsagePeriod, copy_rate: float) -> LagForecast | None:
    """values and copy_rate in bytes a second. What waits at the end of an interval is what waited before, plus what was
    written, minus what can be copied, and never less than nothing. An interval without a value changes nothing. None
    where no interval has a value.

    Bursts within an interval are not seen: the mean of the interval is taken as its rate.
    """
    waiting = largest = 0.0
    behind = known = run = longest = 0
    for value in values:
        if math.isnan(value):
            run += 1 if waiting else 0
            continue
        known += 1
        waiting = max(0.0, waiting + (value - copy_rate) * period.step_s)
        largest = max(largest, waiting)
        run = run + 1 if waiting else 0
        behind += bool(waiting)
        longest = max(longest, run)
    if not known:
        return None
    peak = max(value for value in values if not math.isnan(value))
    return LagForecast(
        largest=largest,
        longest_s=None if waiting else float(longest * period.step_s),
        behind=behind / known,
        after_pause_s=PAUSE_S * peak / (copy_rate - peak) if peak < copy_rate else None,
    )
