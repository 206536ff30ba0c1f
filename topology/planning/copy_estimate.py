"""How long a copy takes and what it moves, from sizes and rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from watershed.topology.inventory import InventoryTopic
from watershed.topology.plan import PlanFlow
from watershed.topology.rounded_amounts import GIB_BYTES

ASSUMED_COPY_RATE_BYTES = 100 * 2**20  # bytes a second, where neither a quota nor an option says one
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class CopyEstimate:
    """bytes: what is stored now; written: bytes a second that producers add. unsized and unrated count the topics
    whose size or rate the scan did not see: the numbers are of the others. copy_rate: bytes a second, given by
    `limited_by`.

    The copy of what is stored takes bytes / copy_rate seconds. Meanwhile producers go on, so the flow is level after
    bytes / (copy_rate - written): the difference is the catch-up. It never is when they write as fast as it copies.
    """

    topics: int
    partitions: int
    bytes: int
    unsized: int
    written: int
    unrated: int
    copy_rate: int
    limited_by: str

    @property
    def copy_s(self) -> float:
        """Seconds to copy what is stored now."""
        return self.bytes / self.copy_rate

    @property
    def catch_up_s(self) -> float | None:
        """None: never."""
        if not self.bytes:
            return 0.0 if self.written < self.copy_rate else None
        return self.bytes / (self.copy_rate - self.written) - self.copy_s if self.written < self.copy_rate else None

    @property
    def level_s(self) -> float | None:
        """From the start until the flow is level with the producers; None: never."""
        return None if self.catch_up_s is None else self.copy_s + self.catch_up_s

    @property
    def gib(self) -> float:
        """What crosses the network until the stored part is copied."""
        return self.bytes / GIB_BYTES

    @property
    def gib_a_day(self) -> float:
        """What crosses it every day after."""
        return self.written * _DAY_S / GIB_BYTES


def estimate_copy(topics: Iterable[InventoryTopic], flow: PlanFlow, rate: int | None) -> CopyEstimate:
    """rate: bytes a second that somebody states; the flow's quota bounds it all the same."""
    topics = list(topics)
    copy_rate, limited_by = choose_copy_rate(flow.quota, rate, "--rate")
    return CopyEstimate(
        topics=len(topics),
        partitions=sum(topic.partitions for topic in topics),
        bytes=sum(topic.size_bytes or 0 for topic in topics),
        unsized=sum(topic.size_bytes is None for topic in topics),
        written=sum(topic.rate_bytes or 0 for topic in topics),
        unrated=sum(topic.rate_bytes is None for topic in topics),
        copy_rate=copy_rate,
        limited_by=limited_by,
    )


def choose_copy_rate(quota: int | None, stated: int | None, stated_by: str) -> tuple[int, str]:
    """Bytes a second that a copy reaches, and what gives them. stated_by: who says `stated`. Never nothing: a quota of
    `0B/s` copies in as good as for ever."""
    if quota is not None and (stated is None or quota <= stated):
        return max(quota, 1), "the flow's quota"
    return (max(stated, 1), stated_by) if stated is not None else (ASSUMED_COPY_RATE_BYTES, "assumed")
