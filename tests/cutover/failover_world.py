"""The small world of `tests.cutover.world`, whose source can die, with what a failover asks besides."""

from __future__ import annotations

from typing import Any

from tests.cutover.drivers import build_driver
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import EVIDENCE, GROUP, POLICY, PRODUCER, a_migration, target_of
from tests.cutover.world_back import BACK, BackWorld, Mirror, back_plan
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    CheckCutOff,
    CommitOffsets,
    CutOff,
    ProbeCluster,
    ReadCluster,
    ReadGroup,
    ReadLastSeenSource,
    ReadLogs,
    ReadRecords,
    ReadTopics,
    StartApplication,
    StartFlow,
)
from watershed.cutover.driver import RunDriver
from watershed.cutover.failover.failback_plan import plan_failback
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.journal.hash_chain import Journal
from watershed.cutover.observations import (
    ActionFailed,
    ClusterProbe,
    CutOffResult,
    LastSeenPartition,
    LastSeenSource,
    Observation,
)
from watershed.replicator.ledger.offset_translation import OffsetNotCopied, translate_offset


class FailoverWorld(BackWorld):
    """`lagging` stops the copy while the worker goes on seeing the source's ends; `dead` is the source. asked: what was
    asked of the dead source all the same. zombie: records that a frozen worker still holds; it sends them when it is
    awake, unless its producer is fenced."""

    def __init__(self) -> None:
        self.dead = self.lagging = self.awake = False
        self.alive_again = False
        self.asked: list[Action] = []
        self.cut: set[TopicPartition] = set()
        self.marks: dict[TopicPartition, int] = {}  # where the fences stand: each takes an offset
        self.able = ""
        self.zombie: dict[TopicPartition, list[str]] = {}
        self.sights: dict[TopicPartition, LastSeenPartition] = {}
        self.carried_ms: int | None = None
        self.states: dict[str, StateRange] = {}
        self.complete: dict[TopicPartition, int] = {}
        super().__init__()
        self.complete.clear()  # by the clock as it is from here on
        self._see()
        self.carry()

    @property
    def wall_ms(self) -> int:
        return int((self.wall + self.now) * 1000)

    def tick(self) -> None:
        if not self.dead:
            self.copying = self.flow_state == "running" and not self.lagging
            super().tick()
            if self.flow_state == "running":
                self._see()
            if self.flow_state == "running":
                self.carry()
            return
        self._wake()
        for name, topics in self.writes.items():
            if self.apps[name].running and self.apps[name].side == "target":
                for place in self.places("target", topics):
                    self.write("target", place)
        for group in self.reads:
            if self.apps[group].running and self.apps[group].side == "target":
                self.consume("target", group)

    def _see(self) -> None:
        for place, log in self.logs["source"].items():
            if self.position[place] == len(log):
                self.complete[place] = self.wall_ms
            self.sights[place] = LastSeenPartition(len(log), 0, self.wall_ms, self.complete.get(place, self.wall_ms))

    def _wake(self) -> None:
        if not self.awake:
            return
        for place, records in self.zombie.items():
            if place not in self.cut:
                self.logs["target"][place] += records
        self.zombie.clear()

    def carry(self) -> None:
        """As `sync.groups` does: what is beyond the copy waits behind its last record."""
        there: dict[TopicPartition, int] = {}
        for place, at in self.offsets["source"][GROUP].items():
            held = self._copied(place)
            found = translate_offset(place, at, held, 0, len(self.logs["source"][place]))
            there[target_of(place)] = held.target_end if isinstance(found, OffsetNotCopied) else found
        self.offsets["target"][GROUP] = there
        self.kept = dict(there)
        self.carried_ms = self.wall_ms

    def die(self) -> None:
        self.dead = True

    def revive(self) -> None:
        self.dead = False

    def answer(self, action: Action) -> Observation:
        hooked = self.hook(action)
        if hooked is not None:
            return hooked
        at = int(self.now * 1000)
        match action:
            case ProbeCluster("source"):
                answers = not self.dead or self.alive_again
                return ClusterProbe(at, answers, "127.0.0.1:1 is there" if answers else "127.0.0.1:1: refused")
            case ReadLastSeenSource(places):
                sights = {place: self.sights[place] for place in places if place in self.sights}
                carried = {} if self.carried_ms is None else {GROUP: (self.carried_ms, "equal")}
                return LastSeenSource(at, self.wall_ms, sights, carried, self.states)
            case CheckCutOff():
                return CutOffResult(at, not self.able, self.able)
            case CutOff(ends):
                for place in set(ends) - self.cut:
                    self.marks[place] = len(self.logs["target"][place])
                    self.logs["target"][place].append(None)
                self.cut |= set(ends)
                return CutOffResult(at, True, "fenced", dict.fromkeys(self.cut, 1), dict(self.marks))
            case StartFlow("onprem-to-cloud"):
                self.flow_state = "running"
                return self._flow(at, None)
            case (
                ReadCluster("source") | ReadTopics("source") | ReadGroup("source") | ReadLogs("source")
                | ReadRecords("source") | CommitOffsets("source") | StartApplication(_, _, "source")
            ) if self.dead:  # fmt: skip
                self.asked.append(action)
                return ActionFailed(at, "onprem does not answer")
        return super().answer(action)

    @property
    def lost(self) -> list[str]:
        """What stands at the source and not at the target."""
        return [
            record
            for place, log in self.logs["source"].items()
            for record in log[self.position[place] :]
            if record is not None
        ]


def a_dead_source(lag_ticks: int = 3) -> FailoverWorld:
    world = FailoverWorld()
    world.lagging = True
    for _ in range(lag_ticks):
        world.sleep(0.5)
    world.die()
    return world


def a_failover(world: FailoverWorld, log: FakeLog, holder: str = "first", **changes: Any) -> RunDriver:
    plan = changes.pop("plan", None) or back_plan()
    policy = changes.pop("policy", POLICY)
    journal = Journal(log, "shop", holder, world.clock)
    course = plan_failover(plan, changes.pop("wave", None), policy, journal.refresh(), changes.get("run_id"))
    return a_migration(world, log, holder, plan=plan, run_plan=course, policy=None, journal=journal, **changes)


def a_failback(world: FailoverWorld, log: FakeLog, holder: str = "back", **changes: Any) -> RunDriver:
    """A driver of a failback over the world, from what its journal says of the failover."""
    journal = Journal(log, "shop", holder, world.clock)
    plan = changes.pop("plan", None) or back_plan()
    policy = changes.pop("policy", BACK)
    course = plan_failback(plan, changes.pop("wave", None), journal.refresh(), policy, changes.pop("stranded", None))
    arguments: dict[str, Any] = {
        "prove": world.prove_back,
        "say": lambda event: world.said.append(f"{event.step}: {event.kind}: {event.text}"),
        "clock": world.clock,
        "sleep": world.sleep,
        "journal": journal,
        "handler": Mirror(world),
        "actor": "ann",
        "evidence": EVIDENCE,
        "run_plan": course,
    }
    return build_driver(plan, **(arguments | changes))


__all__ = ["GROUP", "POLICY", "PRODUCER", "FailoverWorld", "a_dead_source", "a_failback", "a_failover"]
