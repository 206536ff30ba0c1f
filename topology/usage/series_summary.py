"""A series in a few numbers: mean, p95, maximum, and how much of the period they are of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from watershed.topology.usage.history import UsagePeriod

_P95 = 0.95
_MOST_GAPS = 5  # that are named; the rest is counted


@dataclass(frozen=True, slots=True)
class UsageGap:
    """An unbroken time without values, in seconds since 1970; end_s is not part of it."""

    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """Of intervals that have a value; None where none has. peak_s: when the interval of the maximum begins. covered:
    share of the period's intervals that have a value, 0 to 1. gaps: the longest first. gap_count: of all. lacking:
    intervals in which a part of what was summed has no value, so that the sum is too small."""

    mean: float | None
    p95: float | None
    maximum: float | None
    last: float | None
    peak_s: int | None
    covered: float
    gaps: tuple[UsageGap, ...] = ()
    gap_count: int = 0
    lacking: int = 0


def summarise_series(values: Sequence[float], period: UsagePeriod, lacking: int = 0) -> SeriesSummary:
    """p95 is the nearest rank: the smallest value that 95 % of the values do not exceed."""
    known = sorted(value for value in values if not math.isnan(value))
    gaps = find_gaps(values, period)
    shown = tuple(sorted(gaps, key=lambda gap: (gap.start_s - gap.end_s, gap.start_s))[:_MOST_GAPS])
    if not known:
        return SeriesSummary(None, None, None, None, None, 0.0, shown, len(gaps), lacking)
    largest = known[-1]
    return SeriesSummary(
        mean=math.fsum(known) / len(known),
        p95=known[math.ceil(_P95 * len(known)) - 1],
        maximum=largest,
        last=next(value for value in reversed(values) if not math.isnan(value)),
        peak_s=period.start_s + list(values).index(largest) * period.step_s,
        covered=len(known) / max(period.intervals, 1),
        gaps=shown,
        gap_count=len(gaps),
        lacking=lacking,
    )


def find_gaps(values: Sequence[float], period: UsagePeriod) -> list[UsageGap]:
    """In the order of time."""
    found: list[UsageGap] = []
    began: int | None = None
    for index, value in enumerate([*values, 0.0]):
        at = period.start_s + index * period.step_s
        if math.isnan(value):
            began = at if began is None else began
        elif began is not None:
            found.append(UsageGap(began, at))
            began = None
    return found


def find_quietest_hour(values: Sequence[float], period: UsagePeriod) -> int | None:
    """The hour of the day (UTC, 0 to 23) with the smallest mean; None where not every hour has a value, or where an
    interval is longer than an hour."""
    if period.step_s > 3_600:
        return None
    sums, counts = [0.0] * 24, [0] * 24
    for index, value in enumerate(values):
        if not math.isnan(value):
            hour = (period.start_s + index * period.step_s) // 3_600 % 24
            sums[hour] += value
            counts[hour] += 1
    if not all(counts):
        return None
    means = [total / count for total, count in zip(sums, counts, strict=True)]
    return means.index(min(means))
