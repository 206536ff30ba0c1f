"""Puts what a source answers into series, within a bound, and keeps what has to be said about it."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

from watershed.clusters.errors import ClusterError
from watershed.topology.usage.history import (
    MAX_HISTORY_VALUES,
    ClusterHistory,
    CostLine,
    UsageMetric,
    UsagePeriod,
    UsageSeries,
)


class UsageTooLarge(ClusterError):
    """More series and intervals than are kept in memory."""


class UnusableInterval(ClusterError):
    """A source keeps no values for intervals of this length, or not for so long."""


@dataclass
class HistoryCollector:
    """Grows while a source is read. gauge_period: of logs and partitions, which change slowly."""

    alias: str
    source: str
    period: UsagePeriod
    gauge_period: UsagePeriod
    brokers: int | None = None
    on_disks: int | None = None
    resets: int = 0
    partial: frozenset[int] = frozenset()
    notes: list[str] = field(default_factory=list)
    costs: tuple[CostLine, ...] | None = None
    _values: dict[tuple[UsageMetric, str], array[float]] = field(default_factory=dict)
    _held: int = 0  # values in all series

    def get_period(self, metric: UsageMetric) -> UsagePeriod:
        """In which intervals a metric is kept."""
        return self.gauge_period if metric in ("stored", "partitions") else self.period

    def add_value(self, metric: UsageMetric, topic: str, at_s: float, value: float, *, together: bool = False) -> None:
        """at_s: a moment within the interval. together: values of one interval are added up (those of several brokers).
        What lies outside of the period, and what is no finite number, is not kept. Raises UsageTooLarge."""
        index = self.get_period(metric).find_interval(at_s)
        if index is None or not math.isfinite(value):
            return
        values = self._values.get((metric, topic))
        if values is None:
            values = self._make_values(metric, topic)
        before = values[index]
        values[index] = before + value if together and not math.isnan(before) else value

    def add_note(self, note: str) -> None:
        """A sentence for the report; each once."""
        if note not in self.notes:
            self.notes.append(note)

    def has_metric(self, metric: UsageMetric) -> bool:
        """Whether any series of it has a value."""
        return any(name == metric for name, _ in self._values)

    def build_history(self) -> ClusterHistory:
        """The history, without the rates of partial intervals."""
        self._leave_out_partial()
        for metric, words in _METRIC_WORDS.items():
            if not self.has_metric(metric):
                self.add_note(f"The source has no {words} for this cluster in the period.")
        series = {
            key: UsageSeries(*key, self.get_period(key[0]), values) for key, values in sorted(self._values.items())
        }
        return ClusterHistory(
            alias=self.alias,
            source=self.source,
            period=self.period,
            series=series,
            brokers=self.brokers,
            on_disks=self.on_disks,
            resets=self.resets,
            partial=len(self.partial),
            notes=tuple(self.notes),
            costs=self.costs,
        )

    def _make_values(self, metric: UsageMetric, topic: str) -> array[float]:
        made = self.get_period(metric).make_values()
        if self._held + len(made) > MAX_HISTORY_VALUES:
            raise UsageTooLarge(
                f"cluster {self.alias}: more than {MAX_HISTORY_VALUES:,} values ({len(self._values):,} series of "
                f"{self.period.intervals:,} intervals). Take a longer --interval or a shorter --since.",
                alias=self.alias,
            )
        self._values[metric, topic] = made
        self._held += len(made)
        return made

    def _leave_out_partial(self) -> None:
        for (metric, _), values in self._values.items():
            if self.get_period(metric) is self.period and metric not in ("stored", "partitions"):
                for index in self.partial:
                    values[index] = math.nan


_METRIC_WORDS: dict[UsageMetric, str] = {
    "bytes_in": "bytes in",
    "bytes_out": "bytes out",
    "messages_in": "messages in",
    "stored": "sizes of logs",
    "partitions": "numbers of partitions",
}
