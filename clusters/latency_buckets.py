"""Latencies as numbers of records in buckets: what workers count, what their heartbeats carry, and percentiles of both.

Bucket 0 holds what took up to FIRST_BUCKET_MS, bucket n what took up to 2^(n/4) times as long, the last one everything
else. So a percentile is wrong by a tenth at most, counts of several workers are simply added, and a flow of any size
takes some hundred bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

FIRST_BUCKET_MS: Final = 0.1
BUCKETS_PER_DOUBLING: Final = 4
BUCKET_COUNT: Final = 105  # the last but one ends at 1.3 hours
_MOST_RECORDS: Final = 1 << 50  # of one bucket: what a float still counts

DOUBLING_COUNT: Final = (BUCKET_COUNT - 2) // BUCKETS_PER_DOUBLING + 2  # of histograms; the last has no end

LatencyCounts = Mapping[int, int]  # bucket → records; buckets without records are left out


def find_latency_bucket(seconds: float) -> int:
    """The bucket of a latency."""
    ratio = seconds * 1000 / FIRST_BUCKET_MS
    return 0 if ratio <= 1 else min(math.ceil(math.log2(ratio) * BUCKETS_PER_DOUBLING), BUCKET_COUNT - 1)


def compute_bucket_end_ms(bucket: int) -> float:
    """The longest latency of a bucket, in milliseconds."""
    return float(FIRST_BUCKET_MS * 2 ** (bucket / BUCKETS_PER_DOUBLING))


def fold_latency_buckets(counts: Sequence[int]) -> dict[int, int]:
    """Counts of all buckets (BUCKET_COUNT) as counts of doublings: bucket n of a doubling d = ceil(n / 4). Those
    without records are left out. Histograms of metrics and totals in heartbeats have doublings."""
    found: dict[int, int] = {}
    for bucket, records in enumerate(counts):
        if records:  # seldom: a flow's latencies are in some twenty buckets
            doubling = min(-(-bucket // BUCKETS_PER_DOUBLING), DOUBLING_COUNT - 1)
            found[doubling] = found.get(doubling, 0) + records
    return found


def list_doubling_ends_s() -> list[float]:
    """The longest latency of each doubling but the last, in seconds."""
    return [compute_bucket_end_ms(each * BUCKETS_PER_DOUBLING) / 1000 for each in range(DOUBLING_COUNT - 1)]


def add_latency_counts(several: Iterable[LatencyCounts]) -> dict[int, int]:
    """All of them in one. Counts of workers come from a topic: what is none is left out."""
    found: dict[int, int] = {}
    for counts in several:
        for bucket, records in counts.items():
            if records > 0:
                at = min(max(bucket, 0), BUCKET_COUNT - 1)
                found[at] = found.get(at, 0) + min(records, _MOST_RECORDS)
    return found


def compute_latency_percentile(counts: LatencyCounts, share: float) -> float | None:
    """The latency in milliseconds, with two digits, that this share of the records (0.99, say) did not exceed: the
    middle of its bucket. None without records."""
    total = sum(counts.values())
    left = share * total
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0 < total:
            middle = compute_bucket_end_ms(bucket) * 2 ** (-0.5 / BUCKETS_PER_DOUBLING)
            return float(f"{middle:.2g}")
    return None


def describe_latency(counts: LatencyCounts) -> dict[str, float | int] | None:
    """`p50_ms`, `p99_ms` and the number of records, as JSON; None without records."""
    p50, p99 = compute_latency_percentile(counts, 0.5), compute_latency_percentile(counts, 0.99)
    return None if p50 is None or p99 is None else {"p50_ms": p50, "p99_ms": p99, "records": sum(counts.values())}
