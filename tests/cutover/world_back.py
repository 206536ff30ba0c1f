"""The small world with a way back that writes in transactions: its markers take offsets, its map has stretches, and it
begins where it is told to. `Mirror` shows it from the other side, as a rollback sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.cutover.drivers import build_driver
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import EVIDENCE, POLICY, REVERSE, World, a_plan, source_of, target_of
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    ClusterSide,
    FindDivergence,
    JsonObject,
    LowerFence,
    RaiseFence,
    ReadCopies,
    ReadFence,
    ReadFlow,
    Rejoin,
    RequestProof,
    RetireTopics,
    ServeTopics,
    StartFlow,
    StopFlow,
)
from watershed.cutover.driver import RunDriver
from watershed.cutover.journal.hash_chain import Journal
from watershed.cutover.observations import (
    DivergentRange,
    Observation,
    ObservedCopies,
    ObservedDivergence,
    ObservedFence,
    ObservedFlow,
    ObservedWriter,
    ObservedWriters,
    ProofOutcome,
    RejoinResult,
)
from watershed.cutover.offsets import decode_offsets
from watershed.cutover.policy import WavePolicy
from watershed.cutover.rollback.rollback_plan import plan_rollback
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.recovery.rejoin import RejoinPoint, build_rejoin_part
from watershed.topology.migration_waves import RollbackPolicy
from watershed.topology.plan import Plan, seal_plan

FORWARD = "onprem-to-cloud"
OTHER: dict[ClusterSide, ClusterSide] = {"source": "target", "target": "source"}
BACK = replace(POLICY, strategy="fenced")


class BackWorld(World):
    """fences: by side, the snapshots with which they were raised. lazy: consumers run and read nothing. stranger: what
    somebody who did not move writes at the old source."""

    def __init__(self, **arguments: Any) -> None:
        self.begins: dict[TopicPartition, int] = {}
        self.began: dict[TopicPartition, OffsetRun] = {}
        self.stretches: dict[TopicPartition, list[ExplicitRun]] = {}
        self.fences: dict[ClusterSide, JsonObject] = {}
        self.lazy = False
        self.strangers_wrote: set[str] = set()
        self.carrying = True
        self.fronts: dict[TopicPartition, ForeignPart] = {}  # what stands before the place where the flow there went on
        self.rejoined: set[str] = set()
        super().__init__(**arguments)
        self.wall = 0.0  # as the journal's clock

    def copy_back(self) -> None:
        for place, home in self.logs["source"].items():
            there = target_of(place)
            if there.topic in self.retired[REVERSE] or not self.carrying:
                continue
            log = self.logs["target"][there]
            if there not in self.began:
                self.returned[there] = self.begins.get(there, 0)
                self.began[there] = OffsetRun(len(home), self.returned[there])
            before = len(home)
            for at in range(self.returned[there], len(log)):
                record = log[at]
                if record is not None and record not in self.brought:
                    self.stretches.setdefault(there, []).append(ExplicitRun(len(home), at, 1))
                    home.append(record)
                    self.came_back.add(record)
            self.returned[there] = len(log)
            if len(home) > before:
                home.append(None)

    def consume(self, side: ClusterSide, group: str) -> None:
        if not self.lazy:
            super().consume(side, group)

    def stranger_writes(self, place: TopicPartition) -> None:
        self.write("source", place)
        self.strangers_wrote.add(f"record {self.written}")

    def answer(self, action: Action) -> Observation:
        at = int(self.now * 1000)
        if isinstance(action, ReadFence | RaiseFence | LowerFence):
            hooked = self.hook(action)
            return hooked if hooked is not None else self._fence(at, action)
        if isinstance(action, StartFlow):
            self.begins = decode_offsets(action.begin) | self.begins  # what it has copied already goes on where it is
        if isinstance(action, Rejoin):
            return self.hook(action) or self._rejoin(at, action)
        return super().answer(action)

    def _rejoin(self, at: int, action: Rejoin) -> RejoinResult:
        """As a worker obeys the orders: once."""
        for topic, each in action.returns.items() if action.order not in self.rejoined else ():
            for number, offsets in each.items():
                place, came = TopicPartition(topic, int(number)), RejoinPoint(*offsets)
                carried = self.stretches.get(target_of(place), ())
                self.fronts[place] = build_rejoin_part(self._copied(place).map, carried, came, REVERSE, guarded=True)
                assert len(self.logs["target"][target_of(place)]) == came.base, "somebody wrote there meanwhile"
                self.runs[place], self.position[place] = [OffsetRun(came.base, came.position)], came.position
        self.rejoined.add(action.order)
        return RejoinResult(at, tuple(action.returns))

    def _copied(self, place: TopicPartition) -> CopiedPartition:
        found, end = OffsetMap(tuple(self.runs[place])), len(self.logs["target"][target_of(place)])
        front = self.fronts.get(place)
        return CopiedPartition(found if front is None else JoinedOffsetMap.over(front, found), end)

    def _writers(self, at: int, side: ClusterSide, since: Mapping[TopicPartition, int]) -> ObservedWriters:
        """Whose a record is depends on the side: what a flow brought there is its own."""
        flow, ours = (REVERSE, self.came_back) if side == "source" else (FORWARD, self.brought)
        found = [
            ObservedWriter(
                place, 7, 0, at, "", 0, n, n, 1, flow if record is None or record in ours else "", record is None
            )
            for place, begin in since.items()
            for n, record in enumerate(self.logs[side][place])
            if n >= begin
        ]
        return ObservedWriters(at, tuple(found), {place: len(self.logs[side][place]) for place in since})

    def _fence(self, at: int, action: ReadFence | RaiseFence | LowerFence) -> ObservedFence:
        if isinstance(action, ReadFence):
            return ObservedFence(at, action.side in self.fences, {"kind": action.kind, "at": action.side})
        assert self.fences.get(action.side) in (None, action.snapshot), "another snapshot than it was raised with"
        if isinstance(action, RaiseFence):
            self.fences[action.side] = action.snapshot
        else:
            self.fences.pop(action.side, None)
        return ObservedFence(
            at, isinstance(action, RaiseFence), action.snapshot, f"{action.kind} fence at {action.side}"
        )

    def carried(self, place: TopicPartition) -> CopiedPartition | None:
        if place not in self.began:
            return None
        found = ExplicitRunMap.over(self.stretches.get(place, ()), self.began[place], self.returned[place])
        return CopiedPartition(found, len(self.logs["source"][source_of(place)]))

    def prove_back(self, action: RequestProof) -> ProofOutcome:
        """Every record that applications wrote behind the cut is at the source once, in that order."""
        if self.verdict is not None:
            return self.verdict
        missing = pending = proven = 0
        for place in self.logs["target"]:
            log, begin = self.logs["target"][place], self.begins.get(place, 0)
            written = [record for record in log[begin:] if record is not None and record not in self.brought]
            home = [record for record in self.logs["source"][source_of(place)] if record in self.came_back]
            pending += len(written) - len(home)
            proven += len(home)
            missing += written[: len(home)] != home
        verdict = "proven" if not missing and not (action.final and pending) else "incomplete"
        counts = {"proven": proven, "missing": missing, "pending": pending}
        return ProofOutcome(0, verdict, missing, counts, "/proofs/back.json", "root")


class Mirror:
    """What a run along the way back asks: its source is the world's target."""

    def __init__(self, world: BackWorld) -> None:
        self.world = world

    def answer(self, action: Action) -> Observation:
        world, at = self.world, int(self.world.now * 1000)
        match action:
            case ReadCopies(places, None):
                held = {place: world.carried(place) for place in places}
                return self._hooked(action) or ObservedCopies(
                    at, {p: each for p, each in held.items() if each is not None}
                )
            case ReadCopies(places, _):
                return world.answer(ReadCopies(places))
            case ReadFlow(name):
                return world.answer(ReadFlow(_there(name)))
            case RetireTopics(topics, name):
                return world.answer(RetireTopics(topics, _there(name)))
            case ServeTopics(topics, name):
                return world.answer(ServeTopics(topics, _there(name)))
            case StartFlow(name) if name == FORWARD:
                world.flow_state = "running"
                return ObservedFlow(
                    at,
                    "running",
                    same_plan=True,
                    paused_topics=dict(world.paused[None]),
                    stands_still=world.stands_still,
                )
            case StopFlow(None):
                world.reverse_state = "stopped"
                return ObservedFlow(at, "stopped", same_plan=True, retired=frozenset(world.retired[REVERSE]))
            case FindDivergence(side, since):
                return self._hooked(action) or self._divergence(at, OTHER[side], since)
        if hasattr(action, "side"):
            action = replace(action, side=OTHER[action.side])
        return world.answer(action)

    def _hooked(self, action: Action) -> Observation | None:
        return self.world.hook(action)

    def _divergence(self, at: int, side: ClusterSide, since: Any) -> ObservedDivergence:
        world = self.world
        known = world.brought | world.came_back
        found = [
            DivergentRange(place, n, n, 1, at, at)
            for place, begin in sorted(since.items())
            for n, record in enumerate(world.logs[side][place])
            if n >= begin and record is not None and record not in known
        ]
        ends = {place: len(world.logs[side][place]) for place in since}
        return ObservedDivergence(at, tuple(found), dict.fromkeys(since, 0), ends)


def _there(name: str | None) -> str | None:
    return {None: REVERSE, FORWARD: None}[name]


def back_plan(**wave: Any) -> Plan:
    return a_plan(**({"rollback": RollbackPolicy(until_ms=86_400_000, reverse=REVERSE)} | wave))


def a_rollback(world: BackWorld, log: FakeLog, holder: str = "back", **changes: Any) -> RunDriver:
    """A driver of a rollback over the world, from what its journal says."""
    journal = Journal(log, "shop", holder, world.clock)
    plan: Plan = changes.pop("plan", back_plan())
    policy: WavePolicy = changes.pop("policy", BACK)
    wave, stranded = changes.pop("wave", None), changes.pop("stranded", None)
    course = plan_rollback(plan, wave, journal.refresh(), policy, stranded)
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


__all__ = ["BACK", "FORWARD", "BackWorld", "Mirror", "a_rollback", "back_plan", "seal_plan"]
