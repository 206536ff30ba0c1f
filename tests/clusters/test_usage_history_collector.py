"""The bound of a history in memory, and what reaching it costs."""

from __future__ import annotations

import time

import pytest

from watershed.clusters.usage import history_collector
from watershed.clusters.usage.history_collector import HistoryCollector, UsageTooLarge
from watershed.topology.usage.history import UsagePeriod

PERIOD = UsagePeriod(0, 600, 300)


def test_more_values_than_are_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_collector, "MAX_HISTORY_VALUES", 4)
    collector = HistoryCollector("onprem", "a test", PERIOD, PERIOD)
    for topic in ("a", "b", "a"):
        collector.add_value("bytes_in", topic, 10.0, 1.0)
    with pytest.raises(UsageTooLarge, match="more than 4 values"):
        collector.add_value("bytes_out", "a", 10.0, 1.0)


def test_a_series_costs_no_look_at_all_others() -> None:
    collector = HistoryCollector("onprem", "a test", PERIOD, PERIOD)
    began = time.process_time()
    for number in range(20_000):
        collector.add_value("bytes_in", f"t{number}", 10.0, 1.0)
    assert time.process_time() - began < 2  # a look at all others took more than 3 s
