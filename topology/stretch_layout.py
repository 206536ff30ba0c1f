"""How a stretch cluster is laid out over regions, and in which of them the replicas of a topic stand.

Brokers say a rack and no region. A rack belongs to the region that it is called after: `fra` and `fra-1` to `fra`,
`eu-west-1a` to `eu-west-1`; of several regions to the longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from watershed.topology.inventory import InventoryTopic

CONSTRAINTS_CONFIG = "confluent.placement.constraints"  # of a topic; Confluent Server only, as observers are


@dataclass(frozen=True, slots=True)
class StretchLayout:
    """regions: all of the cluster. sync_replicas: (region, replicas that are in sync there), sorted. tie_breaker: the
    region that only votes. observers: regions with asynchronous replicas."""

    regions: tuple[str, ...]
    sync_replicas: tuple[tuple[str, int], ...] = ()
    tie_breaker: str | None = None
    observers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The `stretch` of a cluster in the plan."""
        return {
            "regions": list(self.regions),
            "sync_replicas": dict(self.sync_replicas),
            "tie_breaker": self.tie_breaker,
            "observers": list(self.observers),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> StretchLayout | None:
        """Reads the JSON form of the plan."""
        if value is None:
            return None
        placed = tuple(sorted(value["sync_replicas"].items()))
        return cls(tuple(value["regions"]), placed, value["tie_breaker"], tuple(value["observers"]))


@dataclass(frozen=True, slots=True)
class MisplacedReplicas:
    """In a region stand so many replicas of the partition of a topic that differs most, and `wanted` are laid out."""

    region: str
    live: int
    wanted: int


def find_rack_region(rack: str, regions: Iterable[str]) -> str | None:
    """The region that a rack belongs to; None where its name does not say."""
    named = [region for region in regions if rack.startswith(region)]
    return max(named, key=len, default=None)


def find_misplaced_replicas(layout: StretchLayout, topic: InventoryTopic) -> list[MisplacedReplicas]:
    """By region, where partitions of a topic have fewer replicas than the layout says, or any in the tie breaker.
    Empty where the scan did not see in which racks they stand."""
    if not topic.replica_racks:
        return []
    placed = [_count_by_region(racks, layout.regions) for racks in topic.replica_racks]
    wanted = dict.fromkeys(layout.observers, 1) | dict(layout.sync_replicas)
    found = [
        MisplacedReplicas(region, live, least)
        for region, least in wanted.items()
        if (live := min(counts[region] for counts in placed)) < least
    ]
    most = max((counts[layout.tie_breaker] for counts in placed), default=0) if layout.tie_breaker else 0
    if layout.tie_breaker is not None and most > 0:
        found.append(MisplacedReplicas(layout.tie_breaker, most, 0))
    return found


def _count_by_region(racks: Sequence[str], regions: Sequence[str]) -> Counter[str | None]:
    return Counter(find_rack_region(rack, regions) for rack in racks)
