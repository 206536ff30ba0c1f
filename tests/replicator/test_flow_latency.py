"""What a worker's heartbeat says of latencies: of the last seconds, and nothing of flows that rest."""

from __future__ import annotations

from watershed.clusters.latency_buckets import find_latency_bucket
from watershed.replicator.copy.flow_latency import WINDOW_S, FlowLatencies

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


def test_metrics_count_from_the_beginning() -> None:
    latencies = FlowLatencies()
    latencies.of("a").add(0.002, 100)
    latencies.of("a").add(0.5, 2)
    totals = latencies.read()["a"]
    assert (totals.counts[FAST], totals.counts[SLOW], sum(totals.counts)) == (100, 2, 102)
    assert round(totals.seconds, 6) == 1.2
