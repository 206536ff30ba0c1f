"""The small world with groups that stay at the source when their producers move: one group moves with the producers,
two follow in waves of their own. Counts per group what was read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import POLICY, REVERSE, a_migration, a_plan
from tests.cutover.world_back import BACK, BackWorld, a_rollback
from watershed.cutover.actions import Action, ClusterSide, ReadCopies, RequestProof
from watershed.cutover.driver import RunDriver
from watershed.cutover.observations import Observation, ObservedCopies, ProofOutcome
from watershed.cutover.policy import build_wave_policy
from watershed.cutover.step_runner import RunResult
from watershed.topology.migration_waves import RollbackPolicy, Wave, complete_late_waves
from watershed.topology.plan import Plan

TOPICS = {"orders": 2, "clicks": 1}
EARLY, REPORTS, AUDIT = "billing", "reports", "audit"
LATE = (REPORTS, AUDIT)
PRODUCERS = ("checkout", "web-edge")
WAY_BACK = RollbackPolicy(until_ms=86_400_000, reverse=REVERSE)


class LateWorld(BackWorld):
    """read: group → what it has processed, in order."""

    def __init__(self, writes: dict[str, tuple[str, ...]] | None = None) -> None:
        self.read: dict[str, list[str]] = {group: [] for group in (EARLY, *LATE)}
        everything = tuple(TOPICS)
        writes = writes or {PRODUCERS[0]: everything, PRODUCERS[1]: everything[:1]}
        super().__init__(topics=TOPICS, writes=writes, reads=dict.fromkeys(self.read, everything))

    def consume(self, side: ClusterSide, group: str) -> None:
        before = len(self.processed)
        super().consume(side, group)
        self.read[group] += self.processed[before:]

    def answer(self, action: Action) -> Observation:
        if isinstance(action, ReadCopies) and action.flow == REVERSE:
            held = {place: self.carried(place) for place in action.places}
            hooked = self.hook(action)
            found = {place: each for place, each in held.items() if each is not None}
            return hooked or ObservedCopies(int(self.now * 1000), found)
        return super().answer(action)

    def prove_either(self, action: RequestProof) -> ProofOutcome:
        return self.prove_back(action) if action.flow == REVERSE else self.prove(action)

    def side_of(self, group: str) -> ClusterSide:
        assert self.apps[group].running, group
        return self.apps[group].side


def late_plan(strategy: Any = "consumers_first") -> Plan:
    topics = tuple(TOPICS)
    producers = Wave("producers", topics, (EARLY,), PRODUCERS, strategy=strategy, rollback=WAY_BACK)
    late = (Wave(group, topics, (group,), strategy="consumers_last") for group in LATE)
    return a_plan(waves=complete_late_waves((producers, *late)))


def move(world: LateWorld, log: FakeLog, wave: str, holder: str = "first", **changes: Any) -> RunDriver:
    plan = changes.pop("plan", late_plan())
    assert plan.migration is not None
    declared = build_wave_policy(plan.migration.wave(wave), plan.migration)
    policy = replace(
        POLICY,
        strategy=declared.strategy,
        reverse=declared.reverse,
        producer_waves=declared.producer_waves,
        late_groups=declared.late_groups,
        consumer_lag=None,
        **changes.pop("policy", {}),
    )
    changes = {"prove": world.prove_either} | changes
    return a_migration(world, log, f"{holder} {wave}", plan=plan, wave=wave, policy=policy, **changes)


def back(world: LateWorld, log: FakeLog, wave: str, holder: str = "back", **changes: Any) -> RunDriver:
    return a_rollback(world, log, holder, **({"plan": late_plan(), "policy": BACK, "wave": wave} | changes))


def switched(log: FakeLog, strategy: Any = "consumers_first") -> LateWorld:
    """Producers and one group have moved; for a while traffic runs at both sides."""
    world = LateWorld()
    result = move(world, log, "producers", plan=late_plan(strategy)).run()
    assert result.state == "done", result
    pass_time(world)
    world.said.clear()
    return world


def pass_time(world: LateWorld, ticks: int = 6) -> None:
    for _ in range(ticks):
        world.tick()


def assert_exact(world: LateWorld, result: RunResult | None = None, state: str = "done") -> None:
    """Each group has read each record once and in its order; each record stands on both sides once and in order."""
    assert result is None or result.state == state, result
    world.settle()
    pass_time(world, 3)
    for group, read in world.read.items():
        counted = Counter(read)
        assert [record for record, count in counted.items() if count > 1] == [], group
        assert len(counted) == world.written, group
        for place in world.logs["source"]:
            numbers = [int(record.split()[1]) for record in read if world.births[record] == place]
            assert numbers == sorted(numbers), (group, place)
    for side in world.logs:
        for place, log in world.logs[side].items():  # type: ignore[index]
            records = [record for record in log if record is not None]
            born = [each for each, birth in world.births.items() if birth.partition == place.partition
                    and place.topic.endswith(birth.topic)]  # fmt: skip
            assert records == born, (side, place)
