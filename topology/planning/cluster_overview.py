"""A cluster in a few numbers, its busiest and largest topics, those nobody writes to, and the internal ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from watershed.topology.inventory import InventoryCluster, InventoryTopic
from watershed.topology.selectors import is_internal_topic

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """Sizes and rates are sums of what the scan saw; None when it saw none. idle: not written to during the sample, and
    the newest record older than `idle_days`. Lists are longest or largest first."""

    cluster: InventoryCluster
    topics: int
    partitions: int
    bytes: int | None
    written: int | None
    busiest: tuple[InventoryTopic, ...]
    largest: tuple[InventoryTopic, ...]
    idle: tuple[InventoryTopic, ...]
    internal: tuple[InventoryTopic, ...]


def summarise_cluster(cluster: InventoryCluster, *, top: int, idle_days: int) -> ClusterOverview:
    """top: how many of the busiest and largest."""
    topics = list(cluster.topics.values())
    ours = [topic for topic in topics if not _internal(topic)]
    busy = [topic for topic in ours if topic.rate_bytes]
    idle = [topic for topic in ours if _idle(topic, cluster.taken_ms - idle_days * _DAY_MS)]
    return ClusterOverview(
        cluster=cluster,
        topics=len(topics),
        partitions=sum(topic.partitions for topic in topics),
        bytes=_total(topic.size_bytes for topic in topics),
        written=_total(topic.rate_bytes for topic in topics),
        busiest=tuple(sorted(busy, key=lambda topic: (-(topic.rate_bytes or 0), topic.name))[:top]),
        largest=tuple(
            sorted((t for t in ours if t.size_bytes), key=lambda topic: (-(topic.size_bytes or 0), topic.name))[:top]
        ),
        idle=tuple(sorted(idle, key=lambda topic: (-(topic.size_bytes or 0), topic.name))),
        internal=tuple(sorted((t for t in topics if _internal(t)), key=lambda topic: topic.name)),
    )


def _internal(topic: InventoryTopic) -> bool:
    return topic.internal or is_internal_topic(topic.name)


def _idle(topic: InventoryTopic, before_ms: int) -> bool:
    """An empty topic that is not written to is idle; one whose newest record is unknown is not called so."""
    if topic.rate_bytes:
        return False
    if topic.last_append_ms is None:
        return topic.size_bytes == 0
    return topic.last_append_ms < before_ms


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if known else None
