"""Groups where they return from: they are gone there, and none leaves behind what it has still to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.cutover.fake_log import FakeLog
from tests.cutover.moved import PLACE, assert_home, moved
from tests.cutover.world import GROUP, PRODUCER, target_of
from tests.cutover.world_back import BACK, BackWorld, a_rollback
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, ReadGroup, ReadRecords, ReadTopics
from watershed.cutover.observations import Observation, ObservedGroup, ObservedRecords, ObservedTopics

STORE = TopicPartition(f"{GROUP}-by-user-repartition", 0)


def shown(world: BackWorld, **more: Any) -> Callable[[Action], Observation | None]:
    """The group, as it shows itself where it is; in its own topic a record waits."""

    def hook(action: Action) -> Observation | None:
        if isinstance(action, ReadTopics) and action.side == "target":
            return ObservedTopics(0, {STORE.topic: 1} | {f"dc.{name}": count for name, count in world.topics.items()})
        if isinstance(action, ReadRecords) and STORE in action.at:
            return ObservedRecords(0, dict.fromkeys(action.at, "waits"))
        if not isinstance(action, ReadGroup) or action.side != "target":
            return None
        world.hook = lambda _action: None
        seen = world.answer(action)
        world.hook = hook
        assert isinstance(seen, ObservedGroup)
        return replace(seen, **more)

    return hook


def test_nothing_is_left_of_a_group_where_it_has_been() -> None:
    log = FakeLog()
    world = moved(log)
    assert_home(world, a_rollback(world, log).run())
    assert GROUP not in world.offsets["target"]


def test_a_group_that_came_alive_there_meanwhile_stays_and_is_told() -> None:
    log = FakeLog()
    world = moved(log)

    def stranger(value: dict[str, Any]) -> None:
        if value["step"] == "end_migration":
            world.strangers["target"] = 1

    log.on_append = stranger
    result = a_rollback(world, log).run()
    assert result.state == "done", result
    assert GROUP in world.offsets["target"]
    assert any(f"group {GROUP} is alive at cloud again" in said for said in world.said)


def test_a_share_group_is_not_delivered_records_again_without_a_word() -> None:
    log = FakeLog()
    world = moved(log)
    world.hook = shown(world, kind="share", again={target_of(PLACE): 3})
    result = a_rollback(world, log).run()
    assert (result.state, result.step) == ("rolled_back", "translate_back"), result
    assert f"share group {GROUP} is done with 3 offsets behind its start offsets (dc.orders-0=3)" in result.reason
    assert world.apps[PRODUCER].side == "target"
    accepted = replace(BACK, redelivery=frozenset({GROUP}))
    assert a_rollback(world, log, policy=accepted).run().state == "done"


def test_a_share_group_goes_on_behind_what_it_is_done_with() -> None:
    """Brokers store a share group's start offset late."""
    log = FakeLog()
    world = moved(log)
    there = target_of(PLACE)
    reached = world.offsets["target"][GROUP][there]
    world.lazy = True
    world.offsets["target"][GROUP][there] -= 4
    world.hook = shown(world, kind="share", done={there: reached})
    result = a_rollback(world, log).run(until_step="landing_test")
    assert result.state == "paused", result
    left = [record for record in world.logs["target"][there][reached:] if record is not None]
    at = world.offsets["source"][GROUP][PLACE]
    assert [record for record in world.logs["source"][PLACE][at:] if record is not None] == left


def test_a_streams_application_leaves_no_record_between_its_tasks() -> None:
    log = FakeLog()
    world = moved(log)
    back = a_rollback(world, log)
    assert back.run_plan.earlier is not None
    back.run_plan.earlier.outcomes["preflight"]["groups"][GROUP].update(kind="streams", internal=[STORE.topic])
    world.hook = shown(world)
    result = back.run()
    assert (result.state, result.step) == ("rolled_back", "translate_back"), result
    assert f"Streams application {GROUP} has records in {STORE} that it has not processed" in result.reason
