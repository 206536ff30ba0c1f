"""The history of a cluster's use, as a source gave it: series by topic with gaps, and what has to be said about them.

A value that is not there is NaN. Nothing is put in its place: neither zero nor what stands beside it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

UsageMetric = Literal["bytes_in", "bytes_out", "messages_in", "stored", "partitions"]
RATE_METRICS: Final[tuple[UsageMetric, ...]] = ("bytes_in", "bytes_out", "messages_in")
WHOLE_CLUSTER: Final = ""  # in place of a topic's name, where a source has no figures by topic
NO_VALUE: Final = math.nan
MAX_HISTORY_VALUES: Final = 40_000_000  # 8 bytes each: 320 MB


@dataclass(frozen=True, slots=True)
class UsagePeriod:
    """From start_s (included) to end_s (seconds since 1970), in intervals of step_s seconds; a whole number of them."""

    start_s: int
    end_s: int
    step_s: int

    @property
    def intervals(self) -> int:
        """How many there are."""
        return (self.end_s - self.start_s) // self.step_s

    def find_interval(self, at_s: float) -> int | None:
        """The number of the interval that holds this moment; None outside of the period."""
        return int((at_s - self.start_s) // self.step_s) if self.start_s <= at_s < self.end_s else None

    def make_values(self) -> array[float]:
        """A value for each interval, none of them known."""
        return array("d", [NO_VALUE]) * self.intervals


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """One metric of one topic: a mean for each interval. bytes_in, bytes_out: bytes a second; messages_in: records a
    second; stored: bytes of the leaders' logs; partitions: a number."""

    metric: UsageMetric
    topic: str
    period: UsagePeriod
    values: array[float]


@dataclass(frozen=True, slots=True)
class CostLine:
    """What was paid for one kind of use over the period, by the provider's own account."""

    usage: str
    amount: float
    currency: str


@dataclass(frozen=True, slots=True)
class ClusterHistory:
    """What one source knows of a cluster. source: in words. series: by metric and topic. on_disks: bytes on all
    brokers' disks, copies among them. notes: what is missing or doubtful, in sentences. resets: counters that began
    again. partial: intervals that were left out because not all brokers reported all the time. failure: why there is no
    history at all; "" where there is. costs: what was paid in the period; None where the source has no account."""

    alias: str
    source: str
    period: UsagePeriod
    series: Mapping[tuple[UsageMetric, str], UsageSeries] = field(default_factory=lambda: MappingProxyType({}))
    brokers: int | None = None
    on_disks: int | None = None
    resets: int = 0
    partial: int = 0
    notes: tuple[str, ...] = ()
    failure: str = ""
    costs: tuple[CostLine, ...] | None = None

    def list_topics(self) -> tuple[str, ...]:
        """Topics with any figure, sorted; empty where the source has none by topic."""
        return tuple(sorted({topic for _, topic in self.series if topic != WHOLE_CLUSTER}))


def sum_values(series: Iterable[Sequence[float]], period: UsagePeriod) -> tuple[array[float], int]:
    """The sum for each interval, and how many intervals lack some of the series although they have others. A sum there
    is of those that have a value; an interval that none of them has stays without one."""
    total, counted = period.make_values(), array("l", [0]) * period.intervals
    together = 0
    for values in series:
        together += 1
        for index, value in enumerate(values):
            if not math.isnan(value):
                total[index] = value if counted[index] == 0 else total[index] + value
                counted[index] += 1
    return total, sum(0 < count < together for count in counted)
