"""What alignment costs, estimated before anything is written, and when that is too much.

The rates are those of docs/research/aligned-mode.md (sections A, C and D: Apache Kafka 4.3.1, two shared cores,
loopback): orders of magnitude, not promises. The limits are proposals from the same page, not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

EstimatedGapMethod = Literal["markers", "transactions"]

_OFFSETS_S: Final = 20e6  # one partition without replication
_OFFSETS_S_REPLICATED: Final = 8.5e6  # three replicas, acks all
_OFFSETS_S_CLUSTER: Final = 30e6  # several partitions at once, on two cores
_OFFSETS_A_CORE_S: Final = 15e6  # of broker CPU, on the leader
_FOLLOWER_S_A_MILLION: Final = 0.02
_WIRE_BYTES: Final = 0.6  # an offset (0.5904 measured: 59,044 bytes a batch)
# Files of deleted filler go when the broker looks (log.retention.check.interval.ms, 5 min) and a minute later
# (log.segment.delete.delay.ms), and the one that is written to stays up to segment.bytes: defaults of Kafka 4.3.
_DELETED_AFTER_S: Final = 360.0
_SEGMENT_BYTES: Final = 1 << 30
_MARKER_S: Final = 60e-6
_TRANSACTION_S: Final = 3e-3
_GAP_S: Final = 20e-3  # of every gap whatever its length: two epochs, and one marker or transaction
_MARKER_BYTES: Final = 78
_CPU_S: Final = 3_600.0  # broker CPU that a topic may cost without being asked for
_MOST_MARKERS: Final = 1_000_000  # offsets of gaps a partition
_MOST_TRANSACTIONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GapCount:
    """Gaps of a partition: offsets whose record is not copied, and the number of stretches that they form. 0: none, or
    not known."""

    offsets: int = 0
    stretches: int = 0


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """`start` is where the source's log begins: so many offsets are filled."""

    partition: int
    start: int
    gaps: GapCount = GapCount()


@dataclass(frozen=True, slots=True)
class AlignmentCost:
    """seconds: until the partitions stand at their starts, then their gaps, `parallel` at a time. cpu_s: of broker
    cores. wire_bytes: sent by us; disk_bytes: at most at one time, all replicas."""

    offsets: int
    seconds: float
    cpu_s: float
    wire_bytes: int
    disk_bytes: int
    gap_offsets: int = 0

    def __str__(self) -> str:
        return (
            f"{self.offsets:,} offsets to fill, about {render_cost_duration(self.seconds)}, "
            f"{render_cost_duration(self.cpu_s)} of a broker's "
            f"core, {render_cost_bytes(self.wire_bytes)} sent, at most {render_cost_bytes(self.disk_bytes)} on disk"
        )

    def __add__(self, other: AlignmentCost) -> AlignmentCost:
        """Of two topics, one after the other."""
        return AlignmentCost(
            self.offsets + other.offsets,
            self.seconds + other.seconds,
            self.cpu_s + other.cpu_s,
            self.wire_bytes + other.wire_bytes,
            max(self.disk_bytes, other.disk_bytes),
            self.gap_offsets + other.gap_offsets,
        )


NO_COST: Final = AlignmentCost(0, 0.0, 0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class _AlignmentCostLimits:
    """cpu_s: of a topic's filling. The others are a partition's."""

    cpu_s: float = _CPU_S
    marker_offsets: int = _MOST_MARKERS
    transaction_offsets: int = _MOST_TRANSACTIONS


def estimate_alignment_cost(
    partitions: Sequence[PartitionCost],
    *,
    replicas: int = 1,
    gap_method: EstimatedGapMethod = "markers",
    parallel: int = 4,
) -> AlignmentCost:
    """Of one topic. Gaps of a partition are filled one after the other, those of different ones at once."""
    offsets = sum(each.start for each in partitions)
    one = _OFFSETS_S if replicas == 1 else _OFFSETS_S_REPLICATED
    together = min(one * max(min(parallel, len(partitions)), 1), _OFFSETS_S_CLUSTER if replicas == 1 else one)
    longest = max((each.start / one for each in partitions), default=0.0)
    filling = max(longest, offsets / together)
    a_gap = {"markers": _MARKER_S, "transactions": _TRANSACTION_S}[gap_method]
    closing = _GAP_S if gap_method == "markers" else 0.0
    gaps = [each.gaps.offsets * a_gap + each.gaps.stretches * closing for each in partitions]
    gap_offsets = sum(each.gaps.offsets for each in partitions)
    marker_bytes = gap_offsets * _MARKER_BYTES
    pace = min(together, one)  # of one partition, so many at once
    waiting = pace * _WIRE_BYTES * _DELETED_AFTER_S + _SEGMENT_BYTES
    most = sorted((min(each.start * _WIRE_BYTES, waiting) for each in partitions), reverse=True)
    return AlignmentCost(
        offsets,
        filling + max([*gaps, sum(gaps) / max(parallel, 1)]) if gaps else filling,
        offsets / _OFFSETS_A_CORE_S + offsets / 1e6 * _FOLLOWER_S_A_MILLION * (replicas - 1) + sum(gaps),
        round(offsets * _WIRE_BYTES) + gap_offsets * 30,
        (round(sum(most[: max(parallel, 1)])) + marker_bytes) * replicas,
        gap_offsets,
    )


def explain_excessive_cost(
    topic: str,
    partitions: Iterable[PartitionCost],
    *,
    gap_method: EstimatedGapMethod,
    replicas: int = 1,
    limits: _AlignmentCostLimits = _AlignmentCostLimits(),
) -> str:
    """Why the topic's offsets cannot be had equal at a reasonable price: one sentence with numbers, "" if they can.

    gap_method: how gaps are filled (`replicator.copy.aligned.cluster_probe`). Conditions of shape (filter, merge,
    partition count, target not empty) are the caller's."""
    found = list(partitions)
    cost = estimate_alignment_cost(found, replicas=replicas, gap_method=gap_method)
    filling = cost.offsets / _OFFSETS_A_CORE_S
    if filling > limits.cpu_s:
        return (
            f"the source logs of {topic} begin at {cost.offsets:,} offsets in total, which would cost about "
            f"{render_cost_duration(filling)} of a broker's core to fill; the limit is "
            f"{render_cost_duration(limits.cpu_s)}"
        )
    for each in found:
        where = f"partition {each.partition} of {topic}"
        most = limits.marker_offsets if gap_method == "markers" else limits.transaction_offsets
        if each.gaps.offsets > most:
            without = "" if gap_method == "markers" else " without ALTER on the target cluster"
            return f"{where} has {each.gaps.offsets:,} offsets without records; the limit{without} is {most:,}"
    return ""


def render_cost_duration(seconds: float) -> str:
    """`0.5 s`, `12 s`, `4 min`, `3.3 h`: for people."""
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s" if seconds else "0 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def render_cost_bytes(number: int) -> str:
    """`0 B`, `59 KB`, `1.8 GB`: for people; powers of 1000."""
    value = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
