"""What changes between a migration's preflight and its end, or its rollback: partitions that are added, topics that a
group takes up. A run keeps to what it has looked at, so what it has not seen must end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.grouped import Groups, inside, moved
from tests.cutover.judging import assert_back, assert_moved
from tests.cutover.moved import assert_home
from tests.cutover.moved import moved as moved_away
from tests.cutover.spoils import verdict
from tests.cutover.world import GROUP, POLICY, World, a_migration, a_plan, target_of
from tests.cutover.world_back import a_rollback
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, ReadGroup, ReadLogs
from watershed.cutover.observations import Observation
from watershed.replicator.ledger.offset_map import OffsetRun

STRATEGIES = ("consumers_first", "producers_first", "fenced")
NEW = TopicPartition("clicks", 1)


def grow(world: World) -> None:
    """Somebody adds a partition at the source, the flow adds it at the target, and producers and readers use it."""
    world.topics["clicks"] = 2
    world.logs["source"][NEW], world.logs["target"][target_of(NEW)] = [], []
    world.runs[NEW], world.position[NEW] = [OffsetRun(0, 0)], 0
    for _ in range(3):
        world.tick()


def late(step: str, spoil: Callable[[World], None]) -> Callable[[World], None]:
    """When the step has begun."""

    def prepare(world: World) -> None:
        def hook(_action: Action) -> Observation | None:
            if inside(world, step):
                world.hook = lambda _action: None
                spoil(world)
            return None

        world.hook = hook

    return prepare


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("step", ["lag_gate", "soak", "fence_producers", "tail_proof"])
def test_a_partition_that_is_added_meanwhile_ends_the_run(strategy: Any, step: str) -> None:
    if step == "soak" and strategy != "consumers_first":
        pytest.skip("its soak is behind the point of no return")
    world = World()
    late(step, grow)(world)
    plan = a_plan(strategy=strategy)
    result = a_migration(world, FakeLog(), plan=plan, policy=replace(POLICY, strategy=strategy)).run()
    assert_back(world, result)
    assert "clicks has 2 partitions" in result.reason


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_topic_of_the_wave_that_a_group_takes_up_meanwhile_is_moved_along(strategy: Any) -> None:
    world = Groups(reads=frozenset({"orders"}))

    def without_clicks(action: Action) -> Observation | None:
        if isinstance(action, ReadGroup) and action.side == "source" and inside(world, "preflight"):
            seen = world._group(int(world.now * 1000), "source", GROUP)
            return replace(seen, offsets={p: at for p, at in seen.offsets.items() if p.topic == "orders"})
        return None

    world.hook = without_clicks
    state, _step, why = moved(world, a_plan(strategy=strategy), strategy=strategy)
    assert (state, why) == ("done", "")
    assert target_of(TopicPartition("clicks", 0)) in world.commits[0].offsets


def test_a_topic_of_no_wave_that_a_group_takes_up_meanwhile_ends_the_run() -> None:
    world = Groups()

    def take_up(found: World) -> None:
        found.offsets["source"][GROUP][TopicPartition("payments", 0)] = 3

    late("stop_consumers", take_up)(world)
    state, step, why = moved(world)
    assert (state, step) == ("rolled_back", "translate_offsets")
    assert "has begun to read payments-0 since this run began" in why
    assert world.offsets["source"][GROUP][TopicPartition("payments", 0)] == 3


def test_a_subscription_beyond_the_wave_is_refused_though_nothing_was_read_there_yet() -> None:
    world = Groups(reads=frozenset({"orders", "clicks", "alerts"}))
    state, step, why = moved(world)
    assert (state, step) == ("refused", "preflight")
    assert "also subscribes to alerts" in why


@pytest.mark.parametrize("strategy", ["consumers_first", "fenced"])
def test_a_consumer_without_membership_that_reads_on_at_the_source_is_noticed(strategy: Any) -> None:
    """It assigns partitions to itself: its group is empty, and its commits are taken. What it has read counts."""
    world, place, stands = World(), TopicPartition("orders", 0), []

    def read_on(found: World) -> None:
        found.offsets["source"][GROUP][place] += 1
        stands.append(found.offsets["source"][GROUP][place])

    late("landing_test", read_on)(world)
    policy = replace(POLICY, strategy=strategy)
    result = a_migration(world, FakeLog(), plan=a_plan(strategy=strategy), policy=policy).run()
    assert (result.state, result.step) == ("rolled_back", "start_consumers")
    assert "something still reads there under this group id" in result.reason
    assert [world.offsets["source"][GROUP][place]] == stands


def test_the_end_of_the_flow_s_last_transaction_is_waited_for_and_nobody_s_write() -> None:
    """The ledger may tell that everything is copied before the last marker stands in every partition."""
    world, place, looks = World(), target_of(TopicPartition("orders", 0)), []

    def hook(action: Action) -> Observation | None:
        if inside(world, "drain") and isinstance(action, ReadLogs) and action.side == "target":
            looks.append(action)
            if len(looks) == 1:
                world.open_transaction[place] = 1
            elif world.open_transaction.pop(place, None):
                world.logs["target"][place].append(None)
        return None

    world.hook = hook
    verdict("proven", 0)(world)  # this world's proof takes a marker for a record
    assert_moved(world, a_migration(world, FakeLog()).run())
    assert any("transactions are still open at cloud on dc.orders-0" in line for line in world.said)


def test_a_partition_that_was_added_since_the_switch_comes_home_with_the_others() -> None:
    log = FakeLog()
    world = moved_away(log)
    grow(world)
    assert world.logs["source"][NEW]
    assert_home(world, a_rollback(world, log).run())


def test_what_a_group_reads_besides_at_the_target_keeps_it_from_going_home_without_it() -> None:
    log = FakeLog()
    world = moved_away(log)
    world.offsets["target"][GROUP][TopicPartition("native", 0)] = 5
    result = a_rollback(world, log).run()
    assert (result.state, result.step) == ("refused", "preflight_back")
    assert "group billing reads native at cloud, too" in result.reason
