"""Lag, delay, rate and latency of the last hours, for the page's charts: kept in memory by the thread that follows a
cluster.

Time is cut into slots of CHART_SLOT_S; each series is a ring of CHART_SLOTS slots, so its size never grows. A slot in
which the cluster was not read stays empty and is shown as a gap: nothing is made up.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

CHART_SLOT_S = 30
CHART_SLOTS = 360  # three hours
CHART_SPAN_S = CHART_SLOT_S * CHART_SLOTS
_POINTS = 90  # of one chart; several slots are one point
_MOST_SERIES = 600  # of one cluster: 15 kB each
_WHOLE = ""  # in place of a flow's id: all flows of a topology

_Key = tuple[str, str]  # topology, flow
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class LagSample:
    """A flow at one moment. records: offsets that are not copied yet. delay_ms: for how long the oldest of them has
    waited. rate: bytes a second. p50_ms, p99_ms: how long half, and all but one in a hundred, of the records that were
    copied in the seconds before took at most. None: not known."""

    records: int | None
    delay_ms: int | None
    rate: float
    p50_ms: float | None = None
    p99_ms: float | None = None


class LagHistory:
    """The samples of one cluster's flows. One thread adds, others read."""

    def __init__(self) -> None:
        self._series: dict[_Key, _Series] = {}
        self._newest = -1

    def needs_sample(self, now: float) -> bool:
        """Whether the slot of `now` (seconds since 1970) is still empty."""
        return int(now) // CHART_SLOT_S != self._newest

    def add(self, now: float, samples: Mapping[_Key, LagSample]) -> None:
        """Takes one sample of every flow, by topology and flow, and what they are in all, by topology."""
        slot = self._newest = int(now) // CHART_SLOT_S
        by_topology: dict[str, list[LagSample]] = {}
        for (topology, _), sample in samples.items():
            by_topology.setdefault(topology, []).append(sample)
        wholes = {(topology, _WHOLE): add_up_samples(each) for topology, each in by_topology.items()}
        for key, sample in (wholes | dict(samples)).items():
            series = self._series.get(key)
            if series is None:
                if len(self._series) >= _MOST_SERIES and not self._forget_oldest(slot):
                    continue
                series = self._series[key] = _Series()
            series.put(slot, sample)

    def read(self, topology: str, flow: str = _WHOLE) -> dict[int, LagSample]:
        """Slot → sample of a flow, or of all flows of the topology; empty where there is none."""
        series = self._series.get((topology, flow))
        return {} if series is None else series.read()

    def _forget_oldest(self, slot: int) -> bool:
        """Drops the series that was not added to for longest; False where all are of now."""
        key = min(self._series, key=lambda each: self._series[each].last)
        if self._series[key].last >= slot - 1:
            return False
        del self._series[key]
        return True


class _Series:
    """A ring: the sample of a slot stands at the slot's number modulo CHART_SLOTS. -1: not known."""

    def __init__(self) -> None:
        self.last = -1
        self._slots = array("q", [-1]) * CHART_SLOTS
        self._records = array("q", [-1]) * CHART_SLOTS
        self._delays = array("q", [-1]) * CHART_SLOTS
        self._rates = array("d", [0.0]) * CHART_SLOTS
        self._p50s = array("f", [-1.0]) * CHART_SLOTS
        self._p99s = array("f", [-1.0]) * CHART_SLOTS

    def put(self, slot: int, sample: LagSample) -> None:
        """A rate that is no finite number counts as none: others may write reports, too."""
        at = slot % CHART_SLOTS
        self._records[at] = -1 if sample.records is None else min(sample.records, 2**62)
        self._delays[at] = -1 if sample.delay_ms is None else min(sample.delay_ms, 2**62)
        self._rates[at] = sample.rate if isfinite(sample.rate) else 0.0
        self._p50s[at] = -1.0 if sample.p50_ms is None else sample.p50_ms
        self._p99s[at] = -1.0 if sample.p99_ms is None else sample.p99_ms
        self._slots[at] = self.last = slot

    def read(self) -> dict[int, LagSample]:
        found = {}
        for at, slot in enumerate(self._slots):
            if slot > self.last - CHART_SLOTS and slot >= 0:
                found[slot] = LagSample(
                    _if_known(self._records[at]),
                    _if_known(self._delays[at]),
                    self._rates[at],
                    _if_known(self._p50s[at]),
                    _if_known(self._p99s[at]),
                )
        return found


def _if_known(value: _Number) -> _Number | None:
    return None if value < 0 else value


def add_up_samples(samples: Iterable[LagSample]) -> LagSample:
    """Several flows at one moment: records and rates in all, the longest delay, the latencies of the slowest."""
    each = list(samples)
    records = [sample.records for sample in each if sample.records is not None]
    return LagSample(
        sum(records) if records else None,
        _highest(sample.delay_ms for sample in each),
        sum(sample.rate for sample in each),
        _highest(sample.p50_ms for sample in each),
        _highest(sample.p99_ms for sample in each),
    )


def build_charts(histories: Iterable[Mapping[int, LagSample]], now: float) -> dict[str, Any]:
    """The charts of the last CHART_SPAN_S as JSON: `from_ms`, `step_ms`, and five lists of the same length, the oldest
    point first, null where nothing was read. A point holds the highest lag, delay and latencies of its slots, and the
    mean rate.
    """
    last = int(now) // CHART_SLOT_S
    per_point = CHART_SLOTS // _POINTS
    first = (last // per_point - _POINTS + 1) * per_point
    by_slot: dict[int, list[LagSample]] = {}
    for history in histories:
        for slot, sample in history.items():
            if first <= slot <= last:
                by_slot.setdefault(slot, []).append(sample)
    points: list[list[LagSample]] = [[] for _ in range(_POINTS)]
    for slot, samples in by_slot.items():
        points[(slot - first) // per_point].append(add_up_samples(samples))
    return {
        "from_ms": first * CHART_SLOT_S * 1000,
        "step_ms": per_point * CHART_SLOT_S * 1000,
        "records": [_highest(sample.records for sample in each) for each in points],
        "delay_ms": [_highest(sample.delay_ms for sample in each) for each in points],
        "rate_bytes": [round(sum(sample.rate for sample in each) / len(each)) if each else None for each in points],
        "p50_ms": [_two_digits(_highest(sample.p50_ms for sample in each)) for each in points],
        "p99_ms": [_two_digits(_highest(sample.p99_ms for sample in each)) for each in points],
    }


def _highest(values: Iterable[_Number | None]) -> _Number | None:
    return max((value for value in values if value is not None), default=None)


def _two_digits(value: float | None) -> float | None:
    """As it was computed: an array of single precision has added digits."""
    return None if value is None else float(f"{value:.2g}")
