"""Latencies in buckets: how wrong a percentile may be, and what of a topic is believed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.latency_buckets import (
    BUCKET_COUNT,
    add_latency_counts,
    compute_bucket_end_ms,
    compute_latency_percentile,
    describe_latency,
    find_latency_bucket,
)


@given(st.lists(st.floats(0.0001, 3600), min_size=1, max_size=200), st.sampled_from([0.5, 0.99, 1.0]))
def test_a_percentile_is_wrong_by_a_tenth_and_the_rounding_at_most(seconds: list[float], share: float) -> None:
    counts = Counter(find_latency_bucket(each) for each in seconds)
    ordered = sorted(seconds)
    true = 1000 * next(each for at, each in enumerate(ordered, 1) if at >= share * len(ordered))
    found = compute_latency_percentile(counts, share)
    assert found is not None
    assert true / 1.15 < found < true * 1.15


@given(st.floats(0, 10_000))
def test_a_bucket_holds_what_it_says(seconds: float) -> None:
    bucket = find_latency_bucket(seconds)
    assert bucket == BUCKET_COUNT - 1 or seconds * 1000 <= compute_bucket_end_ms(bucket) * (1 + 1e-9)
    assert bucket == 0 or seconds * 1000 > compute_bucket_end_ms(bucket - 1) * (1 - 1e-9)


def test_without_records_there_is_no_latency() -> None:
    assert compute_latency_percentile({}, 0.5) is None
    assert describe_latency({}) is None
    assert describe_latency({0: 99, 40: 1}) == {"p50_ms": 0.092, "p99_ms": 0.092, "records": 100}


@pytest.mark.parametrize("counts", [{-7: 1}, {3: -5}, {3: 0}, {10**30: 1}, {3: 10**400}])
def test_whatever_stands_in_a_topic_is_counted_or_left_out(counts: dict[int, int]) -> None:
    added = add_latency_counts([counts, {1: 2}])
    assert set(added) <= set(range(BUCKET_COUNT))
    assert min(added.values()) > 0
    assert compute_latency_percentile(added, 0.99) is not None
