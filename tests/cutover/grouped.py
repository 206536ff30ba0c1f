"""A group of any kind in the small world, and a migration of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import GROUP, POLICY, World, a_migration, a_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    ClusterSide,
    CommitOffsets,
    ReadRecords,
)
from watershed.cutover.observations import Observation, ObservedGroup, ObservedRecords
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.sync_settings import GroupSync, SyncSettings

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)
STORE, REPARTITION = f"{GROUP}-totals-changelog", f"{GROUP}-by-user-repartition"


class Groups(World):
    """`more` is what its group shows at the source besides; `linger_s`: how long its member keeps its place after it
    stopped; `texts`: what stands beside offsets."""

    def __init__(self, **more: Any) -> None:
        self.behind = 0  # how far the group stays behind at the source
        super().__init__()
        self.more = more
        self.linger_s = 0.0
        self.stopped_at: float | None = None
        self.texts: dict[ClusterSide, dict[TopicPartition, str]] = {"source": {}, "target": {}}
        self.commits: list[CommitOffsets] = []
        self.pending: set[TopicPartition] = set()  # records wait in these repartition topics
        self.processed_after = 0  # looks

    def answer(self, action: Action) -> Observation:
        if isinstance(action, CommitOffsets):
            self.commits.append(action)
            self.texts[action.side].update(action.texts)
        if isinstance(action, ReadRecords) and set(action.at) & {TopicPartition(REPARTITION, n) for n in range(2)}:
            self.processed_after -= 1
            if self.processed_after == 0:
                self.pending.clear()
            return ObservedRecords(0, {place: "waits" if place in self.pending else None for place in action.at})
        return super().answer(action)

    def _members(self, side: ClusterSide, group: str) -> int:
        present = super()._members(side, group)
        if side == "source" and self.linger_s and not present:
            self.stopped_at = self.now if self.stopped_at is None else self.stopped_at
            return int(self.now - self.stopped_at < self.linger_s)
        return present

    def _group(self, at: int, side: ClusterSide, group: str) -> ObservedGroup:
        seen = super()._group(at, side, group)
        texts = {place: text for place, text in self.texts[side].items() if place in seen.offsets}
        if side == "source":
            gone = {} if seen.members else {"static": (), "who": (), "reads": frozenset()}
            return replace(seen, texts=texts, **(self.more | gone))
        kind = self.more.get("kind", "classic") if seen.members or seen.offsets else "unknown"
        return replace(seen, texts=texts, kind=kind)

    def write(self, side: ClusterSide, place: TopicPartition) -> None:
        """Markers in `orders` only."""
        log = self.logs[side][place]
        before = len(log)
        super().write(side, place)
        del log[before + 1 :]
        if side == "source" and place.topic == "orders" and self.written % 2:
            log.append(None)

    def consume(self, side: ClusterSide, group: str) -> None:
        super().consume(side, group)
        if self.behind and side == "source":
            for place in self.offsets[side][group]:
                self.offsets[side][group][place] = max(0, len(self.logs[side][place]) - self.behind)


def moved(world: Groups, plan: Plan | None = None, **policy: Any) -> tuple[str, str, str]:
    migration = a_migration(world, FakeLog(), plan=plan or a_plan(), policy=replace(POLICY, **policy))
    result = migration.run()
    return result.state, result.step, result.reason


def renamed(plan: Plan, *names: tuple[str, str]) -> Plan:
    sync = SyncSettings(groups=GroupSync(rename=names))
    return seal_plan(replace(plan, flows=tuple(replace(flow, sync=sync) for flow in plan.flows)))


def inside(world: World, step: str) -> bool:
    return next((line for line in reversed(world.said) if ": begin" in line), "").startswith(f"{step}:")
