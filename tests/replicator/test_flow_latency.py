"""What a worker's heartbeat says of latencies: of the last seconds, and nothing of flows that rest."""

from __future__ import annotations

from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.latency_buckets import (
    BUCKET_COUNT,
    DOUBLING_COUNT,
    find_latency_bucket,
    fold_latency_buckets,
    list_doubling_ends_s,
)
from watershed.replicator.copy.flow_latency import WINDOW_S, FlowLatencies, measure_age_s

FAST, SLOW = find_latency_bucket(0.002), find_latency_bucket(0.5)


def test_a_heartbeat_tells_of_at_least_one_window_and_at_most_two() -> None:
    latencies = FlowLatencies()
    assert latencies.read_recent(100.0) == {}
    latencies.of("a").add(0.5, 7)
    latencies.of("b")
    seen = {}
    for second in range(1, int(3 * WINDOW_S)):
        seen[second] = latencies.read_recent(100.0 + second)
    told = [second for second, found in seen.items() if found]
    assert all(seen[second] == {"a": {SLOW: 7}} for second in told)
    assert WINDOW_S <= len(told) <= 2 * WINDOW_S
    assert told == list(range(1, len(told) + 1)), "and then it is silent again"


def test_what_was_counted_in_both_halves_is_added() -> None:
    latencies = FlowLatencies()
    latencies.read_recent(100.0)
    latencies.of("a").add(0.002, 1)
    latencies.read_recent(100.0 + WINDOW_S)
    latencies.of("a").add(0.002, 2)
    latencies.of("a").add(0.5, 1)
    assert latencies.read_recent(101.0 + WINDOW_S) == {"a": {FAST: 3, SLOW: 1}}
    assert latencies.read_recent(100.0 + 2 * WINDOW_S) == {"a": {FAST: 2, SLOW: 1}}


def test_totals_count_from_the_beginning_in_doublings() -> None:
    latencies = FlowLatencies()
    latencies.of("a").add(0.002, 100, 5.0)
    latencies.of("a").add(0.5, 2)
    latencies.of("rests")
    totals = latencies.read_totals()
    assert totals.keys() == {"a"}
    assert totals["a"].records == 102
    assert totals["a"].through == {5: 100, 13: 2}, "up to 3.2 ms, up to 819.2 ms"
    assert round(totals["a"].through_s, 6) == 1.2
    assert (totals["a"].ages, totals["a"].age_s) == ({16: 100}, 500.0), "those without a timestamp have no age"
    assert latencies.read_totals(["b"]) == {}


def test_a_timestamp_in_the_future_is_no_age_and_one_of_old_kafka_is_not_known() -> None:
    latencies = FlowLatencies()
    assert measure_age_s(1_000, -1) is None
    assert measure_age_s(5_000, 3_500) == 1.5
    latencies.of("a").add(0.002, 3, measure_age_s(1_000, 9_000))
    totals = latencies.read_totals()["a"]
    assert (totals.ages, totals.age_s) == ({0: 3}, 0.0)


def test_what_was_added_since_is_a_difference_and_never_negative() -> None:
    before = FlowTotals(10, 1.0, {3: 10}, 2.0, {4: 10})
    now = FlowTotals(12, 1.5, {3: 11, 5: 1}, 2.5, {4: 12})
    assert now.subtract(before) == FlowTotals(2, 0.5, {3: 1, 5: 1}, 0.5, {4: 2})
    assert before.subtract(now) == FlowTotals()
    assert before.add(now.subtract(before)) == now


def test_doublings_are_the_buckets_that_histograms_had() -> None:
    counts = [1] * BUCKET_COUNT
    folded = fold_latency_buckets(counts)
    assert sum(folded.values()) == BUCKET_COUNT
    assert folded[0] == 1
    assert folded[1] == 4
    ends = list_doubling_ends_s()
    assert (len(ends), DOUBLING_COUNT) == (26, 27)
    for seconds in (0.00005, 0.0001, 0.0033, 1.0, ends[-1], 9_999.0):
        found = [0] * BUCKET_COUNT
        found[find_latency_bucket(seconds)] = 1
        [doubling] = fold_latency_buckets(found)
        assert doubling == sum(end < seconds * (1 - 1e-9) for end in ends)
