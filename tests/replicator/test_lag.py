"""Lag in time and bytes from what the worker itself saw."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from watershed.replicator.worker.partition_lag import MAX_LAG_SAMPLES, PartitionLag


def test_nothing_is_known_before_the_first_look():
    lag = PartitionLag()
    assert lag.behind_s(0, 5.0) is None
    assert lag.bytes_behind(0) is None


def test_time_since_the_end_passed_the_copy():
    lag = PartitionLag()
    lag.observe_end(100, 1.0)
    lag.observe_end(200, 2.0)
    lag.observe_end(200, 7.0)  # nothing was appended
    assert lag.behind_s(50, 10.0) == 9.0  # waiting at least since the first inspection
    assert lag.behind_s(100, 10.0) == 8.0
    assert lag.behind_s(199, 10.0) == 8.0
    assert lag.behind_s(200, 10.0) == 0.0


def test_bytes_are_offsets_times_their_mean_size():
    lag = PartitionLag()
    lag.observe_end(1_000, 0.0)
    assert lag.bytes_behind(0) is None
    lag.fetched(10, 1_000)
    assert lag.bytes_behind(900) == 10_000
    assert lag.bytes_behind(1_000) == 0


def test_a_truncated_source_begins_anew():
    lag = PartitionLag()
    lag.observe_end(500, 0.0)
    lag.observe_end(300, 4.0)
    assert lag.behind_s(100, 6.0) == 2.0


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.01, 3)), min_size=1, max_size=3 * MAX_LAG_SAMPLES))
def test_behind_is_never_more_than_true_and_zero_only_when_nothing_waits(steps):
    lag, now, end, truth = PartitionLag(), 0.0, 0, []
    for grown, passed in steps:
        now, end = now + passed, end + grown
        truth.append((now, end))
        lag.observe_end(end, now)
    for copied in range(0, end + 1, max(end // 20, 1)):
        told = lag.behind_s(copied, now)
        true = next((now - at for at, seen in truth if seen > copied), 0.0)
        assert told is not None
        assert told <= true + 1e-9
        if copied == end:
            assert told == 0.0
