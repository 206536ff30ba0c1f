"""A migration's waves against what the source holds: what is copied, and which groups move, and which do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watershed.topology.inventory import InventoryCluster, InventoryGroup
from watershed.topology.migration_waves import PlanMigration, Wave
from watershed.topology.plan import PlanFlow
from watershed.topology.planning.copy_estimate import CopyEstimate, estimate_copy


@dataclass(frozen=True, slots=True)
class _MovingGroup:
    """A group that moves with a wave. seen is None when the source does not have it. lag counts the wave's topics;
    elsewhere: topics it has offsets on that are not in its wave."""

    id: str
    seen: InventoryGroup | None
    lag: int
    elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _BystanderGroup:
    """A group that reads the wave's topics and does not move with it. wave: where it moves instead, None: nowhere."""

    id: str
    members: int
    topics: tuple[str, ...]
    wave: str | None


@dataclass(frozen=True, slots=True)
class WaveEstimate:
    """estimate: of what is copied for it; nothing for late groups, whose topics an earlier wave moves. missing: topics
    of the wave that the source does not have."""

    wave: Wave
    estimate: CopyEstimate
    missing: tuple[str, ...]
    groups: tuple[_MovingGroup, ...]
    bystanders: tuple[_BystanderGroup, ...]


def estimate_waves(
    migration: PlanMigration, flow: PlanFlow, source: InventoryCluster, rate: int | None
) -> tuple[WaveEstimate, ...]:
    """In the migration's order."""
    movers = {group: wave.name for wave in migration.waves for group in wave.consumers}
    return tuple(_wave_plan(wave, flow, source, rate, movers) for wave in migration.waves)


def _wave_plan(
    wave: Wave, flow: PlanFlow, source: InventoryCluster, rate: int | None, movers: Mapping[str, str]
) -> WaveEstimate:
    topics = set(wave.topics)
    there = [source.topics[name] for name in wave.topics if name in source.topics and not wave.is_late]
    bystanders = []
    for group in source.groups.values():
        read = topics & group.offsets.keys()
        if read and group.id not in wave.consumers:
            bystanders.append(_BystanderGroup(group.id, group.members, tuple(sorted(read)), movers.get(group.id)))
    return WaveEstimate(
        wave=wave,
        estimate=estimate_copy(there, flow, rate),
        missing=tuple(name for name in wave.topics if name not in source.topics),
        groups=tuple(_wave_group(group_id, source.groups.get(group_id), topics) for group_id in wave.consumers),
        bystanders=tuple(sorted(bystanders, key=lambda each: each.id)),
    )


def _wave_group(group_id: str, seen: InventoryGroup | None, topics: set[str]) -> _MovingGroup:
    if seen is None:
        return _MovingGroup(group_id, None, 0, ())
    lag = sum(seen.lag.get(topic, 0) for topic in topics)
    return _MovingGroup(group_id, seen, lag, tuple(sorted(seen.offsets.keys() - topics)))
